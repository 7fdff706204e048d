// The only file with OpenMP: kernels are called through pointers, so that no compiler outlines a kernel without its
// target's instructions.

#include "schedule.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "fp_environment.hpp"
#include "machine.hpp"
#include "status.hpp"
#include "task_cursor.hpp"
#include "tasks.hpp"
#include "work.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lanewise {
namespace {

void merge_panel(const Work& work, const TaskCursor& at, void* scratch) {
  work.cut.plan.kernels.merge_pieces(panel_task(work, at, scratch), at.panel().first_unit, at.panel().units);
}

// next: what this worker is likely to do afterwards; nullptr: unknown.
void run_task(const Work& work, const TaskCursor& at, const TaskCursor* next, bool merge, void* scratch) {
  const Panel& panel = at.panel();
  Task task = task_at(work, at, scratch);
  if (next != nullptr) hint(work, *next, task);
  const KernelTable& kernels = work.cut.plan.kernels;
  if (panel.row_end - panel.row_begin <= kernels.few_rows) {
    kernels.keys_in_lanes(task);
  } else {
    (task.native_bf16 ? kernels.native_rows_in_lanes : kernels.rows_in_lanes)(task);
  }
  if (panel.deliver == Deliver::kResults || !merge) return;
  // The last piece to arrive merges: no task waits for another.
  if (work.arrivals[at.split()].fetch_add(1, std::memory_order_acq_rel) == panel.pieces - 1)
    merge_panel(work, at, scratch);
}

// What the workers of a run share. Each takes tasks until none is left.
struct Share {
  const Work& work;
  TaskNumbers numbers;
  int64_t workers;

  void run(int64_t worker) {
    const FpEnvironment environment;
    char* const scratch = work.scratch + worker * work.cut.plan.task_scratch;
    TaskCursor cursor(work.cut);
    for (int64_t index = 0; numbers.take(index) && cursor.seek(index);) {
      TaskCursor peek = cursor;  // workers take turns, more or less
      run_task(work, cursor, peek.seek(index + workers) ? &peek : nullptr, true, scratch);
    }
  }
};

void run_share(void* argument, int64_t worker) { static_cast<Share*>(argument)->run(worker); }

#if defined(_OPENMP)
// libgomp hangs when a forked child of a process with a thread team opens a region: the child stays on its calling
// thread. The process is remembered at load: its team may be the host's.
const pid_t kProcess = getpid();
bool is_forked_child() { return getpid() != kProcess; }

// libgomp ends the process where a thread cannot be started. More than this are no one's wish, but INT32_MAX for "all".
constexpr int32_t kMostThreads = 1024;
#endif

}  // namespace

int32_t threads_for(const lw_executor& executor) {
  if (executor.kind == LW_EXECUTOR_CALLER) return 1;
  if (executor.kind == LW_EXECUTOR_CALLBACK) return std::max(executor.threads, 1);
#if defined(_OPENMP)
  if (omp_in_parallel()) return 1;  // the host's threads already fill the machine
  // OMP_NUM_THREADS, affinity; a container's quota is unknown to the OpenMP runtimes.
  static const bool chosen_by_user = std::getenv("OMP_NUM_THREADS") != nullptr;
  const int32_t wanted = executor.threads > 0 ? executor.threads : omp_get_max_threads();
  const int32_t limit = std::min(wanted, std::max(kMostThreads, omp_get_num_procs()));
  if (executor.threads > 0 || chosen_by_user) return limit;
  return std::min(limit, usable_cpus());
#else
  return 1;
#endif
}

void on_workers(const lw_executor& executor, int32_t workers, lw_share share, void* argument) {
  if (workers == 1) return share(argument, 0);
  if (executor.kind == LW_EXECUTOR_CALLBACK) return executor.parallel_for(executor.context, workers, share, argument);
#if defined(_OPENMP)
  if (!is_forked_child()) {
#pragma omp parallel num_threads(workers)
    share(argument, omp_get_thread_num());
    return;
  }
#endif
  share(argument, 0);
}

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor) {
  int32_t workers = threads;
  const Work work = [&] {
    const FpEnvironment environment;  // workers cut the same pieces in it
    return work_of(plan, run, workspace, workers);
  }();
  for (int64_t i = 0; i < work.split_panels; ++i) work.arrivals[i].store(0, std::memory_order_relaxed);
  Share share{work, TaskNumbers(executor), workers};
  on_workers(executor, workers, &run_share, &share);
  return share.numbers.status();
}

lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t phase, int32_t ith, int32_t nth) {
  const FpEnvironment environment;
  int32_t threads = nth;
  const Work work = work_of(plan, run, workspace, threads);
  char* const scratch = work.scratch + ith * plan.task_scratch;
  TaskCursor cursor(work.cut);
  if (phase == 0) {
    for (int64_t task = ith; cursor.seek(task); task += nth) {
      TaskCursor peek = cursor;
      run_task(work, cursor, peek.seek(task + nth) ? &peek : nullptr, false, scratch);
    }
  } else {
    for (; !cursor.at_end(); cursor.next_panel()) {
      if (cursor.panel().deliver != Deliver::kResults && cursor.split() % nth == ith)
        merge_panel(work, cursor, scratch);
    }
  }
  return ok();
}

}  // namespace lanewise
