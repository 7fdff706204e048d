#include "tasks.hpp"

#include <algorithm>

#include "task_tensors.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

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
  set_rows(run, b, q_head, task);
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
  if (next.panel().rows() <= work.cut.plan.kernels.few_rows) {
    // Its first block's keys; from there on it fetches ahead by itself.
    const Task then = task_at(work, next, nullptr);
    if (then.kv_heads != task.kv_heads || task.rules->see_by_bits) return;
    task.next_keys = {then.k, then.key_begin, std::min(then.key_begin + kBlockKeys, then.key_end)};
    return;
  }
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
