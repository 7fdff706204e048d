// Checks of a problem: what a plan is made from. Everything a caller can get wrong is checked before any tensor is
// touched; checked structs come back as full copies of this version's (an older caller's are shorter).
#pragma once

#include "lanewise/lanewise.h"

namespace lanewise {

// Query heads that share a kv head.
inline int64_t group_size(const lw_problem& p) { return p.q_heads / p.kv_heads; }

// On success `checked` is `problem` with scale resolved: has_scale = 1. Arithmetic may still be BEST, which the plan
// resolves: it knows the target.
lw_status check_problem(const lw_problem* problem, lw_problem& checked);

// Rules that a run may override: scale, softcap, window, q_offset.
lw_status check_rules(const lw_problem& problem);

}  // namespace lanewise
