#include "statistics.hpp"

#include <algorithm>
#include <iterator>

#include "check.hpp"
#include "fp_environment.hpp"
#include "problem.hpp"
#include "schedule.hpp"
#include "status.hpp"
#include "task_tensors.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

// ---- Checks ---------------------------------------------------------------------------------------------------------

Axes column_axes(const Run& run, const RunAxes& axes) {
  const lw_problem& p = run.problem;
  if (p.kv_layout == LW_LAYOUT_RAGGED) return {{axes.k.size[0], p.q_heads, axes.k.size[2], 1}};
  return {{p.batch, p.q_heads, p.kv_len, 1}};
}

lw_status check_statistics_tensors(const StatisticsRun& statistics, const Range& workspace) {
  const Run& run = statistics.run;
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const lw_statistics& wanted = statistics.wanted;
  const RunAxes axes = axes_of(run);
  const Axes columns = column_axes(run, axes);
  const Axes weights = axes.bias;
  lw_const_tensor mask = in.mask;
  if (p.mask_type == LW_TYPE_BITS) mask.stride[3] = 1;
  NamedTensor inputs[] = {{"q", in.q, p.q_type, axes.q},
                          {"k", in.k, p.k_type, axes.k},
                          {"mask", mask, p.mask_type, axes.mask, p.mask_type != LW_TYPE_NONE},
                          {"bias", in.bias, p.bias_type, axes.bias, p.bias_type != LW_TYPE_NONE},
                          {"lse", statistics.lse, LW_TYPE_F32, axes.rows}};
  const auto given = [](const lw_tensor& tensor) { return tensor.data != nullptr; };
  NamedTensor outputs[] = {{"weights", wanted.weights, LW_TYPE_F32, weights, given(wanted.weights)},
                           {"column_sums", wanted.column_sums, LW_TYPE_F32, columns, given(wanted.column_sums)},
                           {"row_max", wanted.row_max, LW_TYPE_F32, axes.rows, given(wanted.row_max)},
                           {"row_entropy", wanted.row_entropy, LW_TYPE_F32, axes.rows, given(wanted.row_entropy)}};
  const bool none = std::none_of(std::begin(outputs), std::end(outputs), [](const NamedTensor& t) { return t.given; });
  if (none && !(is_empty(axes.rows) && is_empty(columns))) {
    return failure(LW_INVALID_ARGUMENT,
                   "statistics asks for nothing: weights, column_sums, row_max and row_entropy are null pointers");
  }
  return check_tensors(inputs, static_cast<int>(std::size(inputs)), outputs, static_cast<int>(std::size(outputs)),
                       workspace);
}

// ---- Tasks ----------------------------------------------------------------------------------------------------------

// One walk over rows and keys of all sequences and kv heads. Columns need all rows of a task's keys, in order; row
// statistics need all keys of a task's rows.
struct Pass {
  bool columns, rows, weights;  // what it makes
  int64_t panel_rows;           // rows of a task; 0: all
  int64_t blocks;               // blocks of keys of a task; 0: all
};

// Of K, which stay in a second cache while one panel of rows after another goes over them; and where there is one panel,
// which reads each block once and fetches the next meanwhile.
constexpr int64_t kMostBlocks = 4, kMostBlocksOnce = 64;

struct StatisticsWork {
  const lw_plan& plan;
  const StatisticsRun& statistics;
  Rules rules;
  bool pack_k;
  Pass pass[2];
  int passes;
};

int64_t blocks_of(const Run& run, int64_t b) {
  const int64_t start = run.kv_start(b), keys = run.kv_len(b);
  return keys == 0 ? 0 : (start + keys - 1) / kBlockKeys - start / kBlockKeys + 1;
}

// Parts of one (sequence, kv head).
int64_t parts_of(const StatisticsWork& work, const Pass& pass, int64_t b) {
  const StatisticsRun& s = work.statistics;
  const int64_t rows = (s.row_end(b) - s.row_begin(b)) * group_size(s.run.problem);
  const int64_t blocks = blocks_of(s.run, b);
  if (pass.panel_rows > 0) return (rows + pass.panel_rows - 1) / pass.panel_rows;
  if (pass.blocks > 0) return (blocks + pass.blocks - 1) / pass.blocks;
  return rows > 0 || blocks > 0 ? 1 : 0;
}

// Walks the tasks in order of their numbers: pass, sequence, kv head, part. Numbers only go up.
struct Cursor {
  int pass = 0;
  int64_t b = 0;
  int64_t first = 0;  // number of the sequence's first task
  int64_t kv_head = 0, part = 0;

  // Moves to task `index`, not before the last one. False: there is none.
  bool seek(const StatisticsWork& work, int64_t index) {
    const lw_problem& p = work.statistics.run.problem;
    for (; pass < work.passes; ++pass, b = 0) {
      for (; b < p.batch; ++b) {
        const int64_t parts = parts_of(work, work.pass[pass], b), tasks = parts * p.kv_heads;
        if (index < first + tasks) {
          kv_head = (index - first) / parts;
          part = (index - first) % parts;
          return true;
        }
        first += tasks;
      }
    }
    return false;
  }
};

// Where the columns of the group's heads begin.
ResultTensor columns_at(const Run& run, const lw_tensor& sums, int64_t b, int64_t q_head) {
  const bool ragged = run.inputs.cu_seqlens_kv != nullptr;
  ResultTensor to;
  to.data = static_cast<float*>(sums.data) + (ragged ? 0 : b * sums.stride[0]) + q_head * sums.stride[1] +
            (ragged ? run.kv_token(b) * sums.stride[2] : 0);
  to.head_stride = sums.stride[1];
  to.len_stride = sums.stride[2];
  return to;
}

WeightTask task_at(const StatisticsWork& work, const Cursor& at, void* scratch) {
  const StatisticsRun& s = work.statistics;
  const Run& run = s.run;
  const Pass& pass = work.pass[at.pass];
  WeightTask weights;
  Task& task = weights.rows;
  task = sequence_task(run, work.rules, at.b);
  const int64_t q_head = at.kv_head * task.group_size;
  task.native_bf16 = false;
  task.row_begin = s.row_begin(at.b) * task.group_size;
  task.row_end = s.row_end(at.b) * task.group_size;
  task.key_end = task.kv_len;
  if (pass.panel_rows > 0) {  // causal rows at the end see the most keys: the longest tasks first
    const int64_t part = parts_of(work, pass, at.b) - 1 - at.part;
    task.row_end = std::min(task.row_end, task.row_begin + (part + 1) * pass.panel_rows);
    task.row_begin += part * pass.panel_rows;
  }
  if (pass.blocks > 0) {
    const int64_t first = (task.kv_start / kBlockKeys + at.part * pass.blocks) * kBlockKeys - task.kv_start;
    task.key_begin = std::max<int64_t>(0, first);
    task.key_end = std::min(task.kv_len, first + pass.blocks * kBlockKeys);
  }
  task.pack_k = work.pack_k;
  task.scratch = scratch;
  // Rows or keys that a sequence does not have may have no place in a tensor either.
  const bool keys = task.key_begin < task.key_end;
  if (keys && pass.columns) {
    weights.column_sums = columns_at(run, s.wanted.column_sums, at.b, q_head);
    weights.accumulate = s.wanted.accumulate != 0;
  }
  if (task.row_begin >= task.row_end) return weights;
  set_rows(run, at.b, q_head, task);
  if (keys) task.k = keys_at(run, run.inputs.k, at.b, at.kv_head);
  weights.lse = rows_at<QueryTensor>(run, s.lse, at.b, q_head);
  if (keys && pass.weights) weights.weights = rows_at<ResultTensor>(run, s.wanted.weights, at.b, q_head);
  if (pass.rows) {
    weights.row_max = rows_at<ResultTensor>(run, s.wanted.row_max, at.b, q_head);
    weights.row_entropy = rows_at<ResultTensor>(run, s.wanted.row_entropy, at.b, q_head);
  }
  return weights;
}

// `threads`: as many as there may be; comes back as those worth waking.
StatisticsWork work_of(const lw_plan& plan, const StatisticsRun& s, int32_t& threads) {
  const Run& run = s.run;
  const lw_problem& p = run.problem;
  double pairs = 0;
  int64_t blocks = 0, most_rows = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t rows = s.row_end(b) - s.row_begin(b);
    pairs += static_cast<double>(rows) * static_cast<double>(run.kv_len(b));
    most_rows = std::max(most_rows, rows);
    blocks += blocks_of(run, b);
  }
  const double multiply_adds = pairs * static_cast<double>(p.q_heads) * static_cast<double>(p.qk_dim);
  threads = threads_worth_waking(multiply_adds, threads, plan.work_per_thread);

  const bool columns = s.wanted.column_sums.data != nullptr;
  const bool rows = s.wanted.row_max.data != nullptr || s.wanted.row_entropy.data != nullptr;
  const bool weights = s.wanted.weights.data != nullptr;
  const int64_t panel_rows = panel_tiles_of(plan, p, threads) * plan.kernels.rows_max_vectors * plan.kernels.lanes;
  const bool one_panel = most_rows * group_size(p) <= plan.kernels.rows_max_vectors * plan.kernels.lanes;
  const int64_t task_blocks =
      std::clamp<int64_t>(saturating_product(blocks, p.kv_heads, 1) / (kPiecesPerThread * threads), 1,
                          one_panel ? kMostBlocksOnce : kMostBlocks);
  // One walk makes everything where whole (sequence, kv head) pairs are enough tasks.
  const bool whole = threads == 1 || saturating_product(p.batch, p.kv_heads, 1) >= 4 * int64_t{threads};
  StatisticsWork work = {plan,
                         s,
                         rules_of(p, run.inputs.q_positions != nullptr),
                         p.kv_layout == LW_LAYOUT_PAGED || must_pack(run.inputs.k),
                         {},
                         1};
  if (columns && rows && !whole) {
    work.pass[0] = {false, true, weights, panel_rows, 0};
    work.pass[1] = {true, false, false, 0, task_blocks};
    work.passes = 2;
  } else if (columns && rows) {
    work.pass[0] = {true, true, weights, 0, 0};
  } else if (columns) {
    work.pass[0] = {true, false, weights, 0, task_blocks};
  } else {
    work.pass[0] = {false, rows, weights, panel_rows, 0};
  }
  int64_t tasks = 0;
  for (int i = 0; i < work.passes; ++i) {
    for (int64_t b = 0; b < p.batch; ++b) tasks += parts_of(work, work.pass[i], b) * p.kv_heads;
  }
  threads = static_cast<int32_t>(std::clamp<int64_t>(tasks, 1, threads));
  return work;
}

// What the workers of a call share. Each takes tasks until none is left.
struct Share {
  const StatisticsWork& work;
  TaskNumbers numbers;
  char* workspace;

  void run(int64_t worker) {
    const FpEnvironment environment;
    char* const scratch = workspace + worker * work.plan.task_scratch;
    Cursor cursor;
    for (int64_t index = 0; numbers.take(index) && cursor.seek(work, index);)
      work.plan.kernels.weights(task_at(work, cursor, scratch));
  }
};

void run_share(void* argument, int64_t worker) { static_cast<Share*>(argument)->run(worker); }

}  // namespace

lw_status check_statistics(const lw_problem& planned, const lw_inputs* inputs, const lw_const_tensor* lse,
                           const lw_statistics* statistics, const Range& workspace, StatisticsRun& checked) {
  lw_statistics& wanted = checked.wanted;
  if (const lw_status s = copy_struct("statistics", statistics, wanted); s.code != LW_OK) return s;
  if (!all_zero(wanted.reserved) || wanted.reserved_int != 0) return unknown_field("statistics");
  if (wanted.accumulate < 0 || wanted.accumulate > 1) return invalid_size("accumulate", wanted.accumulate, 0, 1);
  if (lse == nullptr) return failure(LW_INVALID_ARGUMENT, "lse is a null pointer");
  checked.lse = *lse;
  checked.run.outputs = lw_outputs_default();
  if (const lw_status s = check_inputs(planned, inputs, true, checked.run); s.code != LW_OK) return s;
  return check_statistics_tensors(checked, workspace);
}

lw_status execute_statistics(const lw_plan& plan, const StatisticsRun& statistics, void* workspace, int32_t threads,
                             const lw_executor& executor) {
  int32_t workers = threads;
  const StatisticsWork work = [&] {
    const FpEnvironment environment;  // the host may round otherwise
    return work_of(plan, statistics, workers);
  }();
  Share share{work, TaskNumbers(executor), static_cast<char*>(workspace)};
  on_workers(executor, workers, &run_share, &share);
  return share.numbers.status();
}

void execute_statistics_part(const lw_plan& plan, const StatisticsRun& statistics, void* workspace, int32_t ith,
                             int32_t nth) {
  const FpEnvironment environment;
  int32_t threads = nth;
  const StatisticsWork work = work_of(plan, statistics, threads);
  char* const scratch = static_cast<char*>(workspace) + ith * plan.task_scratch;
  Cursor cursor;
  for (int64_t task = ith; cursor.seek(work, task); task += nth) plan.kernels.weights(task_at(work, cursor, scratch));
}

}  // namespace lanewise
