// Statistics of attention weights: checks of lw_run_statistics, its tasks and their workers.
#pragma once

#include <cstdint>

#include "plan.hpp"
#include "run.hpp"

namespace lanewise {

// The arguments of lw_run_statistics, checked.
struct StatisticsRun {
  Run run;
  lw_const_tensor lse;
  lw_statistics wanted;

  // Queries of sequence b that count.
  int64_t row_begin(int64_t b) const { return from_end(wanted.row_begin, run.q_len(b)); }
  int64_t row_end(int64_t b) const {
    const int64_t begin = row_begin(b), end = from_end(wanted.row_end, run.q_len(b));
    return end < begin ? begin : end;
  }

 private:
  static int64_t from_end(int64_t at, int64_t n) {
    if (at < 0) at += n;
    return at < 0 ? 0 : at > n ? n : at;
  }
};

// `planned`: the checked problem of the plan.
lw_status check_statistics(const lw_problem& planned, const lw_inputs* inputs, const lw_const_tensor* lse,
                           const lw_statistics* statistics, const Range& workspace, StatisticsRun& checked);

lw_status execute_statistics(const lw_plan& plan, const StatisticsRun& statistics, void* workspace, int32_t threads,
                             const lw_executor& executor);

// Every nth task from number ith on, on the calling thread.
void execute_statistics_part(const lw_plan& plan, const StatisticsRun& statistics, void* workspace, int32_t ith,
                             int32_t nth);

}  // namespace lanewise
