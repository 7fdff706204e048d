// Statistics of attention weights as tests see them: lw_run_statistics on a prepared case, with outputs between
// canaries, the same in scalar code, and agreement with the reference.
#pragma once

#include <string>
#include <vector>

#include "array.hpp"
#include "case.hpp"
#include "place.hpp"
#include "run.hpp"

namespace lanewise::test {

struct StatisticsRequest {
  int64_t row_begin = 0, row_end = LW_TO_END;
  bool weights = true, column_sums = true, row_max = true, row_entropy = true;
  Layout weights_layout = Layout::kBhld, columns_layout = Layout::kBhld;
  const Array* columns_before = nullptr;  // what column sums go on from
};

struct Statistics {
  std::string target;
  lw_status status = {};
  Array weights;               // [batch, q_heads, q_len, kv_len]
  Array column_sums;           // [batch, q_heads, kv_len, 1]
  Array row_max, row_entropy;  // [batch, q_heads, q_len, 1]
  std::string damage;          // something else that was written; empty if none
};

// Empty when both succeeded and hold the same bits.
std::string bit_difference(const Statistics& a, const Statistics& b);

// Memory of one call's outputs and lse.
struct StatisticsBuffers {
  lw_const_tensor lse;
  lw_statistics statistics;
  GuardedBuffer lse_buffer, weights, column_sums, row_max, row_entropy;
};
// lse: [batch, q_heads, q_len, 1]; poison where there is no query.
StatisticsBuffers place_statistics(const Prepared& p, const Array& lse, const StatisticsRequest& request);

// v, states and sinks of the inputs are taken away, the workspace is of exactly the size asked for.
Statistics run_statistics(const PreparedPlan& plan, const Prepared& p, const Array& lse,
                          const StatisticsRequest& request, const How& how);

// A run for lse, then its statistics.
Statistics run_with_statistics(Case c, const StatisticsRequest& request, const How& how);

// docs/NUMERICS.md, "Statistics of weights", in scalar code, of a dense float32 problem.
Statistics canonical_statistics(const Prepared& p, const Array& lse, const StatisticsRequest& request);

// Empty when `statistics` succeeded and agree with the reference of the case's dense form within its bounds. whole: of
// the case whose lse was given.
std::string reference_difference(const Case& c, const Expectation& whole, const StatisticsRequest& request,
                                 const Statistics& statistics);

// Dense, strided, ragged, paged: names, and c stored so, with outputs to match.
inline constexpr const char* kStatisticsStorages[] = {"dense", "strided", "ragged", "paged"};
StatisticsRequest store_with_statistics(Case& c, size_t which);

// A run and its statistics on every target, by one thread and by seven: within the reference's bounds, equal to each
// other, and to the scalar code where the target has FMA.
void check_statistics(const std::string& name, const Case& c, const StatisticsRequest& request);

}  // namespace lanewise::test
