// Wrong arguments of lw_run_statistics: a status that names the argument and its value, and no output byte.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/statistics.hpp"
#include "support/targets.hpp"
#include "support/wrong.hpp"

namespace lanewise::test {
namespace {

// Everything lw_run_statistics takes.
struct Call {
  Prepared p;
  PreparedPlan plan;
  StatisticsBuffers to;
  GuardedBuffer workspace_buffer;
  void* workspace;
  int64_t workspace_size;
  lw_executor executor = lw_executor_default();
  const lw_plan* made;
  const lw_inputs* inputs;
  const lw_const_tensor* lse;
  const lw_statistics* statistics;
  std::vector<int32_t> q_lengths = {5, 4};

  Call()
      : p(Case().batch(2).heads(4, 2).len(5, 9).dims(8, 6).causal().sinks({0, 1, 2, 3}).prepare()),
        plan(p.problem, targets().at(0)),
        to(place_statistics(p, Array({2, 4, 5, 1}), {})) {
    workspace_size = lw_plan_workspace_size(plan.get(), 2);
    workspace_buffer = GuardedBuffer(static_cast<size_t>(workspace_size), Edge::kEnd, 64);
    workspace = workspace_buffer.data();
    executor.threads = 2;
    p.inputs.q_lengths = q_lengths.data();
    made = plan.get();
    inputs = &p.inputs;
    lse = &to.lse;
    statistics = &to.statistics;
  }

  lw_status run() { return lw_run_statistics(made, inputs, lse, statistics, workspace, workspace_size, &executor); }
  bool untouched() const {
    return to.weights.untouched() && to.column_sums.untouched() && to.row_max.untouched() &&
           to.row_entropy.untouched() && workspace_buffer.untouched();
  }
};

const std::vector<Wrong<Call>> kWrong = {
    WRONG("plan", "null", c.made = nullptr),
    WRONG("inputs", "null", c.inputs = nullptr),
    WRONG("lse", "null", c.lse = nullptr),
    WRONG("statistics", "null", c.statistics = nullptr),
    WRONG("statistics.struct_size", "8", c.to.statistics.struct_size = 8),
    WRONG("accumulate", "2", c.to.statistics.accumulate = 2),
    WRONG("accumulate", "-1", c.to.statistics.accumulate = -1),
    {"statistics.reserved", "", [](Call& c) { c.to.statistics.reserved[0] = 1; }, LW_UNSUPPORTED},
    {"statistics.reserved", "", [](Call& c) { c.to.statistics.reserved_int = 1; }, LW_UNSUPPORTED},
    {"weights.reserved", "", [](Call& c) { c.to.statistics.weights.reserved[1] = 1; }, LW_UNSUPPORTED},
    {"lse.reserved", "", [](Call& c) { c.to.lse.reserved[1] = 1; }, LW_UNSUPPORTED},
    WRONG("asks for nothing", "null", c.to.statistics = lw_statistics_default()),
    WRONG("lse.data", "null", c.to.lse.data = nullptr),
    WRONG("lse.type", "3", c.to.lse.type = LW_TYPE_F16),
    WRONG("lse.data", "multiple of 4", c.to.lse.data = static_cast<const char*>(c.to.lse.data) + 2),
    WRONG("lse.stride[2]", "4611686018427387904", c.to.lse.stride[2] = int64_t{1} << 62),
    WRONG("weights.type", "2", c.to.statistics.weights.type = LW_TYPE_BF16),
    WRONG("column_sums.type", "0", c.to.statistics.column_sums.type = LW_TYPE_NONE),
    WRONG("row_max.type", "4", c.to.statistics.row_max.type = LW_TYPE_BOOL),
    WRONG("row_entropy.type", "99", c.to.statistics.row_entropy.type = 99),
    WRONG("weights.data", "multiple of 4",
          c.to.statistics.weights.data = static_cast<char*>(c.to.statistics.weights.data) + 1),
    WRONG("weights.stride[3]", "0", c.to.statistics.weights.stride[3] = 0),
    WRONG("weights.stride[2]", "8", c.to.statistics.weights.stride[2] = 8),
    WRONG("column_sums.stride[2]", "0", c.to.statistics.column_sums.stride[2] = 0),
    WRONG("column_sums.stride[1]", "3", c.to.statistics.column_sums.stride[1] = 3),
    WRONG("row_max.stride[0]", "0", c.to.statistics.row_max.stride[0] = 0),
    WRONG("row_entropy.stride[1]", "address space", c.to.statistics.row_entropy.stride[1] = INT64_MIN),
    WRONG("weights", "overlaps lse", c.to.statistics.weights.data = const_cast<void*>(c.to.lse.data)),
    WRONG("column_sums", "overlaps k", c.to.statistics.column_sums.data = const_cast<void*>(c.p.inputs.k.data)),
    WRONG("row_max", "overlaps q", c.to.statistics.row_max.data = const_cast<void*>(c.p.inputs.q.data)),
    WRONG("row_entropy", "overlaps row_max", c.to.statistics.row_entropy.data = c.to.statistics.row_max.data),
    WRONG("workspace", "overlaps row_max", c.to.statistics.row_max.data = static_cast<char*>(c.workspace) + 128),
    WRONG("workspace", "overlaps lse", c.to.lse.data = c.workspace),
    WRONG("q.data", "null", c.p.inputs.q.data = nullptr),
    WRONG("k.type", "2", c.p.inputs.k.type = LW_TYPE_BF16),
    WRONG("q_lengths[1]", "6", c.q_lengths[1] = 6),
    WRONG("batch", "3", c.p.inputs.batch = 3),
    WRONG("mask", "mask_type", c.p.inputs.mask.data = c.q_lengths.data()),
    WRONG("scale", "inf",
          (c.p.inputs.overrides = LW_OVERRIDE_SCALE, c.p.inputs.scale = std::numeric_limits<float>::infinity())),
    WRONG("workspace", "null", c.workspace = nullptr),
    WRONG("workspace_size", "63", c.workspace_size = 63),
    WRONG("workspace", "multiple of 64", c.workspace = static_cast<char*>(c.workspace) - 32),
    WRONG("executor.kind", "3", c.executor.kind = 3),
    WRONG("executor.parallel_for", "null", c.executor.kind = LW_EXECUTOR_CALLBACK),
};

TEST_CASE("wrong statistics calls are refused before the first write") { check_refused(kWrong); }

TEST_CASE("wrong parts are refused, and parts check all the rest") {
  Call call;
  const auto part = [&](int32_t ith, int32_t nth) {
    return lw_run_statistics_part(call.made, call.inputs, call.lse, call.statistics, call.workspace,
                                  call.workspace_size, ith, nth);
  };
  CHECK(std::string(part(0, 0).message) == "nth is 0; allowed is 1 or more");
  CHECK(std::string(part(-1, 2).message) == "ith is -1; allowed is 0 ... 1");
  CHECK(std::string(part(2, 2).message) == "ith is 2; allowed is 0 ... 1");
  CHECK(std::string(part(0, 1000).message).find("workspace_size is") == 0);  // it is for two
  call.lse = nullptr;
  CHECK(std::string(part(0, 2).message) == "lse is a null pointer");
  call.made = nullptr;
  CHECK(std::string(part(0, 2).message) == "plan is a null pointer");
  CHECK(call.untouched());
}

TEST_CASE("values, states and sinks may be missing, rows may be any") {
  Call call;
  call.p.inputs.v = lw_const_tensor();
  call.p.inputs.sinks = nullptr;
  call.to.statistics.row_begin = INT64_MIN;
  call.to.statistics.row_end = INT64_MIN;
  CHECK(std::string(call.run().message) == "");
  CHECK(call.to.weights.untouched());  // no row counts
  CHECK_FALSE(call.to.column_sums.untouched());
}

}  // namespace
}  // namespace lanewise::test
