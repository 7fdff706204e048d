// The cases that bench_attention runs when it is not asked for others.
#pragma once

#include <vector>

#include "attention_case.hpp"

namespace lanewise::bench {

std::vector<AttentionCase> standard_cases();

// Full attention on float32, canonical, [batch, heads, len, dim], one thread, on the best target: what most cases start
// from.
AttentionCase basic_case(int64_t len, int64_t dim, int64_t heads);

// Name of the best target this CPU runs.
const char* best_target_name();

}  // namespace lanewise::bench
