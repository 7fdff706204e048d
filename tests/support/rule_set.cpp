#include "rule_set.hpp"

#include <algorithm>
#include <cstring>

namespace lanewise::test {
namespace {

// Axes of size 1 are broadcast: their strides become 0 whatever they were.
void broadcast(lw_const_tensor& tensor, const Shape& shape) {
  for (size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 1) tensor.stride[axis] = 0;
  }
}

// [1, heads, tokens, keys] for ragged queries, where rows or sequences differ at all.
Array by_token(const Array& array, const std::vector<int32_t>& offsets, int64_t batch, int64_t q_len) {
  if (offsets.empty() || (array.shape[0] == 1 && array.shape[2] == 1)) return array;
  Array full({batch, array.shape[1], q_len, array.shape[3]});
  full.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float& x) { x = broadcast_at(array, a, b, c, d); });
  return join_sequences(full, offsets, 0);
}

// A bool mask's bytes have the strides of a bf16 tensor's elements; what lies between holds flags too.
void place_bytes(lw_const_tensor& tensor, GuardedBuffer& buffer, const Array& array, Layout layout, Edge edge) {
  const std::array<int64_t, 4> stride = strides_of(layout, array.shape);
  int64_t low = 0, high = 0;
  for (size_t axis = 0; axis < 4; ++axis) {
    const int64_t reach = (array.shape[axis] - 1) * stride[axis];
    (reach < 0 ? low : high) += reach;
  }
  if (array.values.empty()) low = high = 0;
  buffer = GuardedBuffer(static_cast<size_t>(high - low + 1), edge);
  for (size_t n = 0; n < buffer.size(); ++n) buffer.data()[n] = n % 3 == 0;
  uint8_t* const data = buffer.data() - low;
  tensor = lw_const_tensor();
  tensor.data = data;
  tensor.type = LW_TYPE_BOOL;
  std::copy(stride.begin(), stride.end(), tensor.stride);
  array.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float x) {
    // Any byte but 0 lets see.
    data[a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]] = x != 0 ? (d % 5 == 4 ? 0x80 : 1) : 0;
  });
}

// Rows of bits, one byte apart more than they need; bits past a row's end are set and clear in turn.
void place_bits(lw_const_tensor& tensor, GuardedBuffer& buffer, const Array& array, Edge edge) {
  const int64_t row_bytes = (array.shape[3] + 7) / 8 + 1;
  const int64_t rows = array.shape[0] * array.shape[1] * array.shape[2];
  buffer = GuardedBuffer(static_cast<size_t>(rows > 0 ? rows * row_bytes - 1 : 0), edge);
  for (size_t n = 0; n < buffer.size(); ++n) buffer.data()[n] = n % 2 ? 0x55 : 0xaa;
  tensor = lw_const_tensor();
  tensor.data = buffer.data();
  tensor.type = LW_TYPE_BITS;
  tensor.stride[2] = row_bytes;
  tensor.stride[1] = row_bytes * array.shape[2];
  tensor.stride[0] = tensor.stride[1] * array.shape[1];
  tensor.stride[3] = INT64_MIN;  // not used
  array.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float x) {
    uint8_t& byte = buffer.data()[a * tensor.stride[0] + b * tensor.stride[1] + c * tensor.stride[2] + d / 8];
    byte = static_cast<uint8_t>((byte & ~(1 << d % 8)) | ((x != 0) << d % 8));
  });
}

const float* place_floats(GuardedBuffer& buffer, const std::vector<float>& values, Edge edge) {
  if (values.empty()) return nullptr;
  buffer = GuardedBuffer(values.size() * sizeof(float), edge);
  std::memcpy(buffer.data(), values.data(), buffer.size());
  return reinterpret_cast<const float*>(buffer.data());
}

}  // namespace

float broadcast_at(const Array& array, int64_t a, int64_t b, int64_t c, int64_t d) {
  const Shape& s = array.shape;
  return array.at(s[0] == 1 ? 0 : a, s[1] == 1 ? 0 : b, s[2] == 1 ? 0 : c, s[3] == 1 ? 0 : d);
}

bool RuleSet::lets_see(int64_t b, int64_t h, int64_t i, int64_t j, int64_t kv_len) const {
  const int64_t column = mask_tail > 0 ? j - (kv_len - mask_tail) : j;
  if (mask && column >= 0 && broadcast_at(*mask, b, h, i, column) == 0) return false;
  if (bias && broadcast_at(*bias, b, h, i, j) <= -1e38f) return false;
  return !tiles || broadcast_at(*tiles, b, h, i / tile_rows, j / tile_keys) != 0;
}

RuleSet RuleSet::slice(int axis, int64_t begin, int64_t end, int64_t batch, int64_t q_heads, int64_t q_len) const {
  RuleSet part = *this;
  const auto cut = [&](std::optional<Array>& array) {
    if (array && array->shape[static_cast<size_t>(axis)] > 1) array = array->slice(axis, begin, end);
  };
  cut(part.bias);
  if (axis < 3 || mask_tail == 0) cut(part.mask);
  if (axis < 2) cut(part.tiles);
  const auto pick = [&](const auto& values, int64_t outer, int64_t inner, int64_t which) {
    auto kept = values;
    kept.clear();
    for (int64_t a = 0; a < outer; ++a) {
      for (int64_t x = 0; x < inner; ++x) {
        const int64_t at = which == 0 ? a : x;
        if (at >= begin && at < end) kept.push_back(values[static_cast<size_t>(a * inner + x)]);
      }
    }
    return kept;
  };
  if (!q_positions.empty() && (axis == 0 || axis == 2)) part.q_positions = pick(q_positions, batch, q_len, axis);
  const int64_t slope_rows = static_cast<int64_t>(slopes.size()) / q_heads;
  if (axis == 1 || (axis == 0 && slope_rows > 1)) part.slopes = pick(slopes, slope_rows, q_heads, axis);
  if (axis == 1 && !sinks.empty()) part.sinks = pick(sinks, 1, q_heads, 1);
  return part;
}

void RuleSet::place(Prepared& p, const Surroundings& around, const std::vector<int32_t>& offsets, int64_t batch,
                    int64_t q_len) const {
  p.problem.softcap = softcap;
  p.problem.prefix_len = prefix_len;
  if (!q_positions.empty()) {
    std::vector<int32_t> positions = q_positions;
    if (!offsets.empty()) {
      positions.clear();
      for (size_t b = 0; b + 1 < offsets.size(); ++b) {
        const auto first = q_positions.begin() + static_cast<int64_t>(b) * q_len;
        positions.insert(positions.end(), first, first + (offsets[b + 1] - offsets[b]));
      }
    }
    p.inputs.q_positions = place_ints(p.q_positions, positions, around.edge);
    p.inputs.q_positions_stride[0] = offsets.empty() ? q_len : INT64_MAX;
    p.inputs.q_positions_stride[1] = 1;
  }
  if (mask) {
    const Array array = by_token(*mask, offsets, batch, q_len);
    p.problem.mask_type = mask_type;
    p.problem.mask_tail = mask_tail;
    if (mask_type == LW_TYPE_BITS) {
      place_bits(p.inputs.mask, p.mask, array, around.edge);
    } else {
      place_bytes(p.inputs.mask, p.mask, array, mask_layout, around.edge);
    }
    broadcast(p.inputs.mask, array.shape);
  }
  if (bias) {
    const Array array = by_token(*bias, offsets, batch, q_len);
    p.problem.bias_type = bias_type;
    place_input(p.inputs.bias, p.bias, array, bias_layout, bias_type, around, [](int64_t, int64_t) { return false; });
    broadcast(p.inputs.bias, array.shape);
  }
  p.problem.alibi = !slopes.empty();
  p.inputs.alibi_slopes = place_floats(p.slopes, slopes, around.edge);
  const int64_t heads = p.problem.q_heads;
  p.inputs.alibi_batch_stride = static_cast<int64_t>(slopes.size()) > heads ? heads : 0;
  p.problem.sinks = !sinks.empty();
  p.inputs.sinks = place_floats(p.sinks, sinks, around.edge);
  if (!tiles) return;
  p.problem.block_mask_rows = tile_rows;
  p.problem.block_mask_keys = tile_keys;
  std::vector<int32_t> indptr, indices;
  const Shape& shape = tiles->shape;
  tiles->each([&](int64_t, int64_t, int64_t r, int64_t c, float listed) {
    if (r == 0 && c == 0) indptr.push_back(static_cast<int32_t>(indices.size()));
    if (listed != 0) indices.push_back(static_cast<int32_t>(c));
    if (c == shape[3] - 1) indptr.push_back(static_cast<int32_t>(indices.size()));
  });
  if (indices.empty()) indices.push_back(0);
  p.inputs.block_indptr = place_ints(p.block_indptr, indptr, around.edge);
  p.inputs.block_indices = place_ints(p.block_indices, indices, around.edge);
  p.inputs.block_indptr_stride[1] = shape[1] == 1 ? 0 : shape[2] + 1;
  p.inputs.block_indptr_stride[0] = shape[0] == 1 ? 0 : shape[1] * (shape[2] + 1);
}

}  // namespace lanewise::test
