// Statistics of attention weights where the answer is known without a reference, and at the edges: one key, rows that see
// nothing, NaN, empty sequences and ranges, memory that must not matter.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/statistics.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("equal scores weigh the same: 1 / n, entropy ln n, columns rows / n") {
  Case c = Case().heads(1, 1).len(40, 1000).dims(4);
  c.q().fill(0);
  for_each_target([&](const std::string& target) {
    const Statistics s = run_with_statistics(c, {}, {target});
    for (const float weight : s.weights.values) CHECK(std::fabs(weight * 1000 - 1) < 3e-6);
    for (const float max : s.row_max.values) CHECK(max == s.weights.values[0]);
    for (const float entropy : s.row_entropy.values) CHECK(std::fabs(entropy - 6.907755f) < 3e-5);
    for (const float sum : s.column_sums.values) CHECK(std::fabs(sum - 0.04f) < 2e-7);
  });
}

TEST_CASE("one visible key weighs 1, never more, and has no entropy") {
  for (const float score : {-300.0f, -1.7f, 0.0f, 0.3f, 77.7f, 1e6f}) {
    Case c = scores_case({score}, {1});
    for_each_target([&](const std::string& target) {
      const Statistics s = run_with_statistics(c, {}, {target});
      const float off = 2e-7f * std::max(1.0f, std::fabs(score));
      INFO(score << " on " << target);
      CHECK(s.row_max.values[0] <= 1);
      CHECK(s.row_max.values[0] >= 1 - off);
      CHECK(s.row_entropy.values[0] >= 0);
      CHECK(s.row_entropy.values[0] <= off);
      CHECK(s.column_sums.values[0] == s.row_max.values[0]);
    });
  }
}

TEST_CASE("rows that see nothing weigh nothing, whatever their scores are") {
  Case c = Case().heads(2, 2).len(30, 40).dims(8).causal().q_offset(-5);
  c.q().at(0, 1, 3, 2) = kNan;
  check_statistics("rows without keys", c, {});
  // -inf scores: seen, without weight.
  Case infinite = scores_case({-kInf, -kInf, -kInf}, {1, 1, 1});
  check_statistics("-inf scores", infinite, {});
  // An lse of -inf counts as nothing visible, an lse of +inf leaves nothing.
  Case any = Case().heads(1, 1).len(2, 300).dims(8);
  any.q().at(0, 0, 1, 0) = kNan;
  for_each_target([&](const std::string& target) {
    Prepared p = any.prepare();
    const PreparedPlan plan(p.problem, target);
    Array lse({1, 1, 2, 1}, -kInf);
    const Statistics none = run_statistics(plan, p, lse, {}, {target});
    for (const Array* array : {&none.weights, &none.column_sums, &none.row_max, &none.row_entropy}) {
      for (const float x : array->values) CHECK((x == 0 && !std::signbit(x)));
    }
    lse.at(0, 0, 0) = kInf;
    CHECK(run_statistics(plan, p, lse, {}, {target}).row_max.at(0, 0, 0) == 0);
  });
}

TEST_CASE("NaN stays with its row, and with the columns that the row sees") {
  for (const bool by_bits : {false, true}) {
    Case c = Case().heads(2, 1).len(70, 90).dims(8).causal();
    c.q().at(0, 1, 50, 3) = kNan;
    if (by_bits) c.softcap(3);
    check_statistics("NaN in q", c, {});
    for_each_target([&](const std::string& target) {
      const Statistics s = run_with_statistics(c, {}, {target});
      INFO(target);
      s.weights.each([&](int64_t, int64_t h, int64_t i, int64_t j, float weight) {
        const bool poisoned = h == 1 && i == 50 && j <= 70;
        if (std::isnan(weight) != poisoned) FAIL("weight of row " << i << ", key " << j << " is " << weight);
      });
      s.column_sums.each([&](int64_t, int64_t h, int64_t j, int64_t, float sum) {
        if (std::isnan(sum) != (h == 1 && j <= 70)) FAIL("column " << j << " is " << sum);
      });
      s.row_max.each([&](int64_t, int64_t h, int64_t i, int64_t, float max) {
        if (std::isnan(max) != (h == 1 && i == 50)) FAIL("row_max of row " << i << " is " << max);
      });
    });
  }
}

TEST_CASE("hidden keys, padding and rows out of the range hold anything") {
  Case c = Case().batch(2).heads(4, 2).len(30, 300).dims(16).causal().kv_lengths({201, 300}).q_lengths({30, 20});
  Array flags({2, 1, 30, 300});
  flags.each(
      [](int64_t b, int64_t, int64_t i, int64_t j, float& x) { x = rnd(50, uint64_t((b * 30 + i) * 300 + j)) < 0.3f; });
  for (const bool masked : {false, true}) {
    if (masked) c.mask(flags);
    for_each_target([&](const std::string& target) {
      std::vector<Statistics> results;
      for (const float poison : {0.0f, kNan, kInf, -kInf, 1e38f}) {
        Prepared p = c.prepare(Edge::kStart, poison);
        const PreparedPlan plan(p.problem, target);
        const Result run = plan.run(p, {target});
        results.push_back(run_statistics(plan, p, run.lse, {}, {target, 2}));
        INFO(target << ", poison " << poison);
        CHECK(results.back().damage == "");
        CHECK(bit_difference(results.front(), results.back()) == "");
      }
    });
  }
}

TEST_CASE("empty sequences, ranges and calls") {
  Case c = Case().batch(4).heads(2, 1).len(6, 300).dims(8).causal();
  c.q_lengths({6, 0, 3, 6}).kv_lengths({0, 300, 40, 7});
  for (size_t storage = 0; storage < 4; ++storage) {
    Case stored = c;
    StatisticsRequest request = store_with_statistics(stored, storage);
    check_statistics("empty sequences", stored, request);
    request.row_begin = 4;
    request.row_end = 2;
    check_statistics("an empty range", stored, request);
    request.row_begin = -2;
    request.row_end = -1;
    check_statistics("from the end", stored, request);
    request.row_begin = -1000;
    request.row_end = 1000;
    check_statistics("beyond both ends", stored, request);
  }
  for_each_target([&](const std::string& target) {
    for (Case empty : {Case().batch(0).len(4, 4), Case().len(0, 300), Case().len(3, 0)}) {
      const Statistics s = run_with_statistics(empty.heads(2, 2).dims(8), {}, {target});
      CHECK(std::string(s.status.message) == "");
      CHECK(s.damage == "");
      for (const float x : s.column_sums.values) CHECK(x == 0);
      for (const float x : s.row_entropy.values) CHECK(x == 0);
    }
  });
}

}  // namespace
}  // namespace lanewise::test
