// The only file with OpenMP: kernels are called through pointers, so that no compiler outlines a kernel without its target's
// instructions.

#include "schedule.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "fp_environment.hpp"
#include "machine.hpp"
#include "status.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lanewise {
namespace {

// Below this many multiply-adds a thread, waking another thread costs more than it brings (docs/PERFORMANCE.md).
constexpr double kWorkPerThread = 1e6;

// What all tasks of a run share.
struct Work {
  const lw_plan& plan;
  const Run& run;
  Rules rules;
  bool pack_k, pack_v;
  int64_t panel_tiles;
  int64_t tasks;
  char* workspace;
};

// Walks the tasks in order of their numbers: sequence, kv head, panel. Numbers only go up, so a worker's whole walk costs one pass over
// the sequences and no memory.
class TaskCursor {
 public:
  explicit TaskCursor(const Work& work) : work_(work) { measure(); }

  // Moves to task `index`, not before the last one. False: there is none.
  bool seek(int64_t index) {
    while (index >= first_ + tasks_) {
      first_ += tasks_;
      if (++sequence_ >= work_.run.problem.batch) return false;
      measure();
    }
    kv_head_ = (index - first_) / panels_.count;
    // Causal rows at the end see the most keys: the longest panels first.
    panel_ = panels_.count - 1 - (index - first_) % panels_.count;
    return true;
  }

  int64_t sequence() const { return sequence_; }
  int64_t kv_head() const { return kv_head_; }
  int64_t panel() const { return panel_; }
  const Panels& panels() const { return panels_; }

 private:
  void measure() {
    panels_ = {0, 0};
    tasks_ = 0;
    if (sequence_ >= work_.run.problem.batch) return;
    panels_ = panels_of(work_.plan, work_.run.q_len(sequence_), work_.panel_tiles);
    tasks_ = panels_.count * work_.run.problem.kv_heads;
  }

  const Work& work_;
  int64_t sequence_ = 0, first_ = 0, tasks_ = 0, kv_head_ = 0, panel_ = 0;
  Panels panels_;
};

// Element `offset` of a tensor, from (batch, head).
template <class Tensor>
auto* head_data(const Tensor& tensor, int64_t batch, int64_t head) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor.data)>>, const char, char>;
  return static_cast<Byte*>(tensor.data) + (batch * tensor.stride[0] + head * tensor.stride[1]) * type_size(tensor.type);
}

QueryTensor query_tensor(const lw_const_tensor& t, int64_t batch, int64_t head) {
  if (t.data == nullptr) return {};
  return {head_data(t, batch, head), t.type, t.stride[1], t.stride[2], t.stride[3]};
}

ResultTensor result_tensor(const lw_tensor& t, int64_t batch, int64_t head) {
  if (t.data == nullptr) return {};
  return {head_data(t, batch, head), t.type, t.stride[1], t.stride[2], t.stride[3]};
}

KeyTensor key_tensor(const lw_const_tensor& t, int64_t batch, int64_t kv_head) {
  KeyTensor keys;
  keys.data = head_data(t, batch, kv_head);
  keys.type = t.type;
  keys.len_stride = t.stride[2];
  keys.dim_stride = t.stride[3];
  return keys;
}

void run_task(const Work& work, const TaskCursor& at, void* scratch) {
  const Run& run = work.run;
  const lw_problem& p = run.problem;
  const int64_t b = at.sequence();
  const int64_t q_len = run.q_len(b);
  RowsTask task;
  task.qk_dim = p.qk_dim;
  task.v_dim = p.v_dim;
  task.group_size = p.q_heads / p.kv_heads;
  const int64_t lanes = work.plan.kernels.lanes;
  const Panels& panels = at.panels();
  task.row_begin = tile_begin_vector(panels.vectors, panels.count, at.panel()) * lanes;
  task.row_end = std::min(tile_begin_vector(panels.vectors, panels.count, at.panel() + 1) * lanes, q_len * task.group_size);
  task.kv_start = run.kv_start(b);
  task.kv_len = run.kv_len(b);
  task.q_offset = run.q_offset(b);
  const int64_t q_head = at.kv_head() * task.group_size;
  task.q = query_tensor(run.inputs.q, b, q_head);
  if (task.kv_len > 0) {
    task.k = key_tensor(run.inputs.k, b, at.kv_head());
    task.v = key_tensor(run.inputs.v, b, at.kv_head());
  }
  task.state_in = {query_tensor(run.inputs.state_max, b, q_head), query_tensor(run.inputs.state_sum, b, q_head),
                   query_tensor(run.inputs.state_acc, b, q_head)};
  task.out = result_tensor(run.outputs.out, b, q_head);
  task.lse = result_tensor(run.outputs.lse, b, q_head);
  task.state_out = {result_tensor(run.outputs.state_max, b, q_head), result_tensor(run.outputs.state_sum, b, q_head),
                    result_tensor(run.outputs.state_acc, b, q_head)};
  task.rules = &work.rules;
  task.pack_k = work.pack_k;
  task.pack_v = work.pack_v;
  task.scratch = scratch;
  work.plan.kernels.rows_in_lanes(task);
}

Work work_of(const lw_plan& plan, const Run& run, void* workspace, int32_t threads) {
  Work work = {plan, run, rules_of(run.problem), must_pack(run.inputs.k), must_pack(run.inputs.v), 1, 0, static_cast<char*>(workspace)};
  work.panel_tiles = panel_tiles_of(plan, run.problem, work.pack_k || work.pack_v, threads);
  for (int64_t b = 0; b < run.problem.batch; ++b) {
    work.tasks += panels_of(plan, run.q_len(b), work.panel_tiles).count * run.problem.kv_heads;
  }
  return work;
}

// Threads worth waking: by tasks and by multiply-adds.
int32_t useful_threads(const Work& work, int32_t threads) {
  const lw_problem& p = work.run.problem;
  const double multiply_adds = static_cast<double>(p.batch) * static_cast<double>(p.q_heads) * static_cast<double>(p.q_len) *
                               static_cast<double>(p.kv_len) * static_cast<double>(p.qk_dim + p.v_dim);
  const int64_t by_work = 1 + static_cast<int64_t>(std::min(multiply_adds / kWorkPerThread, 1e6));
  return static_cast<int32_t>(std::max<int64_t>(1, std::min({int64_t{threads}, work.tasks, by_work})));
}

// One worker: takes tasks from the shared counter until none is left.
struct Share {
  const Work& work;
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  const volatile int32_t* should_stop;

  void run(int64_t worker) {
    const FpEnvironment environment;
    char* const scratch = work.workspace + worker * work.plan.task_scratch;
    TaskCursor cursor(work);
    for (;;) {
      if (should_stop != nullptr && *should_stop != 0) {
        stopped.store(true, std::memory_order_relaxed);
        return;
      }
      if (!cursor.seek(next.fetch_add(1, std::memory_order_relaxed))) return;
      run_task(work, cursor, scratch);
    }
  }
};

void run_share(void* argument, int64_t worker) { static_cast<Share*>(argument)->run(worker); }

#if defined(_OPENMP)
// libgomp hangs when a forked child of a process with a thread team opens a region: the child stays on its calling thread.
bool is_forked_child() {
  static const pid_t first = getpid();
  return getpid() != first;
}
#endif

}  // namespace

int32_t threads_for(const lw_executor& executor) {
  if (executor.kind == LW_EXECUTOR_CALLER) return 1;
  if (executor.kind == LW_EXECUTOR_CALLBACK) return std::max(executor.threads, 1);
#if defined(_OPENMP)
  if (omp_in_parallel()) return 1;  // the host's threads already fill the machine
  // OMP_NUM_THREADS, affinity; a container's quota is unknown to the OpenMP runtimes.
  static const bool chosen_by_user = std::getenv("OMP_NUM_THREADS") != nullptr;
  const int32_t limit = executor.threads > 0 ? executor.threads : omp_get_max_threads();
  if (executor.threads > 0 || chosen_by_user) return limit;
  return std::min(limit, usable_cpus());
#else
  return 1;
#endif
}

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor) {
  const Work work = work_of(plan, run, workspace, threads);
  Share share{work, {0}, {false}, executor.should_stop};
  const int32_t workers = useful_threads(work, threads);
  if (workers == 1) {
    share.run(0);
  } else if (executor.kind == LW_EXECUTOR_CALLBACK) {
    executor.parallel_for(executor.context, workers, &run_share, &share);
  } else {
#if defined(_OPENMP)
    if (is_forked_child()) {
      share.run(0);
    } else {
#pragma omp parallel num_threads(workers)
      share.run(omp_get_thread_num());
    }
#else
    share.run(0);
#endif
  }
  if (share.stopped.load(std::memory_order_relaxed)) return failure(LW_STOPPED, "stopped by should_stop; outputs are incomplete");
  return ok();
}

lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t ith, int32_t nth) {
  const FpEnvironment environment;
  const Work work = work_of(plan, run, workspace, nth);
  char* const scratch = work.workspace + ith * plan.task_scratch;
  TaskCursor cursor(work);
  for (int64_t task = ith; cursor.seek(task); task += nth) run_task(work, cursor, scratch);
  return ok();
}

}  // namespace lanewise
