// How a run is cut into tasks, and the walk over them: sequences, kv heads, panels, pieces. Sizes and offsets alone: what
// tasks read and write is in tasks.hpp, who runs them in schedule.hpp.
#pragma once

#include <cstdint>

#include "plan.hpp"
#include "run.hpp"

namespace lanewise {

// What decides where a run is cut.
struct Cut {
  const lw_plan& plan;
  const Run& run;
  Rules rules;
  int64_t panel_tiles;
  int64_t heads_together;  // kv heads of few rows that one task takes, at most
  double largest_task;     // multiply-adds above which a panel's keys are cut into pieces
};

inline constexpr double kNeverCut = 1e300;

// A panel: rows of one (sequence, kv head), or few rows of several kv heads, the keys they may see, and how those are cut
// into pieces of whole blocks or spans.
struct Panel {
  int64_t row_begin, row_end;
  int64_t kv_heads;  // that have these rows
  int64_t key_begin, key_end;
  double cost;      // multiply-adds
  Deliver deliver;  // kResults: one piece
  int64_t first_unit, units;
  int64_t pieces;
  bool streams;  // keys come from memory: fetch them ahead

  int64_t rows() const { return (row_end - row_begin) * kv_heads; }
};

// Walks the tasks in order of their numbers: sequence, kv head (or several together), panel, piece. Numbers only go up,
// so a worker's whole walk costs one pass over the panels and no memory.
class TaskCursor {
 public:
  explicit TaskCursor(const Cut& cut);

  // Moves to task `index`, not before the last one. False: there is none.
  bool seek(int64_t index);

  // Moves to the next panel. False: there is none.
  bool next_panel();

  bool at_end() const { return sequence_ >= cut_.run.problem.batch; }
  int64_t sequence() const { return sequence_; }
  int64_t kv_head() const { return first_head(head_task_); }  // the first one
  int64_t piece() const { return piece_; }
  int64_t first() const { return first_; }    // number of the panel's first task
  int64_t split() const { return split_; }    // split panels before this one
  int64_t states() const { return states_; }  // floats of states before this panel's
  int64_t state_size() const { return piece_state_size(panel_.rows(), task_.v_dim); }
  const Panel& panel() const { return panel_; }
  const Task& task() const { return task_; }

 private:
  void begin_sequence();
  void begin_panel();
  int64_t first_head(int64_t head_task) const { return cut_.run.problem.kv_heads * head_task / head_tasks_; }

  const Cut& cut_;
  int64_t sequence_ = 0, head_task_ = 0, head_tasks_ = 1, index_ = 0, piece_ = 0;
  int64_t first_ = 0, split_ = 0, states_ = 0;
  Panels panels_ = {0, 0, 0};
  Panel panel_ = {};
  Task task_;
};

}  // namespace lanewise
