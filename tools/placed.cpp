#include "placed.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace lanewise::tools {
namespace {

constexpr uint8_t kPoison = 0xff;

std::vector<int64_t> padded_shape(const std::string& name, std::vector<int64_t> shape, int64_t pad) {
  if (pad == 0) return shape;
  if (shape.empty()) throw io::Error("tensor " + io::quote(name) + " has no axis to pad");
  if (pad > std::numeric_limits<int64_t>::max() - shape.back())
    throw io::Error("--pad " + std::to_string(pad) + " is too large");
  shape.back() += pad;
  return shape;
}

}  // namespace

Axes dense_axes(bool blhd, size_t rank) {
  if (rank == 2) return {-1, -1, 0, 1};
  if (rank == 3) return blhd ? Axes{-1, 1, 0, 2} : Axes{-1, 0, 1, 2};
  return blhd ? Axes{0, 2, 1, 3} : Axes{0, 1, 2, 3};
}

int64_t axis_size(const std::vector<int64_t>& shape, const Axes& axes, size_t axis) {
  return axes[axis] < 0 ? 1 : shape[static_cast<size_t>(axes[axis])];
}

std::array<int64_t, 4> strides_of(const std::vector<int64_t>& shape, const Axes& axes, int64_t pad) {
  std::vector<int64_t> all(shape.size(), 1);
  for (size_t a = shape.size(); a-- > 1;) all[a - 1] = all[a] * (shape[a] + (a + 1 == shape.size() ? pad : 0));
  std::array<int64_t, 4> result = {0, 0, 0, 0};
  for (size_t i = 0; i < 4; ++i) {
    if (axes[i] >= 0 && axis_size(shape, axes, i) != 1) result[i] = all[static_cast<size_t>(axes[i])];
  }
  return result;
}

int32_t lw_type(io::Type type) {
  switch (type) {
    case io::Type::f32:
      return LW_TYPE_F32;
    case io::Type::bf16:
      return LW_TYPE_BF16;
    case io::Type::f16:
      return LW_TYPE_F16;
    case io::Type::boolean:
      return LW_TYPE_BOOL;
    case io::Type::u8:
      return LW_TYPE_BITS;
    default:
      return LW_TYPE_NONE;
  }
}

Placed::Placed(io::Tensor tensor, int64_t pad) : shape_(tensor.shape), given_(true) {
  if (pad == 0) {
    data_ = std::move(tensor);
    return;
  }
  if (tensor.bytes.data() == nullptr) {
    data_ = io::sizes_of(tensor.name, tensor.type, padded_shape(tensor.name, tensor.shape, pad));
    pad_ = pad;
    return;
  }
  *this = poisoned(tensor.name, tensor.type, tensor.shape, pad);
  const size_t from = row_bytes(row_size());
  const size_t to = row_bytes(row_size() + pad_);
  for (int64_t r = 0; r < rows() && from != 0; ++r) {
    std::memcpy(data_.bytes.data() + static_cast<size_t>(r) * to, tensor.bytes.data() + static_cast<size_t>(r) * from,
                from);
  }
}

Placed Placed::poisoned(std::string name, io::Type type, std::vector<int64_t> shape, int64_t pad) {
  Placed result;
  result.data_ = io::make_tensor(name, type, padded_shape(name, shape, pad));
  result.shape_ = std::move(shape);
  result.pad_ = pad;
  result.given_ = true;
  std::memset(result.data_.bytes.data(), kPoison, result.data_.bytes.size());
  return result;
}

int64_t Placed::rows() const {
  int64_t rows = 1;
  for (size_t a = 0; a + 1 < shape_.size(); ++a) rows *= shape_[a];
  return rows;
}

void Placed::clear() {
  const size_t row = row_bytes(row_size()), stride = row_bytes(row_size() + pad_);
  for (int64_t r = 0; r < rows() && row != 0; ++r)
    std::memset(data_.bytes.data() + static_cast<size_t>(r) * stride, 0, row);
}

lw_const_tensor Placed::input(const Axes& axes, int32_t type) const {
  lw_const_tensor view = {};
  view.data = data_.bytes.data();
  view.type = type;
  const std::array<int64_t, 4> all = strides_of(shape_, axes, pad_);
  std::copy(all.begin(), all.end(), view.stride);
  return view;
}

lw_tensor Placed::output(const Axes& axes) const {
  lw_tensor view = {};
  view.data = data_.bytes.data();
  view.type = lw_type(data_.type);
  const std::array<int64_t, 4> all = strides_of(shape_, axes, pad_);
  std::copy(all.begin(), all.end(), view.stride);
  return view;
}

bool Placed::padding_intact() const {
  const size_t row = row_bytes(row_size());
  const size_t stride = row_bytes(row_size() + pad_);
  for (int64_t r = 0; r < rows() && pad_ != 0; ++r) {
    const uint8_t* start = data_.bytes.data() + static_cast<size_t>(r) * stride;
    if (!std::all_of(start + row, start + stride, [](uint8_t byte) { return byte == kPoison; })) return false;
  }
  return true;
}

io::Tensor Placed::without_padding() && {
  if (pad_ == 0) return std::move(data_);
  io::Tensor result = io::make_tensor(data_.name, data_.type, shape_);
  const size_t row = row_bytes(row_size());
  const size_t stride = row_bytes(row_size() + pad_);
  for (int64_t r = 0; r < rows() && row != 0; ++r) {
    std::memcpy(result.bytes.data() + static_cast<size_t>(r) * row,
                data_.bytes.data() + static_cast<size_t>(r) * stride, row);
  }
  return result;
}

}  // namespace lanewise::tools
