#include "task_cursor.hpp"

#include <algorithm>
#include <cmath>

#include "task_tensors.hpp"

namespace lanewise {
namespace {

// Key rows [begin, end) that hold all that rows [row_begin, row_end) may see.
void key_hull(const Task& task, int64_t row_begin, int64_t row_end, int64_t& begin, int64_t& end) {
  int64_t first = position_of(task, row_begin), last = position_of(task, row_end - 1);
  if (task.q_positions != nullptr) {
    for (int64_t query = row_begin / task.group_size; query <= (row_end - 1) / task.group_size; ++query) {
      const int64_t position = task.q_positions[query * task.q_positions_stride];
      first = std::min(first, position);
      last = std::max(last, position);
    }
  }
  int64_t unused = 0;
  window_of(*task.rules, first - task.kv_start, task.kv_len, begin, unused);
  window_of(*task.rules, last - task.kv_start, task.kv_len, unused, end);
  end = std::max(begin, end);
  const int64_t prefix = prefix_of(*task.rules, task.kv_start, task.kv_len);
  if (prefix == 0) return;
  end = begin < end ? std::max(end, prefix) : prefix;
  begin = 0;
}

// Few panels read a long sequence, each once from end to end: from memory.
bool streams_from_memory(const Task& task, const Panels& panels) {
  constexpr int64_t kSecondCache = 1 << 18;  // elements of K and V
  return panels.count <= 4 && task.kv_len * (task.qk_dim + task.v_dim) > kSecondCache;
}

Panel panel_of(const Cut& cut, const Task& task, const Panels& panels, int64_t index, int64_t kv_heads) {
  const int64_t lanes = cut.plan.kernels.lanes;
  const int64_t rows = panels.rows;
  Panel panel;
  panel.row_begin = tile_begin_vector(panels.vectors, panels.count, index) * lanes;
  panel.row_end = std::min(tile_begin_vector(panels.vectors, panels.count, index + 1) * lanes, rows);
  panel.kv_heads = kv_heads;
  panel.streams = streams_from_memory(task, panels);
  key_hull(task, panel.row_begin, panel.row_end, panel.key_begin, panel.key_end);
  panel.deliver = Deliver::kResults;
  panel.first_unit = 0;
  panel.units = panel.pieces = 1;
  panel.cost = static_cast<double>(panel.rows()) * static_cast<double>(panel.key_end - panel.key_begin) *
               static_cast<double>(task.qk_dim + task.v_dim);
  if (panel.cost <= cut.largest_task || panel.rows() > (kv_heads > 1 ? cut.plan.together_rows : cut.plan.piece_rows))
    return panel;

  const int64_t wanted = static_cast<int64_t>(std::ceil(panel.cost / cut.largest_task));
  const int64_t first = task.kv_start + panel.key_begin;
  const int64_t last = task.kv_start + panel.key_end - 1;
  for (const Deliver deliver : {Deliver::kSpans, Deliver::kBlocks}) {
    const int64_t unit = deliver == Deliver::kSpans ? kSpanKeys : kBlockKeys;
    panel.deliver = deliver;
    panel.first_unit = first / unit;
    panel.units = last / unit - first / unit + 1;
    panel.pieces = std::min(wanted, panel.units);
    if (panel.pieces == wanted) break;
  }
  if (panel.pieces == 1) panel.deliver = Deliver::kResults;
  return panel;
}

}  // namespace

TaskCursor::TaskCursor(const Cut& cut) : cut_(cut) { begin_sequence(); }

bool TaskCursor::seek(int64_t index) {
  while (sequence_ < cut_.run.problem.batch && index >= first_ + panel_.pieces) next_panel();
  piece_ = index - first_;
  return sequence_ < cut_.run.problem.batch;
}

bool TaskCursor::next_panel() {
  first_ += panel_.pieces;
  if (panel_.deliver != Deliver::kResults) {
    ++split_;
    states_ += panel_.units * state_size();
  }
  if (++index_ < panels_.count) {
    begin_panel();
  } else {
    index_ = 0;
    if (++head_task_ == head_tasks_) {
      head_task_ = 0;
      ++sequence_;
      begin_sequence();
    } else {
      begin_panel();
    }
  }
  return sequence_ < cut_.run.problem.batch;
}

// The first sequence from sequence_ on that has rows.
void TaskCursor::begin_sequence() {
  for (; sequence_ < cut_.run.problem.batch; ++sequence_) {
    panels_ = panels_of(cut_.plan, cut_.run.q_len(sequence_), cut_.panel_tiles);
    if (panels_.count == 0) continue;
    task_ = sequence_task(cut_.run, cut_.rules, sequence_);
    const bool few = panels_.rows <= cut_.plan.kernels.few_rows;
    const int64_t together =
        few ? std::max<int64_t>(1, std::min(cut_.heads_together, kMaxTogetherRows / panels_.rows)) : 1;
    head_tasks_ = (cut_.run.problem.kv_heads + together - 1) / together;
    begin_panel();
    return;
  }
}

// Causal rows at the end see the most keys: the longest panels first.
void TaskCursor::begin_panel() {
  panel_ =
      panel_of(cut_, task_, panels_, panels_.count - 1 - index_, first_head(head_task_ + 1) - first_head(head_task_));
}

}  // namespace lanewise
