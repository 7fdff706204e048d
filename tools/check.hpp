// Comparing a run with the float64 reference, or with values from a file, row by row.
#pragma once

#include <functional>
#include <string>

#include "problem_case.hpp"
#include "src/reference.hpp"
#include "run_case.hpp"

namespace lanewise::tools {

// Called now and then with the share of the work done; returns false to stop.
using Progress = std::function<bool(int64_t done, int64_t of)>;

// The reference for all heads, on several threads. False when stopped.
bool reference_of(const ProblemCase& c, int32_t threads, const Progress& progress, ReferenceResult& result);

// Calls compute(h) for all heads on several threads, and what it returns one after the other. False when stopped.
bool each_head(int64_t heads, int32_t threads, const Progress& progress,
               const std::function<std::function<void()>(int64_t h)>& compute);

// Query head h alone, as a problem of one head; its rows of a reference of all heads: lse and what its bound is made
// of.
struct HeadProblem {
  lw_problem problem;
  lw_inputs inputs;
};
HeadProblem head_problem(const ProblemCase& c, int64_t h);
ReferenceResult head_of(const ProblemCase& c, const ReferenceResult& all, int64_t h);

// The case's problem with the arithmetic that was used: bounds depend on it.
lw_problem problem_as_run(const ProblemCase& c, const RunResult& run);

// Of out or lse against something better. Rows are compared where they belong to a sequence.
struct Comparison {
  double largest_error = 0;  // inf where one side is NaN and the other is not
  std::string largest_at;    // "[0, 3, 17, 5]": where in the tensor
  double largest_share = 0;  // of error / allowed
  double allowed_there = 0;
  int64_t over = 0;      // values whose error is more than allowed
  int64_t compared = 0;  // values
  bool passes() const { return over == 0; }
  void add(double value, double expected, double allowed, const std::function<std::string()>& where);
};

struct RowCounts {
  int64_t rows = 0, without_keys = 0, undefined = 0;  // undefined: NaN, from a NaN or +inf score
};
RowCounts count_rows(const ProblemCase& c, const ReferenceResult& reference);

// Against the reference, with the bound of docs/NUMERICS.md for the run's arithmetic and output type.
Comparison compare_out(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference);
Comparison compare_lse(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference);

// Against a float tensor of out's (or lse's) shape. tolerance < 0: the bound, for which `reference` is needed.
Comparison compare_expected(const ProblemCase& c, const RunResult& run, bool lse, const io::Tensor& expected,
                            double tolerance, const ReferenceResult* reference);

}  // namespace lanewise::tools
