// The numeric contract under every rule, bit for bit: kernel, chunk, thread count and what is hidden do not matter, and
// rules that say the same give the same.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "src/plan.hpp"
#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/rule_list.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// All panels by keys-in-lanes, up to its most rows, or all by rows-in-lanes.
Result run_by(Case c, const std::string& target, bool few) {
  Prepared p = c.prepare();
  const PreparedPlan plan(p.problem, target);
  REQUIRE(std::string(plan.status().message) == "");
  const_cast<lw_plan*>(plan.get())->kernels.few_rows = few ? kMaxFewRows : 0;
  return plan.run(p, {target});
}

TEST_CASE("both kernels give the same bits under every rule") {
  for (const NamedRule& rule : rule_list()) {
    for (const int storage : {0, 1, 2}) {
      Case c = Case().batch(2).heads(6, 2).len(5, 333).dims(24, 20);
      c.kv_lengths({333, 150});
      rule.add(c, 2, 6, 5, 333);
      if (storage == 1) c.paged(3);
      if (storage == 2) c.layouts(Layout::kBhld, Layout::kTransposed, Layout::kTransposed, Layout::kBhld);
      const Expectation expected(c);
      for_each_target([&](const std::string& target) {
        INFO(rule.name << " on " << target << ", storage " << storage);
        const Result rows = run_by(c, target, false);
        CHECK(expected.difference(rows) == "");
        CHECK(bit_difference(rows, run_by(c, target, true)) == "");
      });
    }
  }
}

TEST_CASE("prefill rows are decode rows, alone and in chunks, under every rule") {
  for (const NamedRule& rule : rule_list()) {
    Case whole = Case().heads(4, 2).len(50, 300).dims(16);
    rule.add(whole, 1, 4, 50, 300);
    const Expectation expected(whole);
    for_each_target([&](const std::string& target) {
      INFO(rule.name << " on " << target);
      const Result together = whole.run({target, 2});
      CHECK(expected.difference(together) == "");
      // Tiles of a block-sparse mask count queries from a call's first.
      const int64_t chunk = whole.rules().tiles ? 16 : 7, first = whole.rules().tiles ? 48 : 42;
      for (int64_t begin = 0; begin < 50; begin += begin < first ? chunk : 1) {
        if (whole.rules().tiles && begin > 48) break;
        const int64_t end = std::min<int64_t>(begin < first ? begin + chunk : begin + 1, 50);
        Case part = whole.query_part(begin, end);
        if (part.rules().tiles) part.rules().tiles = part.rules().tiles->slice(2, begin / 16, begin / 16 + 1);
        const Result rows = part.run({target});
        CHECK(bit_difference(together.out.slice(2, begin, end), rows.out) == "");
        CHECK(bit_difference(together.lse.slice(2, begin, end), rows.lse) == "");
      }
    });
  }
}

TEST_CASE("keys cut into pieces give the same bits under every rule") {
  for (const NamedRule& rule : rule_list()) {
    for (const int64_t q_len : {1, 12}) {
      Case c = Case().heads(2, 1).len(q_len, 9000).dims(8);
      rule.add(c, 1, 2, q_len, 9000);
      if (q_len == 1) c.with_state();
      const Expectation expected(c);
      for_each_target([&](const std::string& target) {
        INFO(rule.name << " on " << target);
        Prepared p = c.prepare();
        const PreparedPlan plan(p.problem, target);
        const Result alone = plan.run(p, {target, 1, Runner::kCaller});
        CHECK(expected.difference(alone) == "");
        for (const int32_t threads : {2, 7}) {
          const Result parts = plan.run(p, {target, threads, Runner::kPartsReversed});
          CHECK(parts.damage == "");
          CHECK(bit_difference(alone, parts) == "");
          CHECK(bit_difference(alone, plan.run(p, {target, threads, Runner::kCallback})) == "");
        }
      });
    }
  }
}

TEST_CASE("a state leaves the sink out, a continued run takes it once") {
  Case whole = Case().heads(2, 1).len(3, 4500).dims(8).sinks({1, 3});
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result all = whole.run({target});
    CHECK(expected.difference(all) == "");
    const Result prefix = whole.key_part(0, 4096).with_state().run({target});
    Case rest = whole.key_part(4096, 4500);
    rest.continue_from(prefix);
    CHECK(bit_difference(all, rest.run({target})) == "");
  });
}

TEST_CASE("a mask that says what a rule says gives the rule's bits") {
  const auto check = [](const char* name, Case by_rule, bool (*sees)(int64_t i, int64_t j)) {
    by_rule.heads(4, 2).len(70, 270).dims(24).q_offset(200);
    Case by_mask = by_rule;
    by_mask.causal(false).window(-1, -1).prefix(0);
    Array flags({1, 1, 70, 270}), bias({1, 1, 70, 270});
    flags.each([&](int64_t, int64_t, int64_t i, int64_t j, float& x) { x = sees(200 + i, j); });
    for (size_t n = 0; n < bias.values.size(); ++n) bias.values[n] = flags.values[n] != 0 ? 0.0f : -kInf;
    const Expectation expected(by_rule);
    for_each_target([&](const std::string& target) {
      INFO(name << " on " << target);
      const Result right = by_rule.run({target});
      CHECK(expected.difference(right) == "");
      for (const int32_t type : {LW_TYPE_BOOL, LW_TYPE_BITS})
        CHECK(bit_difference(right, Case(by_mask).mask(flags, type).run({target})) == "");
      CHECK(bit_difference(right, Case(by_mask).mask(flags, LW_TYPE_BOOL, Layout::kSpread).run({target})) == "");
      CHECK(bit_difference(right, Case(by_mask).bias(bias).run({target})) == "");
      CHECK(bit_difference(right, Case(by_mask).bias(bias, LW_TYPE_F16, Layout::kReversedLen).run({target})) == "");
    });
  };
  check("causal", Case().causal(), [](int64_t p, int64_t j) { return j <= p; });
  check("window", Case().window(13, 40), [](int64_t p, int64_t j) { return j >= p - 13 && j <= p + 40; });
  check("prefix", Case().causal().window(30, -1).prefix(9),
        [](int64_t p, int64_t j) { return j < 9 || (j <= p && j >= p - 30); });
}

TEST_CASE("positions given one by one are the positions of an offset") {
  Case by_offset = Case().batch(2).heads(2, 2).len(40, 300).dims(16).causal().window(50, -1).alibi({0.1f, 0.2f});
  by_offset.kv_lengths({300, 120});
  std::vector<int32_t> positions;
  for (const int32_t first : {260, 80}) {
    for (int32_t i = 0; i < 40; ++i) positions.push_back(first + i);
  }
  Case by_position = by_offset;
  by_position.q_positions(positions);
  by_position.check();
  for_each_target([&](const std::string& target) {
    CHECK(bit_difference(by_offset.run({target}), by_position.run({target})) == "");
    by_position.paged(5);
    CHECK(bit_difference(by_offset.run({target}), by_position.run({target})) == "");
    by_position.dense();
  });
}

TEST_CASE("a draft tree: siblings share a position, a mask of the last keys says who is whose ancestor") {
  // 100 tokens of context, then a tree of 7: 0; 1, 2 below 0; 3, 4 below 1; 5 below 2; 6 below 5.
  const int parent[] = {-1, 0, 0, 1, 1, 2, 5};
  const int32_t depth[] = {0, 1, 1, 2, 2, 2, 3};
  Array ancestors({1, 1, 7, 7});
  for (int i = 0; i < 7; ++i) {
    for (int a = i; a >= 0; a = parent[a]) ancestors.at(0, 0, i, a) = 1;
  }
  for (const bool paged : {false, true}) {
    Case tree = Case().heads(8, 2).len(7, 107).dims(32).alibi({1, .5f, .25f, .1f, 1, .5f, .25f, .1f}).softcap(20);
    std::vector<int32_t> positions;
    for (const int32_t d : depth) positions.push_back(100 + d);
    tree.tail_mask(ancestors, LW_TYPE_BITS).q_positions(positions);
    if (paged) tree.paged(16);
    const std::vector<Result> results = tree.check();
    // The same by a mask of all keys.
    Array all({1, 1, 7, 107}, 1.0f);
    ancestors.each([&](int64_t, int64_t, int64_t i, int64_t j, float x) { all.at(0, 0, i, 100 + j) = x; });
    Case whole_mask = tree;
    whole_mask.rules().mask_tail = 0;
    whole_mask.mask(all);
    for (const Result& result : results) CHECK(bit_difference(result, whole_mask.run({result.target})) == "");
  }
}

TEST_CASE("block-sparse masks: what is not listed is not touched, and the bits are those of a dense mask") {
  Array listed({2, 4, 5, 9});
  listed.each([](int64_t b, int64_t h, int64_t r, int64_t c, float& x) { x = (b + 2 * h + 3 * r + c) % 3 == 0; });
  Case sparse = Case().batch(2).heads(4, 2).len(75, 270).dims(16).causal().block_mask(16, 32, listed);
  sparse.kv_lengths({270, 200});
  Case dense = sparse;
  dense.rules().tiles.reset();
  Array flags({2, 4, 75, 270});
  flags.each([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) { x = listed.at(b, h, i / 16, j / 32); });
  dense.mask(flags);
  for (const Result& result : sparse.check()) CHECK(bit_difference(result, dense.run({result.target})) == "");
  sparse.paged(8).check();
}

TEST_CASE("whatever is hidden: keys, values, columns past the length, their content changes nothing") {
  Case c = Case().batch(2).heads(4, 2).len(30, 300).dims(16);
  c.kv_lengths({201, 300}).causal();
  Array flags({2, 1, 30, 300});
  flags.each(
      [](int64_t b, int64_t, int64_t i, int64_t j, float& x) { x = rnd(50, uint64_t((b * 30 + i) * 300 + j)) < 0.3f; });
  Array bias = random_array({2, 1, 30, 300}, 51);
  for (const int64_t q_len : {30, 2}) {
    Case part = c.query_part(30 - q_len, 30);
    part.mask(flags.slice(2, 30 - q_len, 30)).bias(bias.slice(2, 30 - q_len, 30));
    const std::vector<Result> clean = part.check();
    for (const float content : {kNan, kInf, -kInf, 1e38f, 0.0f}) {
      Case other = part;
      Array& biases = *other.rules().bias;
      Array& mask = *other.rules().mask;
      biases.each([&](int64_t b, int64_t, int64_t, int64_t j, float& x) {
        if (b == 0 && j >= 201) x = content;
      });
      mask.each([&](int64_t b, int64_t, int64_t, int64_t j, float& x) {
        if (b == 0 && j >= 201) x = content == 0;
      });
      for (const Result& result : clean) CHECK(bit_difference(result, other.run({result.target})) == "");
    }
    // Hidden from some rows, seen by others: each row takes its own.
    for (const float content : {kNan, kInf, -kInf}) {
      for (const bool in_values : {false, true}) {
        Case other = part;
        (in_values ? other.v() : other.k()).at(1, 1, 270, 3) = content;
        (in_values ? other.v() : other.k()).at(1, 0, 3, 5) = content;
        const Result right = canonical(other.prepare());
        for_each_target([&](const std::string& target) {
          if (!has_fma(target)) {
            CHECK(other.run({target}).damage == "");
            return;
          }
          const Result result = other.run({target});
          CHECK(bit_difference(right.out, result.out) == "");
          CHECK(bit_difference(right.lse, result.lse) == "");
        });
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
