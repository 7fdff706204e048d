// Every rule, alone and in pairs, on every storage and in both kernels: the canonical arithmetic bit for bit, and the
// reference within its bound.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/rule_list.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

const char* const kStorages[] = {"dense", "strided", "ragged", "paged"};

// `which` of kStorages.
void store(Case& c, size_t which) {
  if (which == 1) c.layouts(Layout::kBlhd, Layout::kTransposed, Layout::kSpread, Layout::kPaddedRows);
  if (which == 2) c.ragged_q().ragged_kv();
  if (which == 3) c.paged(7);
}

void check(const std::string& name, Case c) {
  INFO(name);
  const Expectation expected(c);
  const Result right = canonical(Case(c).dense().prepare());
  CHECK(expected.difference(right) == "");
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), 1e38f}) {
    Prepared p = c.prepare(poison == 1e38f ? Edge::kStart : Edge::kEnd, poison);
    for_each_target([&](const std::string& target) {
      Result result = run_prepared(
          p, {target, poison == 1e38f ? 7 : 1, poison == 1e38f ? Runner::kPartsReversed : Runner::kCaller});
      INFO(target << ", poison " << poison);
      CHECK(result.damage == "");
      CHECK(expected.difference(result) == "");
      if (has_fma(target)) CHECK(bit_difference(right, result) == "");
    });
  }
}

TEST_CASE("each rule follows the canonical arithmetic on each storage, in both kernels") {
  for (const NamedRule& rule : rule_list()) {
    for (size_t storage = 0; storage < 4; ++storage) {
      for (const int64_t q_len : {2, 60}) {
        Case c = Case().batch(2).heads(4, 2).len(q_len, 300).dims(9, 7);
        c.kv_lengths({300, 211});
        if (q_len > 2) c.q_lengths({60, 33});
        rule.add(c, 2, 4, q_len, 300);
        store(c, storage);
        check(std::string(rule.name) + ", " + kStorages[storage] + ", " + std::to_string(q_len), c);
      }
    }
  }
}

TEST_CASE("pairs of rules follow the canonical arithmetic") {
  size_t n = 0;
  for (size_t a = 0; a < rule_list().size(); ++a) {
    for (size_t b = a + 1; b < rule_list().size(); ++b, ++n) {
      for (const int64_t q_len : {2, 50}) {
        Case c = Case().batch(2).heads(4, 2).len(q_len, 290).dims(8);
        c.kv_lengths({290, 130});
        rule_list()[a].add(c, 2, 4, q_len, 290);
        rule_list()[b].add(c, 2, 4, q_len, 290);
        const size_t storage = (n + (q_len > 2)) % 4;
        store(c, storage);
        const int32_t types[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};
        c.types(types[n % 3], types[(n + a) % 3], LW_TYPE_F32);
        check(std::string(rule_list()[a].name) + " and " + rule_list()[b].name + ", " + kStorages[storage] + ", " +
                  std::to_string(q_len),
              c);
      }
    }
  }
}

// The same rules on pairs of bf16: keys that complete a pair, at odd starts too, count for nothing.
TEST_CASE("native_bf16 under each rule: within its bound, and a decode row is a prefill row") {
  for (const NamedRule& rule : rule_list()) {
    for (size_t storage = 0; storage < 4; ++storage) {
      Case c = Case().batch(2).heads(4, 2).len(50, 300).dims(9, 7).native_bf16();
      c.kv_lengths({300, 211}).kv_starts({255, 0});
      rule.add(c, 2, 4, 50, 300);
      store(c, storage);
      INFO(rule.name << ", " << kStorages[storage]);
      const std::vector<Result> whole = c.check();
      for (const Result& expected : whole) {
        for (const int64_t i : {0, 23, 49}) {
          if (std::string(rule.name) == "block mask") continue;  // its rows are tiles of the whole
          Case row = c.query_part(i, i + 1);
          const Result step = row.run({expected.target});
          INFO(expected.target << ", row " << i);
          REQUIRE(std::string(step.status.message) == "");
          CHECK(bit_difference(expected.out.slice(2, i, i + 1), step.out) == "");
          CHECK(bit_difference(expected.lse.slice(2, i, i + 1), step.lse) == "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
