// Running the library on prepared buffers by each of its executors, and what came of it.
#pragma once

#include <functional>
#include <string>

#include "array.hpp"
#include "guarded_buffer.hpp"
#include "lanewise/lanewise.h"

namespace lanewise::test {

// Buffers and arguments of one call. The argument structs may be changed before a run; they point into the buffers.
struct Prepared {
  lw_problem problem;
  lw_inputs inputs;
  lw_outputs outputs;
  GuardedBuffer q, k, v, q_lengths, kv_lengths, q_offsets, kv_starts, page_table, in_max, in_sum, in_acc;  // inputs
  GuardedBuffer mask, bias, slopes, sinks, q_positions, block_indptr, block_indices;
  GuardedBuffer out, lse, state_max, state_sum, state_acc;  // outputs
  Edge edge = Edge::kEnd;
  int64_t logical_q_len = 0;  // rows of a sequence in results, whatever the storage
};

enum class Runner {
  kOpenmp,
  kCaller,
  kCallback,        // a parallel-for of std::threads that hands out shares from the last to the first
  kPartsReversed,   // run_part on the calling thread, the last part first
  kPartsOnThreads,  // run_part on one std::thread a part
};

struct How {
  std::string target;
  int32_t threads = 1;
  Runner runner = Runner::kOpenmp;
  std::function<void()> before = [] {};  // right around the call: floating-point modes
  std::function<void()> after = [] {};
};

struct Result {
  std::string target;
  lw_status status;
  Array out, lse, state_max, state_sum, state_acc;  // [batch, head, len, dim or 1]
  std::string damage;                               // a canary, gap or unused row that was written; empty if none
};

// Empty when both succeeded and hold the same bits in out, lse and states.
std::string bit_difference(const Result& a, const Result& b);

// Every byte of the outputs and around them is a canary, as before a run.
bool outputs_untouched(const Prepared& prepared);
void reset_outputs(Prepared& prepared);

// A plan for one target. Each run gets a workspace of exactly the size asked for, between guard page and canaries.
class PreparedPlan {
 public:
  PreparedPlan(const lw_problem& problem, const std::string& target);
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;
  ~PreparedPlan() { lw_plan_free(plan_); }

  const lw_status& status() const { return status_; }
  const lw_plan* get() const { return plan_; }
  Result run(Prepared& prepared, const How& how) const;

 private:
  lw_plan* plan_ = nullptr;
  lw_status status_;
};

// Plan and run of `prepared` as it stands.
Result run_prepared(Prepared& prepared, const How& how);

}  // namespace lanewise::test
