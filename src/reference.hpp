// The specification: attention in double precision, every rule of lanewise.h, one row at a time. Slow on purpose,
// reads as prose. Every test and `--check` goes through it. Not here: speed, threads, argument checks (problem.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lanewise/lanewise.h"

namespace lanewise {

// One entry a query row unless said otherwise. Rows in order [batch, q_heads, q_len] (dense) or [total_q, q_heads]
// (ragged); rows that belong to no sequence hold zeros.
struct ReferenceResult {
  std::vector<double> out;  // [rows, v_dim]
  std::vector<double> lse;  // natural log; -inf where no key is visible
  // What the error bound of docs/NUMERICS.md is made of:
  std::vector<double> score_magnitude;  // A: largest |scale| * sum |q[c] k[c]| + |bias| + |ALiBi| over visible keys
  std::vector<double> value_magnitude;  // V: largest |v| over visible keys
  std::vector<int64_t> blocks;          // 256-key blocks with a visible key
  bool softcapped = false;              // a softcap was in force (the problem's or the run's)
};

// problem and inputs must have passed the checks of lw_run. Uses run-time sizes and overrides as lw_run does.
ReferenceResult reference(const lw_problem& problem, const lw_inputs& inputs);

// The bounds of docs/NUMERICS.md for row `row` of `result`, canonical arithmetic, float32 outputs. Rounding to a 16-bit
// type adds half an ulp of it at the largest value that the bound allows: rounding_bound(type, |value| + bound).
double out_bound(const lw_problem& problem, const ReferenceResult& result, size_t row);
double lse_bound(const lw_problem& problem, const ReferenceResult& result, size_t row);
double rounding_bound(int32_t type, double value);

// Statistics of weights, as lw_run_statistics makes them of queries [row_begin, row_end) of each sequence, and their
// bounds of docs/NUMERICS.md. Rows as above; rows outside the range, and columns that belong to no key, hold zeros.
struct ReferenceStatistics {
  struct Values {
    std::vector<double> value, bound;
  };
  Values weights;               // [rows, kv_len]
  Values column_sums;           // [batch, q_heads, kv_len], or [q_heads, total_kv] of ragged keys
  Values row_max, row_entropy;  // [rows]
};

// whole: the result whose lse the weights are relative to: that of these inputs, or of all keys where these are a part.
ReferenceStatistics reference_statistics(const lw_problem& problem, const lw_inputs& inputs,
                                         const ReferenceResult& whole, int64_t row_begin, int64_t row_end);

}  // namespace lanewise
