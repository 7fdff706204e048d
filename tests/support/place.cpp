#include "place.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "rnd.hpp"

namespace lanewise::test {
namespace {

struct Extent {
  int64_t lowest = 0, highest = -1;  // offsets of the first and last element in memory; none: highest < lowest
};

Extent extent_of(const Shape& shape, const std::array<int64_t, 4>& stride) {
  Extent extent = {0, 0};
  for (size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 0) return Extent();
    const int64_t reach = (shape[axis] - 1) * stride[axis];
    (reach < 0 ? extent.lowest : extent.highest) += reach;
  }
  return extent;
}

template <class Tensor>
void place(Tensor& tensor, GuardedBuffer& buffer, const Shape& shape, Layout layout, int32_t type, Edge edge) {
  const std::array<int64_t, 4> stride = strides_of(layout, shape);
  const Extent extent = extent_of(shape, stride);
  const int64_t size = type_size(type);
  buffer = GuardedBuffer(static_cast<size_t>((extent.highest - extent.lowest + 1) * size), edge);
  tensor = Tensor();
  tensor.data = buffer.data() - extent.lowest * size;
  tensor.type = type;
  std::copy(stride.begin(), stride.end(), tensor.stride);
}

}  // namespace

lw_const_tensor tensor_at(const void* data, int32_t type, const std::array<int64_t, 4>& stride) {
  lw_const_tensor tensor = {};
  tensor.data = data;
  tensor.type = type;
  std::copy(stride.begin(), stride.end(), tensor.stride);
  return tensor;
}

std::array<int64_t, 4> strides_of(Layout layout, const Shape& shape) {
  const int64_t batch = shape[0], heads = shape[1], len = shape[2], dim = shape[3];
  switch (layout) {
    case Layout::kBlhd:
      return {len * heads * dim, dim, heads * dim, 1};
    case Layout::kLbhd:
      return {heads * dim, dim, batch * heads * dim, 1};
    case Layout::kTransposed:
      return {heads * dim * len, dim * len, 1, len};
    case Layout::kPaddedRows:
      return {heads * len * (dim + 3), len * (dim + 3), dim + 3, 1};
    case Layout::kSpread:
      return {heads * len * dim * 2, len * dim * 2, dim * 2, 2};
    case Layout::kReversedLen:
      return {heads * len * dim, len * dim, -dim, 1};
    case Layout::kBhld:
      break;
  }
  return {heads * len * dim, len * dim, dim, 1};
}

void place_output(lw_tensor& tensor, GuardedBuffer& buffer, const Shape& shape, Layout layout, int32_t type,
                  Edge edge) {
  place(tensor, buffer, shape, layout, type, edge);
}

void place_input(lw_const_tensor& tensor, GuardedBuffer& buffer, const Array& array, Layout layout, int32_t type,
                 const Surroundings& around, const Hidden& hidden) {
  place(tensor, buffer, array.shape, layout, type, around.edge);
  const int64_t elements = static_cast<int64_t>(buffer.size()) / type_size(type);
  // A large number stays a number: infinities are a poison of their own.
  const bool too_large = type == LW_TYPE_F16 && std::isfinite(around.poison) && around.poison > 65504;
  for (int64_t n = 0; n < elements; ++n) store(type, buffer.data(), n, too_large ? 65504 : around.poison);
  void* data = const_cast<void*>(tensor.data);
  const int64_t* stride = tensor.stride;
  size_t n = 0;
  for (int64_t a = 0; a < array.shape[0]; ++a) {
    for (int64_t b = 0; b < array.shape[1]; ++b) {
      for (int64_t c = 0; c < array.shape[2]; ++c, n += static_cast<size_t>(array.shape[3])) {
        if (hidden(a, c)) continue;
        const int64_t row = a * stride[0] + b * stride[1] + c * stride[2];
        for (int64_t d = 0; d < array.shape[3]; ++d) {
          store(type, data, row + d * stride[3], array.values[n + static_cast<size_t>(d)]);
        }
      }
    }
  }
}

const int32_t* place_ints(GuardedBuffer& buffer, const std::vector<int32_t>& values, Edge edge) {
  if (values.empty()) return nullptr;
  buffer = GuardedBuffer(values.size() * sizeof(int32_t), edge);
  std::memcpy(buffer.data(), values.data(), buffer.size());
  return reinterpret_cast<const int32_t*>(buffer.data());
}

Array join_sequences(const Array& array, const std::vector<int32_t>& cu_seqlens, int64_t spare) {
  Array joined({1, array.shape[1], cu_seqlens.back() + spare, array.shape[3]});
  array.each([&](int64_t b, int64_t h, int64_t i, int64_t x, float value) {
    const int64_t token = cu_seqlens[static_cast<size_t>(b)] + i;
    if (token < cu_seqlens[static_cast<size_t>(b + 1)]) joined.at(0, h, token, x) = value;
  });
  return joined;
}

PagePool::PagePool(int64_t batch, int64_t kv_len, int64_t page_size, const Hidden& seen, uint64_t seed)
    : page_size_(page_size), kv_len_(kv_len), table_width_((kv_len + page_size - 1) / page_size + 2) {
  const auto needed = [&](int64_t b, int64_t page) {
    for (int64_t j = page * page_size; j < std::min(kv_len, (page + 1) * page_size); ++j) {
      if (seen(b, j)) return true;
    }
    return false;
  };
  int64_t used = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t page = 0; page < table_width_; ++page) used += needed(b, page);
  }
  // Two pages that no table needs; ids in a random order.
  std::vector<int32_t> ids(static_cast<size_t>(used + 2));
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t n = ids.size() - 1; n > 0; --n) {
    std::swap(ids[n], ids[static_cast<size_t>((rnd(seed, n) + 1) / 2 * static_cast<float>(n))]);
  }
  source_.assign(ids.size() * static_cast<size_t>(page_size), -1);
  const int32_t no_page[] = {-1, INT32_MAX, ids[0]};
  size_t next = 2, unneeded = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t page = 0; page < table_width_; ++page) {
      if (!needed(b, page)) {
        table_.push_back(no_page[unneeded++ % 3]);
        continue;
      }
      const int32_t id = ids[next++];
      table_.push_back(id);
      for (int64_t slot = 0; slot < page_size; ++slot) {
        const int64_t j = page * page_size + slot;
        if (j < kv_len && seen(b, j)) source_[static_cast<size_t>(id * page_size + slot)] = b * kv_len + j;
      }
    }
  }
}

Array PagePool::scatter(const Array& array) const {
  Array pool({pages(), array.shape[1], page_size_, array.shape[3]});
  pool.each([&](int64_t page, int64_t h, int64_t slot, int64_t x, float& value) {
    const int64_t from = source_[static_cast<size_t>(page * page_size_ + slot)];
    if (from >= 0) value = array.at(from / kv_len_, h, from % kv_len_, x);
  });
  return pool;
}

}  // namespace lanewise::test
