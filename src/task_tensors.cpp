#include "task_tensors.hpp"

#include "problem.hpp"

namespace lanewise {

KeyTensor keys_at(const Run& run, const lw_const_tensor& tensor, int64_t b, int64_t kv_head) {
  const lw_inputs& in = run.inputs;
  KeyTensor keys;
  keys.type = tensor.type;
  // Strides of axes of size 1 are not used, so they may be anything.
  keys.head_stride = run.problem.kv_heads > 1 ? tensor.stride[1] : 0;
  keys.len_stride = tensor.stride[2];
  keys.dim_stride = tensor.stride[3];
  if (in.page_table != nullptr) {
    keys.data = data_at(tensor, 0, kv_head, 0);
    keys.page_table = in.page_table + b * in.page_table_stride[0];
    keys.page_table_stride = in.page_table_stride[1];
    keys.page_size = run.problem.page_size;
    keys.page_stride = tensor.stride[0];
    if (keys.page_size == 1) keys.len_stride = 0;
  } else {
    keys.data = data_at(tensor, in.cu_seqlens_kv != nullptr ? 0 : b, kv_head, run.kv_token(b));
    if (run.kv_len(b) <= 1) keys.len_stride = 0;
  }
  return keys;
}

Task sequence_task(const Run& run, const Rules& rules, int64_t b) {
  const lw_problem& p = run.problem;
  Task task;
  task.qk_dim = p.qk_dim;
  task.v_dim = p.v_dim;
  task.group_size = group_size(p);
  task.kv_start = run.kv_start(b);
  task.kv_len = run.kv_len(b);
  task.q_offset = run.q_offset(b);
  task.rules = &rules;
  task.q_positions = run.q_positions(b);
  task.q_positions_stride = run.inputs.q_positions_stride[1];
  task.native_bf16 = p.arithmetic == LW_ARITHMETIC_NATIVE_BF16;
  return task;
}

void set_rows(const Run& run, int64_t b, int64_t q_head, Task& task) {
  task.q = rows_at<QueryTensor>(run, run.inputs.q, b, q_head);
  const lw_inputs& in = run.inputs;
  task.mask = rows_at<QueryTensor>(run, in.mask, b, q_head);
  task.bias = rows_at<QueryTensor>(run, in.bias, b, q_head);
  task.mask_begin = run.problem.mask_tail > 0 ? task.kv_len - run.problem.mask_tail : 0;
  if (in.block_indptr != nullptr) {
    task.block_mask.indptr = in.block_indptr + b * in.block_indptr_stride[0] + q_head * in.block_indptr_stride[1];
    task.block_mask.indices = in.block_indices;
    task.block_mask.head_stride = in.block_indptr_stride[1];
    task.block_mask.block_rows = run.problem.block_mask_rows;
    task.block_mask.block_keys = run.problem.block_mask_keys;
  }
  if (in.alibi_slopes != nullptr) task.slopes = in.alibi_slopes + b * in.alibi_batch_stride + q_head;
}

}  // namespace lanewise
