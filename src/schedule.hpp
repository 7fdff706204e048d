// Who executes a run's tasks. A task is a panel of row tiles of one (sequence, kv head) over all keys it may see, or over
// a piece of them where there are too few panels for the threads (task_cursor.hpp). No task waits for another: any
// thread may take any task in any order, and the last piece of a panel to arrive merges.
#pragma once

#include <cstdint>

#include "plan.hpp"
#include "run.hpp"

namespace lanewise {

// Threads that `executor` may use for this run, before the workspace limits them.
int32_t threads_for(const lw_executor& executor);

// Calls share(argument, i) for i in 0 ... workers - 1, on as many threads as the executor has.
void on_workers(const lw_executor& executor, int32_t workers, lw_share share, void* argument);

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor);

// Part ith of nth, on the calling thread. Phase 0: every nth task. Phase 1: merges of panels cut into pieces.
lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t phase, int32_t ith, int32_t nth);

}  // namespace lanewise
