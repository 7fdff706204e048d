#include "tasks.hpp"

#include <algorithm>
#include <type_traits>

#include "tensors.hpp"

namespace lanewise {
namespace {

// First element of (batch or page 0, head, token) of a tensor.
template <class Tensor>
auto* data_at(const Tensor& tensor, int64_t batch, int64_t head, int64_t token) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor.data)>>, const char, char>;
  return static_cast<Byte*>(tensor.data) +
         (batch * tensor.stride[0] + head * tensor.stride[1] + token * tensor.stride[2]) * type_size(tensor.type);
}

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

// `count` rows of `dim` elements at `data`, if they lie together.
FetchAhead rows_together(const void* data, int64_t len_stride, int64_t dim_stride, int64_t dim, int64_t count,
                         int32_t type) {
  FetchAhead ahead;
  if (data == nullptr || len_stride != dim || dim_stride != 1) return ahead;
  ahead.data = static_cast<const char*>(data);
  ahead.lines = (count * dim * type_size(type) + 63) / 64;
  return ahead;
}

// Longer sequences stream through the caches by themselves.
constexpr int64_t kLongestAhead = 1024;

}  // namespace

Task panel_task(const Work& work, const TaskCursor& at, void* scratch) {
  const Run& run = work.cut.run;
  Task task = at.task();
  const Panel& panel = at.panel();
  const int64_t b = at.sequence();
  const int64_t q_head = at.kv_head() * task.group_size;
  task.row_begin = panel.row_begin;
  task.row_end = panel.row_end;
  task.kv_heads = panel.kv_heads;
  task.key_begin = panel.key_begin;
  task.key_end = panel.key_end;
  task.q = rows_at<QueryTensor>(run, run.inputs.q, b, q_head);
  if (panel.key_begin < panel.key_end) {
    task.k = keys_at(run, run.inputs.k, b, at.kv_head());
    task.v = keys_at(run, run.inputs.v, b, at.kv_head());
  }
  task.state_in = {rows_at<QueryTensor>(run, run.inputs.state_max, b, q_head),
                   rows_at<QueryTensor>(run, run.inputs.state_sum, b, q_head),
                   rows_at<QueryTensor>(run, run.inputs.state_acc, b, q_head)};
  task.out = rows_at<ResultTensor>(run, run.outputs.out, b, q_head);
  task.lse = rows_at<ResultTensor>(run, run.outputs.lse, b, q_head);
  task.state_out = {rows_at<ResultTensor>(run, run.outputs.state_max, b, q_head),
                    rows_at<ResultTensor>(run, run.outputs.state_sum, b, q_head),
                    rows_at<ResultTensor>(run, run.outputs.state_acc, b, q_head)};
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
  if (in.sinks != nullptr) task.sinks = in.sinks + q_head;
  task.pack_k = work.pack_k;
  task.pack_v = work.pack_v;
  task.streams = panel.streams;
  task.scratch = scratch;
  if (panel.deliver != Deliver::kResults) {
    task.deliver = panel.deliver;
    task.states = reinterpret_cast<float*>(work.states) + at.states();
  }
  return task;
}

Task task_at(const Work& work, const TaskCursor& at, void* scratch) {
  const Panel& panel = at.panel();
  Task task = panel_task(work, at, scratch);
  if (panel.deliver == Deliver::kResults) return task;
  // Units [from, to) of the panel are this piece's.
  const int64_t unit = panel.deliver == Deliver::kSpans ? kSpanKeys : kBlockKeys;
  const int64_t from = panel.units * at.piece() / panel.pieces;
  const int64_t to = panel.units * (at.piece() + 1) / panel.pieces;
  task.key_begin = std::max(panel.key_begin, (panel.first_unit + from) * unit - task.kv_start);
  task.key_end = std::min(panel.key_end, (panel.first_unit + to) * unit - task.kv_start);
  task.states += from * at.state_size();
  return task;
}

void hint(const Work& work, const TaskCursor& next, Task& task) {
  const Task then = panel_task(work, next, nullptr);
  if (then.kv_len > kLongestAhead) return;
  if (then.group_size == 1) {
    const char* q = static_cast<const char*>(then.q.data) + then.row_begin * then.q.len_stride * type_size(then.q.type);
    task.ahead[0] =
        rows_together(q, then.q.len_stride, then.q.dim_stride, then.qk_dim, then.row_end - then.row_begin, then.q.type);
  }
  if (then.k.data == task.k.data || then.k.page_table != nullptr) return;
  task.ahead[1] =
      rows_together(then.k.data, then.k.len_stride, then.k.dim_stride, then.qk_dim, then.kv_len, then.k.type);
  task.ahead[2] =
      rows_together(then.v.data, then.v.len_stride, then.v.dim_stride, then.v_dim, then.kv_len, then.v.type);
}

}  // namespace lanewise
