// What all tasks of a run share: how it is cut and for how many threads, which tensors are packed, the parts of the
// workspace.
#pragma once

#include <atomic>
#include <cstdint>

#include "plan.hpp"
#include "run.hpp"
#include "task_cursor.hpp"

namespace lanewise {

struct Work {
  Cut cut;
  bool pack_k, pack_v;
  int64_t split_panels;
  // Workspace: pieces' states, arrivals (one a split panel), then scratch of each worker.
  char* states;
  std::atomic<int32_t>* arrivals;
  char* scratch;
};

// `threads`: as many as there may be; comes back as those worth waking.
Work work_of(const lw_plan& plan, const Run& run, void* workspace, int32_t& threads);

// Tasks of a run in which every sequence is as long as the plan allows and no kv heads are taken together. Of more than
// 65,536 panels a (sequence, kv head) none is counted as cut.
int64_t tasks_at_capacity(const lw_plan& plan, int32_t threads);

}  // namespace lanewise
