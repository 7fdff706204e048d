// Statistics of attention weights: every rule on every storage against the scalar code of docs/NUMERICS.md, bit for
// bit, and against the reference within its bound; what the bits do not depend on. Edges: test_statistics_edges.cpp.
#include "support/statistics.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rule_list.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("each rule on each storage") {
  for (const NamedRule& rule : rule_list()) {
    for (size_t storage = 0; storage < 4; ++storage) {
      for (const int64_t q_len : {2, 60}) {
        Case c = Case().batch(2).heads(4, 2).len(q_len, 300).dims(9, 7);
        c.kv_lengths({300, 211});
        if (q_len > 2) c.q_lengths({60, 33});
        rule.add(c, 2, 4, q_len, 300);
        StatisticsRequest request = store_with_statistics(c, storage);
        if (storage != 0) request.row_begin = -30;
        check_statistics(std::string(rule.name) + ", " + kStatisticsStorages[storage] + ", " + std::to_string(q_len), c,
                         request);
      }
    }
  }
}

TEST_CASE("pairs of rules, on storages and types in turn") {
  size_t n = 0;
  for (size_t a = 0; a < rule_list().size(); ++a) {
    for (size_t b = a + 1; b < rule_list().size(); ++b, ++n) {
      Case c = Case().batch(2).heads(4, 2).len(50, 290).dims(8);
      c.kv_lengths({290, 130});
      rule_list()[a].add(c, 2, 4, 50, 290);
      rule_list()[b].add(c, 2, 4, 50, 290);
      const StatisticsRequest request = store_with_statistics(c, n % 4);
      const int32_t types[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};
      c.types(types[n % 3], types[(n + a) % 3], LW_TYPE_F32);
      check_statistics(
          std::string(rule_list()[a].name) + " and " + rule_list()[b].name + ", " + kStatisticsStorages[n % 4], c,
          request);
    }
  }
}

// Several panels of rows, several tasks of keys, blocks that begin within the keys.
Case long_case() {
  Case c = Case().batch(2).heads(3, 1).len(230, 1500).dims(12);
  return c.causal().kv_lengths({1500, 1100}).kv_starts({0, 300}).q_lengths({230, 199});
}

TEST_CASE("several panels and key ranges: any threads and executor, any wanted outputs") {
  const Case c = long_case();
  StatisticsRequest all;
  check_statistics("long", c, all);
  for_each_target([&](const std::string& target) {
    const Statistics right = run_with_statistics(c, all, {target, 1, Runner::kCaller});
    for (const int32_t threads : {1, 2, 7}) {
      for (const Runner runner : {Runner::kOpenmp, Runner::kCallback, Runner::kPartsReversed}) {
        for (int wanted = 1; wanted < 16; ++wanted) {
          StatisticsRequest some;
          some.weights = wanted & 1;
          some.column_sums = wanted & 2;
          some.row_max = wanted & 4;
          some.row_entropy = wanted & 8;
          Statistics result = run_with_statistics(c, some, {target, threads, runner});
          INFO(target << ", " << threads << " threads, runner " << static_cast<int>(runner) << ", outputs " << wanted);
          CHECK(result.damage == "");
          if (!some.weights) result.weights = right.weights;
          if (!some.column_sums) result.column_sums = right.column_sums;
          if (!some.row_max) result.row_max = right.row_max;
          if (!some.row_entropy) result.row_entropy = right.row_entropy;
          CHECK(bit_difference(right, result) == "");
        }
      }
    }
  });
}

TEST_CASE("rows in several calls are rows in one; column sums go on from one call to the next") {
  const Case c = long_case();
  for_each_target([&](const std::string& target) {
    const Statistics whole = run_with_statistics(c, {}, {target});
    Statistics joined;
    Array sums({2, 3, 1500, 1});
    for (const int64_t begin : {0, 1, 100, 117}) {
      StatisticsRequest part;
      part.row_begin = begin;
      part.row_end = begin == 0 ? 1 : begin == 1 ? 100 : begin == 100 ? 117 : LW_TO_END;
      part.columns_before = &sums;
      const Statistics rows = run_with_statistics(c, part, {target, 2});
      REQUIRE(std::string(rows.status.message) == "");
      CHECK(rows.damage == "");
      sums = rows.column_sums;
      if (begin == 0) {
        joined = rows;
      } else {  // rows out of the range are zeros in each
        for (size_t n = 0; n < joined.weights.values.size(); ++n) joined.weights.values[n] += rows.weights.values[n];
        for (size_t n = 0; n < joined.row_max.values.size(); ++n) {
          joined.row_max.values[n] += rows.row_max.values[n];
          joined.row_entropy.values[n] += rows.row_entropy.values[n];
        }
      }
      joined.column_sums = sums;
    }
    INFO(target);
    CHECK(bit_difference(whole, joined) == "");
  });
}

TEST_CASE("a prefill in chunks with column sums that go on is a prefill in one call") {
  Case whole = Case().heads(4, 2).len(90, 300).dims(16).causal();
  for_each_target([&](const std::string& target) {
    const Statistics right = run_with_statistics(whole, {}, {target});
    Array sums({1, 4, 300, 1});
    for (int64_t begin = 0; begin < 90; begin += begin < 60 ? 30 : 1) {
      StatisticsRequest next;
      next.columns_before = &sums;
      const int64_t end = begin < 60 ? begin + 30 : begin + 1;
      const Statistics chunk = run_with_statistics(whole.query_part(begin, end), next, {target});
      INFO(target << ", from " << begin);
      CHECK(bit_difference(right.weights.slice(2, begin, end), chunk.weights) == "");
      CHECK(bit_difference(right.row_max.slice(2, begin, end), chunk.row_max) == "");
      CHECK(bit_difference(right.row_entropy.slice(2, begin, end), chunk.row_entropy) == "");
      sums = chunk.column_sums;
    }
    CHECK(bit_difference(right.column_sums, sums) == "");
  });
}

TEST_CASE("sequences and heads alone have the statistics they have together") {
  Case c = long_case();
  for_each_target([&](const std::string& target) {
    const Statistics together = run_with_statistics(c, {}, {target, 2});
    for (int64_t b = 0; b < 2; ++b) {
      const Statistics alone = run_with_statistics(c.batch_part(b), {}, {target});
      INFO(target << ", sequence " << b);
      CHECK(bit_difference(together.weights.slice(0, b, b + 1), alone.weights) == "");
      CHECK(bit_difference(together.column_sums.slice(0, b, b + 1), alone.column_sums) == "");
      CHECK(bit_difference(together.row_entropy.slice(0, b, b + 1), alone.row_entropy) == "");
    }
    // The heads of a group against one head with the same keys.
    Case one = Case(c).heads(1, 1);
    one.q() = c.q().slice(1, 2, 3);
    one.k() = c.k();
    one.v() = c.v();
    const Statistics alone = run_with_statistics(one, {}, {target});
    CHECK(bit_difference(together.weights.slice(1, 2, 3), alone.weights) == "");
    CHECK(bit_difference(together.column_sums.slice(1, 2, 3), alone.column_sums) == "");
    CHECK(bit_difference(together.row_max.slice(1, 2, 3), alone.row_max) == "");
  });
}

TEST_CASE("all targets with FMA give the same bits on long rows") {
  const Case c = long_case();
  std::vector<Statistics> results;
  for_each_target([&](const std::string& target) {
    if (has_fma(target)) results.push_back(run_with_statistics(c, {}, {target, 2}));
    count_case(target);
  });
  for (size_t n = 1; n < results.size(); ++n) {
    INFO(results[0].target << " and " << results[n].target);
    CHECK(bit_difference(results[0], results[n]) == "");
  }
}

TEST_CASE("the parts of a continued run weigh their keys by the lse of the whole") {
  Case whole = Case().heads(2, 1).len(5, 4500).dims(8).causal().sinks({1, 3});
  Case first = whole.key_part(0, 4096), second = whole.key_part(4096, 4500);
  first.sinks({});
  const Expectation expected(whole);
  StatisticsRequest request;
  for_each_target([&](const std::string& target) {
    const Statistics all = run_with_statistics(whole, request, {target});
    CHECK(reference_difference(whole, expected, request, all) == "");
    const Result state = Case(first).with_state().run({target});
    Case rest = second;
    rest.continue_from(state);
    Prepared p = rest.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result last = plan.run(p, {target});
    const Statistics of_rest = run_statistics(plan, p, last.lse, request, {target});
    CHECK(reference_difference(second, expected, request, of_rest) == "");
    CHECK(bit_difference(all.weights.slice(3, 4096, 4500), of_rest.weights) == "");
    CHECK(bit_difference(all.column_sums.slice(2, 4096, 4500), of_rest.column_sums) == "");
    Prepared q = first.prepare();
    const PreparedPlan first_plan(q.problem, target);
    const Statistics of_first = run_statistics(first_plan, q, last.lse, request, {target});
    CHECK(bit_difference(all.weights.slice(3, 0, 4096), of_first.weights) == "");
    CHECK(bit_difference(all.column_sums.slice(2, 0, 4096), of_first.column_sums) == "");
  });
}

TEST_CASE("native_bf16 plans weigh in canonical arithmetic, by the lse they are given") {
  Case native = Case().batch(2).heads(4, 2).len(70, 300).dims(24).causal().native_bf16();
  Case canonical_plan =
      Case().batch(2).heads(4, 2).len(70, 300).dims(24).causal().types(LW_TYPE_BF16, LW_TYPE_BF16, LW_TYPE_F32);
  const Expectation expected(native);
  for_each_target_of(native, [&](const std::string& target) {
    Prepared p = native.prepare(), q = canonical_plan.prepare();
    const PreparedPlan plan(p.problem, target), other(q.problem, target);
    const Result run = plan.run(p, {target});
    REQUIRE(std::string(run.status.message) == "");
    const Statistics statistics = run_statistics(plan, p, run.lse, {}, {target, 2});
    CHECK(reference_difference(native, expected, {}, statistics) == "");
    CHECK(bit_difference(statistics, run_statistics(other, q, run.lse, {}, {target})) == "");
  });
}

TEST_CASE("a workspace for fewer threads is enough, a plan larger than the call too") {
  Case c = long_case();
  for_each_target([&](const std::string& target) {
    const Statistics right = run_with_statistics(c, {}, {target});
    Case larger = c;
    larger.capacity(5, 300, 2000);
    CHECK(bit_difference(right, run_with_statistics(larger, {}, {target, 2})) == "");
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result run = plan.run(p, {target});
    StatisticsBuffers to = place_statistics(p, run.lse, {});
    const int64_t size = lw_plan_workspace_size(plan.get(), 1);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    lw_executor executor = lw_executor_default();
    executor.threads = 4;
    CHECK(lw_run_statistics(plan.get(), &p.inputs, &to.lse, &to.statistics, workspace.data(), size, &executor).code ==
          LW_OK);
    CHECK(workspace.canaries_intact());
  });
}

TEST_CASE("should_stop ends the call between tasks") {
  Case c = long_case();
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result run = plan.run(p, {target});
    StatisticsBuffers to = place_statistics(p, run.lse, {});
    const int64_t size = lw_plan_workspace_size(plan.get(), 2);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    const volatile int32_t stop = 1;
    lw_executor executor = lw_executor_default();
    executor.threads = 2;
    executor.should_stop = &stop;
    CHECK(lw_run_statistics(plan.get(), &p.inputs, &to.lse, &to.statistics, workspace.data(), size, &executor).code ==
          LW_STOPPED);
    CHECK(to.column_sums.untouched());
  });
}

}  // namespace
}  // namespace lanewise::test
