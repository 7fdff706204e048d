// Tensors as a run sees them: a file's tensor laid out in memory, perhaps with poisoned elements behind each row
// (--pad), and its strides in the order the library takes them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "io/tensor.hpp"
#include "lanewise/lanewise.h"

namespace lanewise::tools {

// Which axis of a tensor is batch (or page), head, len, dim; -1: there is none (size 1).
using Axes = std::array<int, 4>;

Axes dense_axes(bool blhd, size_t rank);            // rank 2, 3 or 4
inline constexpr Axes kRaggedAxes = {-1, 1, 0, 2};  // [total, heads, dim]

int64_t axis_size(const std::vector<int64_t>& shape, const Axes& axes, size_t axis);

// Strides in elements by the library's axes, of rows with `pad` more elements; an axis of size 1 gets stride 0, which
// is how masks are broadcast.
std::array<int64_t, 4> strides_of(const std::vector<int64_t>& shape, const Axes& axes, int64_t pad = 0);

int32_t lw_type(io::Type type);  // LW_TYPE_NONE for types the library does not take

class Placed {
 public:
  Placed() = default;
  // Takes the tensor as it is, or copies it into rows with `pad` more elements; one without bytes stays without.
  Placed(io::Tensor tensor, int64_t pad);
  // Every byte poisoned, 0xff: NaN in all float types.
  static Placed poisoned(std::string name, io::Type type, std::vector<int64_t> shape, int64_t pad);

  // Zeros in every element; what lies behind rows stays as it is.
  void clear();

  bool given() const { return given_; }
  const std::string& name() const { return data_.name; }
  io::Type type() const { return data_.type; }
  const std::vector<int64_t>& shape() const { return shape_; }
  void* data() const { return data_.bytes.data(); }

  lw_const_tensor input(const Axes& axes, int32_t type) const;
  lw_tensor output(const Axes& axes) const;

  bool padding_intact() const;      // no element behind a row was written
  io::Tensor without_padding() &&;  // the tensor itself where there is none

 private:
  int64_t row_size() const { return shape_.empty() ? 1 : shape_.back(); }
  int64_t rows() const;
  size_t row_bytes(int64_t elements) const { return static_cast<size_t>(elements) * io::type_size(data_.type); }

  io::Tensor data_;  // its last axis is pad_ longer than shape_'s
  std::vector<int64_t> shape_;
  int64_t pad_ = 0;
  bool given_ = false;
};

}  // namespace lanewise::tools
