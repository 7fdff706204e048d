// Runs a problem case on one of the executors and keeps the outputs. Errors of the library become io::Error with its
// message.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "placed.hpp"
#include "problem_case.hpp"

namespace lanewise::tools {

struct RunOptions {
  std::string executor = "openmp";  // openmp, caller, callback, parts
  std::string target;               // empty: the library's choice
  int32_t threads = 0;              // 0: OpenMP's default
  int64_t repeat = 1;               // runs; the best time counts
  int64_t pad = 0;                  // of the outputs
  bool lse = true;
  bool state = false;
  bool thread_clock = false;  // seconds that the calling thread ran, without what other processes took
  const volatile int32_t* should_stop = nullptr;
};

// Checks what the flags say about a run.
RunOptions run_options(const Flags& flags);

// Outputs as they are for a file: no padding, zeros in rows that belong to no sequence. What was not asked for has no
// bytes.
struct RunResult {
  io::Tensor out, lse, state_max, state_sum, state_acc;
  lw_explanation explanation = {};
  int32_t threads = 1;  // the workspace's
  double seconds = 0;   // best run
  bool stopped = false;
};

RunResult run_case(const ProblemCase& c, const RunOptions& options);

// Calls work(i) for i in 0 ... n - 1 on n threads, the caller's among them, as an engine's own team would; where a
// thread cannot be made, on the caller's.
void on_threads(int64_t n, const std::function<void(int64_t)>& work);

// The executor that the options ask for; not of parts. `threads` outlives it.
lanewise::Executor executor_of(const RunOptions& options, const int32_t& threads);

// Threads that a run's workspace is for.
int32_t threads_of(const RunOptions& options);

// A plan, with the library's message as an Error.
lanewise::Plan make_plan(const lanewise::Problem& problem, const std::string& target);

// Throws Error unless the status is good.
void require(const lanewise::Status& status);

// Threads this process may run at once: OMP_NUM_THREADS, else the CPUs it is allowed on.
int32_t default_threads();

inline bool given(const io::Tensor& tensor) { return tensor.bytes.data() != nullptr; }

// Where row [b, h, i] of out (or lse) begins, in elements; ragged: i counts from the sequence's first row.
struct RowIndex {
  std::array<int64_t, 4> stride;
  const int32_t* first_rows;  // cu_seqlens_q or null
  int64_t operator()(int64_t b, int64_t h, int64_t i) const {
    return b * stride[0] + h * stride[1] + (i + (first_rows != nullptr ? first_rows[b] : 0)) * stride[2];
  }
};

}  // namespace lanewise::tools
