// Where the rows of neighbouring kv heads lie together in memory (tokens before heads, small pages), a task takes few
// rows of several heads at once: the bits of one head at a time, for any number of heads, rows, keys and threads.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// Groups of heads that come out even and uneven, up to more than one task takes; keys from less than a chunk to spans.
std::vector<Subject> subjects() {
  return {
      {"two heads", Case().heads(2, 2).len(1, 300).dims(64).with_state()},
      {"eight heads of four", Case().heads(32, 8).len(1, 5000).dims(128)},
      {"five heads of three", Case().heads(15, 5).len(1, 1033).dims(40, 24).causal().with_state()},
      {"more heads than a task takes", Case().heads(35, 35).len(1, 270).dims(16).with_state()},
      {"few keys", Case().batch(3).heads(9, 3).len(1, 17).dims(24).kv_lengths({17, 0, 1})},
      {"speculative tokens", Case().heads(4, 4).len(3, 9000).dims(32).causal().with_state()},
      {"rows of twelve a head", Case().heads(12, 3).len(3, 700).dims(48).causal()},
      {"window", Case().heads(6, 3).len(2, 3000).dims(64).causal().window(700, -1)},
      {"kv_start", Case().heads(8, 8).len(2, 4500).dims(20).causal().kv_starts({4090}).with_state()},
      {"sinks", Case().heads(8, 4).len(2, 600).dims(32).causal().sinks({1, -2, 3, 0, 5, -1, 2, 4})},
      {"rules that keep heads apart", Case().heads(8, 4).len(2, 600).dims(32).causal().softcap(5)},
      {"lengths", Case().batch(4).heads(16, 8).len(1, 2500).dims(64).kv_lengths({2500, 1, 256, 1300})},
  };
}

TEST_CASE("kv heads together: the bits of one at a time") {
  for (Subject& subject : subjects()) {
    const Expectation expected(subject.c);
    for_each_target([&](const std::string& target) {
      const Result apart = subject.c.run({target});
      INFO(subject.name << " on " << target);
      CHECK(expected.difference(apart) == "");
      Case tokens_first = Case(subject.c).layouts(Layout::kBlhd, Layout::kBlhd, Layout::kBlhd, Layout::kBlhd);
      for (Case c : {tokens_first, Case(subject.c).paged(1), Case(tokens_first).paged(1), Case(subject.c).paged(5),
                     Case(tokens_first).paged(16), Case(tokens_first).ragged_q().ragged_kv()}) {
        for (const int32_t threads : {1, 2, 7}) {
          Prepared p = c.prepare(threads == 2 ? Edge::kStart : Edge::kEnd);
          const Runner runner = threads == 7 ? Runner::kPartsReversed : Runner::kOpenmp;
          const Result together = run_prepared(p, {target, threads, runner});
          CHECK(together.damage == "");
          CHECK(bit_difference(apart, together) == "");
        }
      }
    });
  }
}

// One of K and V has its heads apart, or strides that no run of memory has.
TEST_CASE("kv heads together: K and V each of its own strides") {
  const Layout layouts[] = {Layout::kBhld,       Layout::kBlhd,   Layout::kLbhd,       Layout::kTransposed,
                            Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  Case c = Case().heads(12, 6).len(2, 800).dims(64, 32).causal();
  for_each_target([&](const std::string& target) {
    const Result apart = c.run({target});
    for (const Layout k : layouts) {
      for (const Layout v : layouts) {
        const Result together = Case(c).layouts(Layout::kBhld, k, v, Layout::kBhld).run({target, 2});
        INFO("layouts " << static_cast<int>(k) << ", " << static_cast<int>(v) << " on " << target);
        CHECK(bit_difference(apart, together) == "");
      }
    }
  });
}

// A value that some row of one head does not see is NaN: that head's rows take their visible keys alone.
TEST_CASE("kv heads together: values that are not finite stay with those who see them") {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Case c = Case().heads(6, 3).len(3, 520).dims(16).causal();
    c.v().at(0, 1, 519, 3) = odd;  // the last query's own key, of the second head
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result apart = c.run({target});
      CHECK(expected.difference(apart) == "");
      Case tokens_first = Case(c).layouts(Layout::kBlhd, Layout::kBlhd, Layout::kBlhd, Layout::kBlhd);
      CHECK(bit_difference(apart, tokens_first.run({target, 2})) == "");
      CHECK(bit_difference(apart, Case(c).paged(1).run({target, 2})) == "");
    });
  }
}

TEST_CASE("kv heads together: among poison, within the bounds of the reference") {
  for (const size_t n : {2, 6, 8, 11}) {
    Subject subject = subjects()[n];
    INFO(subject.name);
    Case(subject.c).layouts(Layout::kBlhd, Layout::kBlhd, Layout::kBlhd, Layout::kBlhd).check();
    Case(subject.c).paged(1).check();
  }
}

// 16-bit caches: a token's row is half as long, so twice as many heads go together.
TEST_CASE("kv heads together: 16-bit storage") {
  for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    Case c = Case().heads(32, 32).len(1, 700).dims(128).types(LW_TYPE_F32, type, LW_TYPE_F32);
    for_each_target([&](const std::string& target) {
      const Result apart = c.run({target});
      Case tokens_first = Case(c).layouts(Layout::kBlhd, Layout::kBlhd, Layout::kBlhd, Layout::kBlhd);
      CHECK(bit_difference(apart, tokens_first.run({target, 2})) == "");
      CHECK(bit_difference(apart, Case(c).paged(2).run({target, 2})) == "");
    });
  }
}

}  // namespace
}  // namespace lanewise::test
