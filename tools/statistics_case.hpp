// Statistics of a case's attention weights after its run: what lw_run_statistics gives, and its comparison with the
// reference.
#pragma once

#include <array>
#include <string>

#include "check.hpp"
#include "run_case.hpp"

namespace lanewise::tools {

struct StatisticsWanted {
  bool weights = false, column_sums = false, row_max = false, row_entropy = false;
  int64_t row_begin = 0, row_end = LW_TO_END;
  bool any() const { return weights || column_sums || row_max || row_entropy; }
};

// "A:B", either of them left out, below 0 from the end: a slice of each sequence's queries.
void parse_rows(const std::string& text, StatisticsWanted& wanted);

// Tensors as they are for a file, zeros where nothing was computed. weights [batch, q_heads, q_len, kv_len], of ragged
// queries [q_heads, total, kv_len]; column_sums [batch, q_heads, kv_len], of ragged keys [q_heads, total]; the others as
// lse. What was not asked for has no bytes.
struct StatisticsResult {
  io::Tensor weights, column_sums, row_max, row_entropy;
  double seconds = 0;  // best run
  bool stopped = false;

  std::array<const io::Tensor*, 4> tensors() const { return {&weights, &column_sums, &row_max, &row_entropy}; }
};

// lse: the run's.
StatisticsResult run_statistics(const ProblemCase& c, const RunOptions& options, const io::Tensor& lse,
                                const StatisticsWanted& wanted);

// In the order of StatisticsResult::tensors; what was not asked for compares nothing. False when stopped.
bool compare_statistics(const ProblemCase& c, const RunResult& run, const StatisticsResult& result,
                        const StatisticsWanted& wanted, const ReferenceResult& reference, int32_t threads,
                        const Progress& progress, std::array<Comparison, 4>& comparisons);

}  // namespace lanewise::tools
