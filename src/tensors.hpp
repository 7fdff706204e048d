// Checks of strided tensors: pointer, type, alignment, extent, overlap. No element is read.
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

// Bytes of one element of a storage type; 0 for LW_TYPE_NONE and unknown types.
int64_t type_size(int32_t type);
const char* type_name(int32_t type);
bool is_float_type(int32_t type);

// Sizes of a tensor's four axes.
struct Axes {
  int64_t size[4];
};

// The bytes between a tensor's lowest and highest element; begin is nullptr for a tensor without elements.
struct Range {
  const char* begin;
  const char* end;              // one past the last byte
  bool dense;                   // every byte between belongs to the tensor
  const void* first = nullptr;  // element [0, 0, 0, 0]: not the lowest where a stride is negative
};

// `size` bytes, none of them where there is no such memory.
Range memory_at(const void* data, int64_t size);

bool is_empty(const Axes& axes);

lw_status check_tensor(const char* name, const void* data, int32_t type, int32_t wanted_type,
                       const int64_t (&stride)[4], const Axes& axes, Range& range);

// No two elements of an output may share an address.
lw_status check_output_strides(const char* name, const int64_t (&stride)[4], const Axes& axes);

// Overlap is refused where it is certain: the same first element, or the first, lowest or highest element of one within
// another without gaps. (Outputs that interleave with other tensors in one buffer are fine, and their extents intersect.)
bool overlaps(const Range& a, const Range& b);

// A tensor to check: what it is called, what it must be.
struct NamedTensor {
  template <class Tensor>
  NamedTensor(const char* given_name, const Tensor& tensor, int32_t wanted_type, const Axes& wanted_axes,
              bool is_given = true)
      : name(given_name),
        data(tensor.data),
        type(tensor.type),
        stride(&tensor.stride),
        reserved(&tensor.reserved),
        wanted(wanted_type),
        axes(wanted_axes),
        given(is_given) {}

  const char* name;
  const void* data;
  int32_t type;
  const int64_t (*stride)[4];
  const int64_t (*reserved)[4];
  int32_t wanted;
  const Axes& axes;
  bool given;
  Range range = {nullptr, nullptr, false};
};

// Inputs first: each by itself. Then outputs, which overlap nothing; nor does the workspace. Those not given are passed
// over.
lw_status check_tensors(NamedTensor* inputs, int input_count, NamedTensor* outputs, int output_count,
                        const Range& workspace);

}  // namespace lanewise
