// The cases that bench programs run when they are not asked for others.
#pragma once

#include <vector>

#include "attention_case.hpp"

namespace lanewise::bench {

std::vector<AttentionCase> attention_cases();
std::vector<AttentionCase> decode_cases();
std::vector<AttentionCase> rule_cases();

// Full attention on float32, canonical, [batch, heads, len, dim], one thread, on the best target: what most cases start
// from.
AttentionCase basic_case(int64_t len, int64_t dim, int64_t heads);

// One query against a cache of `kv_len` keys a head, otherwise as basic_case.
AttentionCase decode_case(int64_t kv_len, int64_t dim, int64_t q_heads, int64_t kv_heads, int32_t threads);

// The rows that share a head's keys.
int64_t rows_of_kv_head(const AttentionCase& c);

// Of the curve from 1 to kCurveRows rows a kv head: 128 MiB of keys and values, several times a cache.
inline constexpr int64_t kCurveRows = 64;
AttentionCase curve_case(int64_t rows, int32_t threads);

// Threads that benches use at most: the CPUs of this process, but 8.
int32_t all_threads();

// The best target this CPU runs has native_bf16 arithmetic.
bool has_bf16_dot();

}  // namespace lanewise::bench
