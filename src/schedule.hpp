// A run's tasks and who executes them. A task is a panel of row tiles of one (sequence, kv head) over all its keys; no task waits for
// another, so any thread may take any task in any order.
#pragma once

#include <cstdint>

#include "plan.hpp"
#include "problem.hpp"

namespace lanewise {

// Threads that `executor` may use for this run, before the workspace limits them.
int32_t threads_for(const lw_executor& executor);

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor);

// Part ith of nth, on the calling thread: every nth task.
lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t ith, int32_t nth);

}  // namespace lanewise
