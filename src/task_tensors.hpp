// A task's tensors: pointers and strides of one sequence and its heads, as kernels take them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/kernel_table.hpp"
#include "run.hpp"
#include "tensors.hpp"

namespace lanewise {

// First element of (batch or page 0, head, token) of a tensor.
template <class Tensor>
auto* data_at(const Tensor& tensor, int64_t batch, int64_t head, int64_t token) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor.data)>>, const char, char>;
  return static_cast<Byte*>(tensor.data) +
         (batch * tensor.stride[0] + head * tensor.stride[1] + token * tensor.stride[2]) * type_size(tensor.type);
}

// Sequence b's rows of a query-side tensor, from one query head on; no data where there is none.
template <class To, class From>
To rows_at(const Run& run, const From& tensor, int64_t b, int64_t head) {
  To to;
  if (tensor.data == nullptr) return to;
  to.data = data_at(tensor, run.inputs.cu_seqlens_q != nullptr ? 0 : b, head, run.q_token(b));
  to.type = tensor.type;
  to.head_stride = tensor.stride[1];
  to.len_stride = tensor.stride[2];
  to.dim_stride = tensor.stride[3];
  return to;
}

// Sequence b's keys or values of a kv head.
KeyTensor keys_at(const Run& run, const lw_const_tensor& tensor, int64_t b, int64_t kv_head);

// Sequence b's part of a task: lengths, offsets, no tensors.
Task sequence_task(const Run& run, const Rules& rules, int64_t b);

// The queries of a group that begins with q_head, and what rules read of them.
void set_rows(const Run& run, int64_t b, int64_t q_head, Task& task);

}  // namespace lanewise
