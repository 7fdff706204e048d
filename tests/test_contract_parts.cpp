// The numeric contract, bit for bit: a row's result does not depend on which rows, heads, sequences and keys are
// computed with it, nor on where its inputs lie in memory.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// Results of parts of a case, joined along an axis, hold the bits of the whole.
void check_joined(const Result& whole, int axis, const std::vector<Result>& parts) {
  std::vector<Array> out, lse;
  for (const Result& part : parts) {
    REQUIRE(std::string(part.status.message) == "");
    out.push_back(part.out);
    lse.push_back(part.lse);
  }
  CHECK(bit_difference(concatenate(axis, out), whole.out) == "");
  CHECK(bit_difference(concatenate(axis, lse), whole.lse) == "");
}

TEST_CASE("a batch of five is five single calls") {
  Case whole = Case().batch(5).heads(4, 2).len(19, 330).dims(64, 40).causal();
  whole.kv_lengths({330, 1, 256, 257, 19}).q_lengths({19, 19, 19, 19, 19});
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result together = whole.run({target, 2});
    CHECK(expected.difference(together) == "");
    std::vector<Result> singles;
    for (int64_t b = 0; b < 5; ++b) singles.push_back(whole.batch_part(b).run({target}));
    check_joined(together, 0, singles);
  });
}

TEST_CASE("prefill in chunks of seven, and row by row, is one prefill") {
  for (const int64_t chunk : {1, 7}) {
    Case whole = Case().heads(6, 2).len(50, 300).dims(64).causal();
    const Expectation expected(whole);
    for_each_target([&](const std::string& target) {
      const Result together = whole.run({target, 2});
      CHECK(expected.difference(together) == "");
      std::vector<Result> chunks;
      for (int64_t begin = 0; begin < 50; begin += chunk) {
        const int64_t end = std::min<int64_t>(begin + chunk, 50);
        // A chunk knows the keys up to its last query, as in a cache that grows.
        chunks.push_back(whole.query_part(begin, end).key_part(0, 250 + end).run({target}));
      }
      check_joined(together, 2, chunks);
    });
  }
}

TEST_CASE("keys after a row's reach, whole tiles and blocks of them, change nothing") {
  Case longer = Case().heads(2, 1).len(20, 1200).dims(32).causal().q_offset(100);
  Case shorter = longer.key_part(0, 120);
  const Expectation expected(longer);
  for_each_target([&](const std::string& target) {
    CHECK(expected.difference(longer.run({target})) == "");
    CHECK(bit_difference(longer.run({target}), shorter.run({target})) == "");
  });
}

TEST_CASE("heads alone are heads together, grouped or repeated") {
  Case whole = Case().batch(2).heads(12, 3).len(33, 290).dims(64).causal();
  Case repeated = Case().batch(2).heads(12, 12).len(33, 290).dims(64).causal();
  repeated.q() = whole.q();
  repeated.k().each([&](int64_t b, int64_t h, int64_t j, int64_t x, float& e) { e = whole.k().at(b, h / 4, j, x); });
  repeated.v().each([&](int64_t b, int64_t h, int64_t j, int64_t x, float& e) { e = whole.v().at(b, h / 4, j, x); });
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result together = whole.run({target, 2});
    CHECK(expected.difference(together) == "");
    std::vector<Result> alone;
    for (int64_t h = 0; h < 3; ++h) alone.push_back(whole.head_part(h).run({target}));
    check_joined(together, 1, alone);
    CHECK(bit_difference(together, repeated.run({target})) == "");
  });
}

TEST_CASE("a prefix and its continuation are one run") {
  for (const bool causal : {false, true}) {
    Case whole = Case().batch(2).heads(4, 2).len(9, 8700).dims(24, 16).causal(causal).with_state();
    // Parts of the keys in turn, each from the state of the one before.
    const std::vector<std::vector<int64_t>> cuts = {{0, 4096, 8700}, {0, 8192, 8700}, {0, 4096, 8192, 8700}};
    const Expectation expected(whole);
    for_each_target([&](const std::string& target) {
      const Result together = whole.run({target, 2});
      CHECK(expected.difference(together) == "");
      for (const std::vector<int64_t>& cut : cuts) {
        Result state = whole.key_part(cut[0], cut[1]).run({target});
        for (size_t n = 1; n + 1 < cut.size(); ++n) {
          Case rest = whole.key_part(cut[n], cut[n + 1]);
          state = rest.continue_from(state).run({target});
        }
        CHECK(bit_difference(together, state) == "");
      }
    });
  }
}

TEST_CASE("continuing with no more keys, or from a state of no keys, changes nothing") {
  Case whole = Case().heads(2, 1).len(5, 4096).dims(8).with_state();
  Case empty = Case().heads(2, 1).len(5, 0).dims(8).with_state();
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result result = whole.run({target});
    CHECK(expected.difference(result) == "");
    Case nothing_more = whole.key_part(4096, 4096);
    CHECK(bit_difference(nothing_more.continue_from(result).run({target}), result) == "");
    const Result none = empty.run({target});
    REQUIRE(std::string(none.status.message) == "");
    for (const float sum : none.state_sum.values) CHECK(sum == 0);
    CHECK(bit_difference(Case(whole).continue_from(none).run({target}), result) == "");
  });
}

TEST_CASE("states in place of out, and out without lse") {
  Case c = Case().heads(4, 2).len(11, 300).dims(20).causal();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    const Result plain = c.run({target});
    CHECK(expected.difference(plain) == "");
    CHECK(bit_difference(Case(c).with_state().run({target}).out, plain.out) == "");
    CHECK(bit_difference(Case(c).without_lse().run({target}).out, plain.out) == "");
    Prepared p = Case(c).with_state().prepare();
    p.outputs.out = lw_tensor();
    p.outputs.lse = lw_tensor();
    const Result states = run_prepared(p, {target});
    CHECK(states.damage == "");
    CHECK(bit_difference(states.state_acc, Case(c).with_state().run({target}).state_acc) == "");
    // out is acc / row_sum, divided once.
    for (size_t n = 0; n < plain.out.values.size(); ++n) {
      const float sum = states.state_sum.values[n / 20];
      const float quotient = states.state_acc.values[n] / sum + 0.0f;
      if (quotient != plain.out.values[n]) FAIL("element " << n);
    }
  });
}

TEST_CASE("every memory layout gives the same bits") {
  const Layout layouts[] = {Layout::kBlhd,       Layout::kLbhd,   Layout::kTransposed,
                            Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  std::vector<Case> cases = {
      Case().batch(2).heads(4, 2).len(37, 300).dims(24, 40).causal(),
      Case().heads(2, 2).len(3, 70).dims(5, 1),
      // [batch, len, heads, dim] with a row stride of 16 KB: K and V are copied before use.
      Case().heads(32, 32).len(10, 70).dims(128).causal(),
      // Long enough for panels of several row tiles.
      Case().heads(2, 1).len(400, 300).dims(16).causal(),
  };
  for (Case& c : cases) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result plain = c.run({target});
      CHECK(expected.difference(plain) == "");
      const Layout rows = Layout::kBhld;
      for (const Layout layout : layouts) {
        INFO("layout " << static_cast<int>(layout) << " on " << target);
        const std::array<Layout, 4> each[] = {{layout, rows, rows, rows},
                                              {rows, layout, rows, rows},
                                              {rows, rows, layout, rows},
                                              {rows, rows, rows, layout},
                                              {layout, layout, layout, layout}};
        for (const std::array<Layout, 4>& l : each) {
          const Result moved = Case(c).layouts(l[0], l[1], l[2], l[3]).run({target, 2});
          CHECK(moved.damage == "");
          CHECK(bit_difference(plain, moved) == "");
        }
      }
    });
  }
}

TEST_CASE("a plan for more than a run uses gives the same bits") {
  Case c = Case().batch(2).heads(4, 2).len(13, 270).dims(48).causal();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    const Result exact = c.run({target});
    CHECK(expected.difference(exact) == "");
    const Result within = Case(c).capacity(7, 400, 5000).run({target, 2});
    CHECK(within.damage == "");
    CHECK(bit_difference(exact, within) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
