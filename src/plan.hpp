// A plan: what follows from sizes, types and target alone. Constant once made; made in about a microsecond.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.hpp"
#include "lanewise/lanewise.h"

// The opaque type of the C interface.
struct lw_plan {
  lw_problem problem;  // checked: scale and arithmetic resolved
  int64_t target;      // Highway's bit
  lanewise::KernelTable kernels;
  int64_t piece_rows;      // most rows of a panel that is cut over keys: one tile
  int64_t together_rows;   // the same of several kv heads together
  int64_t task_scratch;    // bytes of one worker's scratch
  double work_per_thread;  // multiply-adds below which no further thread is woken: kWorkPerThread; less in tests
};

namespace lanewise {

// a * b * c, at most INT64_MAX: capacities may be absurd.
inline int64_t saturating_product(int64_t a, int64_t b, int64_t c) {
  int64_t ab = 0, abc = 0;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return INT64_MAX;
  return abc;
}

lw_status make_plan(const lw_problem* problem, const lw_options* options, lw_plan& plan);

// Exact for `threads` workers; 0 where there is nothing to compute.
int64_t workspace_size(const lw_plan& plan, int32_t threads);
// The most of `threads` for which `bytes` are enough; 1 where they are too few for any.
int32_t threads_that_fit(const lw_plan& plan, int32_t threads, int64_t bytes);

// Bytes of the parts of a workspace, in this order; behind them the workers' scratch.
struct WorkspaceLayout {
  int64_t states;    // of pieces: at most as many as cutting by kPiecesPerThread can make
  int64_t arrivals;  // one int32 a panel cut into pieces
};
WorkspaceLayout workspace_layout(const lw_plan& plan, int32_t threads);

// Panels above 1 / (kPiecesPerThread * threads) of a run's work are cut: at the end no thread is idle for more than
// that.
inline constexpr int64_t kPiecesPerThread = 8;

// Keys are cut for at most this many threads, so that no number of threads asked for overflows a size.
inline constexpr int32_t kMaxCutThreads = 4096;

// Below this many multiply-adds a thread, waking another thread costs more than it brings (docs/PERFORMANCE.md).
inline constexpr double kWorkPerThread = 1e6;
inline int32_t threads_worth_waking(double multiply_adds, int32_t threads, double work_per_thread = kWorkPerThread) {
  const double worth = 1 + multiply_adds / work_per_thread;
  return worth < threads ? static_cast<int32_t>(worth) : threads;
}

// Of the largest run there may be.
inline double multiply_adds_at_capacity(const lw_problem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(p.q_heads) * static_cast<double>(p.q_len) *
         static_cast<double>(p.kv_len) * static_cast<double>(p.qk_dim + p.v_dim);
}

// How the rows of one (sequence, kv head) are cut into tasks: panels of row tiles.
struct Panels {
  int64_t rows;     // of all heads of the group
  int64_t vectors;  // of rows
  int64_t count;    // panels
};
Panels panels_of(const lw_plan& plan, int64_t q_len, int64_t panel_tiles);

// Row tiles of a panel for a run of these sizes.
int64_t panel_tiles_of(const lw_plan& plan, const lw_problem& run, int32_t threads);

// q_positions: the run gives them.
Rules rules_of(const lw_problem& problem, bool q_positions);

// K or V is copied block by block before the register tiles read it: 16-bit elements (widened once for all tiles of a
// panel), an element stride other than 1, or a row stride that puts the rows of a tile into few cache sets.
bool must_pack(const lw_const_tensor& tensor);
bool strides_need_packing(const lw_const_tensor& tensor);  // whatever the type

}  // namespace lanewise
