#include "curve.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "case_tensors.hpp"
#include "lanewise/lanewise.hpp"
#include "limit.hpp"
#include "prepared_case.hpp"
#include "src/kernels/kernel_table.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {
namespace {

constexpr int kRepeats = 15;

// Every row count where kernels change or tiles fill up; above that every fourth.
bool is_in_table(int64_t rows) { return rows <= kMaxFewRows + 2 || rows % 4 == 0; }

std::string chosen_kernel(const AttentionCase& c) {
  Options options;
  options.target = c.target.c_str();
  Plan plan;
  if (!Plan::make(problem_of(c), options, plan)) return "none";
  return plan.explain(c.threads).kernel;
}

}  // namespace

int print_curve(int32_t threads) {
  if (threads < 1) {
    std::fprintf(stderr, "--curve takes a number of threads from 1\n");
    return 2;
  }
  std::printf("%d threads, S=8192, d=128, 16 kv heads; limit: the lower of reading and arithmetic\n\n", threads);
  std::printf("%4s %8s %-10s %14s %14s  %s\n", "rows", "limit", "", "keys-in-lanes", "rows-in-lanes", "chosen");
  for (int64_t rows = 1; rows <= kCurveRows; ++rows) {
    if (!is_in_table(rows)) continue;
    std::string problem;
    AttentionCase c = curve_case(rows, threads);
    const std::string chosen = chosen_kernel(c);
    c.kernel = Kernel::kKeysInLanes;
    std::unique_ptr<PreparedCase> keys;
    if (rows <= kMaxFewRows) keys = prepare(c, problem);
    c.kernel = Kernel::kRowsInLanes;
    const std::unique_ptr<PreparedCase> rows_kernel = prepare(c, problem);
    if (!problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
      return 1;
    }
    double keys_seconds = std::numeric_limits<double>::infinity(), rows_seconds = keys_seconds;
    Limit limit = measure_limit(c, *rows_kernel);
    for (int i = 0; i < kRepeats; ++i) {
      if (keys != nullptr) keys_seconds = std::min(keys_seconds, seconds_of(*keys, 1));
      rows_seconds = std::min(rows_seconds, seconds_of(*rows_kernel, 1));
    }
    const Limit after = measure_limit(c, *rows_kernel);
    if (after.seconds < limit.seconds) limit = after;
    std::printf("%4d %8.1f %-10s ", static_cast<int>(rows), limit.rate, limit.by_memory ? "GB/s" : "GFLOP/s");
    if (keys != nullptr) {
      std::printf("%12.1f %% ", 100 * limit.seconds / keys_seconds);
    } else {
      std::printf("%14s ", "-");
    }
    std::printf("%12.1f %%  %s\n", 100 * limit.seconds / rows_seconds, chosen.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace lanewise::bench
