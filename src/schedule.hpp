// Who executes a run's tasks. A task is a panel of row tiles of one (sequence, kv head) over all keys it may see, or over
// a piece of them where there are too few panels for the threads (task_cursor.hpp). No task waits for another: any
// thread may take any task in any order, and the last piece of a panel to arrive merges.
#pragma once

#include <atomic>
#include <cstdint>

#include "plan.hpp"
#include "run.hpp"
#include "status.hpp"

namespace lanewise {

// Numbers of tasks, handed out to the workers of a run in order, until it is told to stop.
class TaskNumbers {
 public:
  explicit TaskNumbers(const lw_executor& executor) : should_stop_(executor.should_stop) {}

  // The next one, whether or not there is such a task. False: the run stops.
  bool take(int64_t& index) {
    if (should_stop_ != nullptr && *should_stop_ != 0) {
      stopped_.store(true, std::memory_order_relaxed);
      return false;
    }
    index = next_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  // Of the run, when its workers are done.
  lw_status status() const {
    if (!stopped_.load(std::memory_order_relaxed)) return ok();
    return failure(LW_STOPPED, "stopped by should_stop; outputs are incomplete");
  }

 private:
  const volatile int32_t* should_stop_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stopped_{false};
};

// Threads that `executor` may use for this run, before the workspace limits them.
int32_t threads_for(const lw_executor& executor);

// Calls share(argument, i) for i in 0 ... workers - 1, on as many threads as the executor has.
void on_workers(const lw_executor& executor, int32_t workers, lw_share share, void* argument);

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor);

// Part ith of nth, on the calling thread. Phase 0: every nth task. Phase 1: merges of panels cut into pieces.
lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t phase, int32_t ith, int32_t nth);

}  // namespace lanewise
