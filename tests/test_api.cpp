// The interface used rightly: plans, executors, the C++ wrapper, empty and degenerate sizes, explanations.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

Case ordinary() { return Case().batch(2).heads(4, 2).len(20, 90).dims(24, 16).causal(); }

TEST_CASE("the C++ wrapper: plan, run, parts, attend, explain") {
  Case c = ordinary();
  const Expectation expected(c);
  const Result wanted = c.run({targets().at(0)});
  CHECK(expected.difference(wanted) == "");
  Prepared p = c.prepare();
  const auto given = [&](const Status& status) {
    Result result = wanted;
    INFO(status.message());
    REQUIRE(status);
    REQUIRE(status.ok());
    REQUIRE(status.code() == LW_OK);
    std::memcpy(result.out.values.data(), p.out.data(), p.out.size());
    std::memcpy(result.lse.values.data(), p.lse.data(), p.lse.size());
    reset_outputs(p);
    return bit_difference(wanted, result);
  };
  Plan plan;
  CHECK_FALSE(static_cast<bool>(plan));
  REQUIRE(Plan::make(p.problem, plan));
  REQUIRE(static_cast<bool>(plan));
  Plan moved = std::move(plan);
  CHECK_FALSE(static_cast<bool>(plan));
  const int64_t size = moved.workspace_size(3);
  GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
  CHECK(given(moved.run(p.inputs, p.outputs, workspace.data(), size)) == "");
  CHECK(given(moved.run(p.inputs, p.outputs, workspace.data(), size, Executor::caller())) == "");
  CHECK(given(moved.run(p.inputs, p.outputs, workspace.data(), size, Executor::openmp(3))) == "");
  for (int32_t phase = 0; phase < moved.phases(); ++phase) {
    CHECK(moved.run_part(p.inputs, p.outputs, workspace.data(), size, phase, 1, 2));
    CHECK(moved.run_part(p.inputs, p.outputs, workspace.data(), size, phase, 0, 2));
  }
  CHECK(given(Status()) == "");
  CHECK(given(attend(p.problem, p.inputs, p.outputs)) == "");
  CHECK(given(lw_attend(&p.problem, &p.inputs, &p.outputs, nullptr)) == "");
  CHECK(moved.explain(1).target == std::string(targets().at(0)));
  Problem wrong;
  wrong.qk_dim = -3;
  const Status status = Plan::make(wrong, moved);
  CHECK_FALSE(status);
  CHECK(status.code() == LW_INVALID_ARGUMENT);
  CHECK(std::string(status.message()).find("qk_dim") != std::string::npos);
  CHECK_FALSE(static_cast<bool>(moved));  // a failed make leaves no plan
}

TEST_CASE("T11: each supported target can be chosen, in any case, and says so") {
  Case c = ordinary();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    std::string lower = target;
    for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, lower);
    REQUIRE(std::string(plan.status().message) == "");
    lw_explanation explanation = {};
    explanation.struct_size = sizeof explanation;
    REQUIRE(lw_plan_explain(plan.get(), 2, &explanation).code == LW_OK);
    CHECK(explanation.target == target);
    CHECK(explanation.arithmetic == std::string("canonical"));
    CHECK(explanation.kernel != nullptr);
    CHECK(explanation.note != nullptr);
    CHECK(explanation.lanes > 0);
    CHECK(explanation.tile_rows >= explanation.lanes);
    CHECK(explanation.tile_keys > 0);
    CHECK(explanation.phases == lw_plan_phases(plan.get()));
    CHECK(explanation.tasks > 0);
    CHECK(explanation.workspace == lw_plan_workspace_size(plan.get(), 2));
    CHECK(expected.difference(plan.run(p, {target})) == "");
  });
}

TEST_CASE("the default target is the best supported one") {
  lw_problem problem = lw_problem_default();
  problem.qk_dim = problem.v_dim = 8;
  Plan plan;
  REQUIRE(Plan::make(problem, plan));
  for (int32_t n = 0; n < lw_target_count(); ++n) {
    if (!lw_target_supported(n)) continue;
    CHECK(plan.explain(1).target == std::string(lw_target_name(n)));
    break;
  }
  CHECK(lw_version() == LW_VERSION_MAJOR * 10000 + LW_VERSION_MINOR * 100 + LW_VERSION_PATCH);
}

TEST_CASE("workspace: monotone in threads, 0 where there is nothing to do, enough for fewer threads") {
  Case c = ordinary();
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result wanted = plan.run(p, {target});
    for (int32_t threads = 0; threads < 20; ++threads) {
      CHECK(lw_plan_workspace_size(plan.get(), threads) <= lw_plan_workspace_size(plan.get(), threads + 1));
    }
    CHECK(lw_plan_workspace_size(plan.get(), 0) == lw_plan_workspace_size(plan.get(), 1));
    CHECK(lw_plan_workspace_size(plan.get(), INT32_MIN) == lw_plan_workspace_size(plan.get(), 1));
    CHECK(lw_plan_workspace_size(plan.get(), INT32_MAX) > 0);
    // Workspace for one thread, sixteen asked for: fewer are used.
    const int64_t size = lw_plan_workspace_size(plan.get(), 1);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    const lw_executor executor = Executor::openmp(16);
    reset_outputs(p);
    REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
    CHECK(workspace.canaries_intact());
    CHECK(std::memcmp(p.out.data(), wanted.out.values.data(), p.out.size()) == 0);
  });
}

TEST_CASE("O01: empty sizes succeed and write nothing") {
  const std::vector<Case> empty = {
      Case().batch(0).heads(2, 1).len(4, 5).dims(8),
      Case().batch(7).heads(9, 9).len(0, 0).dims(7).causal(),
      Case().batch(2).heads(2, 1).len(0, 5).dims(8),
      Case().batch(2).heads(2, 1).len(3, 5).dims(8).q_lengths({0, 0}),
  };
  for (Case c : empty) {
    for_each_target([&](const std::string& target) {
      for (const Runner runner : {Runner::kCaller, Runner::kOpenmp, Runner::kCallback, Runner::kPartsReversed}) {
        Prepared p = c.prepare();
        const Result result = run_prepared(p, {target, 3, runner});
        CHECK(std::string(result.status.message) == "");
        CHECK(result.damage == "");
        CHECK(outputs_untouched(p));
      }
    });
  }
}

TEST_CASE("O01: no keys give zeros and -inf") {
  Case c = Case().batch(2).heads(2, 1).len(5, 0).dims(8, 3);
  for (const Result& result : c.check()) {
    for (const float value : result.out.values) CHECK((value == 0 && !std::signbit(value)));
    for (const float value : result.lse.values) CHECK(value == -std::numeric_limits<float>::infinity());
  }
}

TEST_CASE("a plan serves any sizes up to its capacity, and 0") {
  Case c = ordinary();
  for_each_target([&](const std::string& target) {
    for (const auto& [batch, q_len, kv_len] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {2, 20, 90}, {1, 0, 3}, {0, 5, 5}, {2, 3, 0}}) {
      Case part = Case().batch(batch).heads(4, 2).len(q_len, kv_len).dims(24, 16).causal().capacity(3, 30, 100);
      const Result result = part.run({target, 2});
      CHECK(result.damage == "");
      CHECK(Expectation(part).difference(result) == "");
    }
  });
}

TEST_CASE("rules given for one run go before the plan's") {
  for_each_target([&](const std::string& target) {
    Prepared p = ordinary().prepare();
    Case other = ordinary().scale(-0.3f).q_offset(5);
    const Result wanted = other.run({target});
    CHECK(Expectation(other).difference(wanted) == "");
    p.inputs.overrides = LW_OVERRIDE_SCALE | LW_OVERRIDE_Q_OFFSET;
    p.inputs.scale = -0.3f;
    p.inputs.q_offset = 5;
    CHECK(bit_difference(run_prepared(p, {target}), wanted) == "");
  });
}

TEST_CASE("should_stop ends a run between tasks") {
  Case c = ordinary();
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const int64_t size = lw_plan_workspace_size(plan.get(), 2);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    int32_t stop = 1;
    for (lw_executor executor : {Executor::caller(), Executor::openmp(2)}) {
      executor.should_stop = &stop;
      stop = 1;
      CHECK(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_STOPPED);
      CHECK(outputs_untouched(p));
      stop = 0;
      CHECK(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
      reset_outputs(p);
    }
    count_case(target);
  });
}

TEST_CASE("trusted checks skip the arrays, not the pointers") {
  Case c = ordinary().q_lengths({20, 3}).kv_lengths({90, 40});
  for_each_target([&](const std::string& target) {
    const Result wanted = c.run({target});
    Prepared p = c.prepare();
    p.inputs.checks = LW_CHECKS_TRUSTED;
    CHECK(bit_difference(run_prepared(p, {target}), wanted) == "");
    p.inputs.k.data = nullptr;
    CHECK(run_prepared(p, {target}).status.code == LW_INVALID_ARGUMENT);
  });
}

TEST_CASE("structs of a newer caller are accepted while what they add is zero") {
  struct Newer {
    lw_problem problem;
    int64_t more[4];
  } newer = {ordinary().prepare().problem, {0, 0, 0, 0}};
  newer.problem.struct_size = sizeof newer;
  lw_plan* plan = nullptr;
  CHECK(lw_plan_make(&newer.problem, nullptr, &plan).code == LW_OK);
  lw_plan_free(plan);
  newer.more[2] = 1;
  CHECK(lw_plan_make(&newer.problem, nullptr, &plan).code == LW_UNSUPPORTED);
  CHECK(plan == nullptr);
}

}  // namespace
}  // namespace lanewise::test
