// A run's tasks as kernels take them: where the cursor stands, with pointers and strides, rules, pages and scratch.
#pragma once

#include "kernels/kernel_table.hpp"
#include "task_cursor.hpp"
#include "work.hpp"

namespace lanewise {

// The whole panel at the cursor, as merge_pieces takes it: all its keys, states from the first.
Task panel_task(const Work& work, const TaskCursor& at, void* scratch);

// The task at the cursor: the panel, or one piece of its keys.
Task task_at(const Work& work, const TaskCursor& at, void* scratch);

// What the task at `next` will read first, as hints for `task`: short sequences read every row once, and would wait for
// memory at each (L = S = 128, 96 heads: 75 to 81 % of the long rate; docs/PERFORMANCE.md).
void hint(const Work& work, const TaskCursor& next, Task& task);

}  // namespace lanewise
