// The numeric contract, bit for bit: dense, ragged and paged storage of the same sequences.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

std::vector<Subject> subjects() {
  return {
      {"prefill",
       Case().batch(3).heads(4, 2).len(40, 300).dims(24).causal().q_lengths({40, 0, 33}).kv_lengths({300, 9, 40})},
      {"decode", Case().batch(3).heads(8, 2).len(1, 700).dims(64, 48).kv_lengths({700, 1, 513})},
      {"few rows", Case().batch(2).heads(4, 4).len(3, 600).dims(16).causal().kv_lengths({257, 600}).with_state()},
      {"window", Case().batch(2).heads(4, 2).len(20, 500).dims(8).causal().window(70, -1).kv_lengths({500, 333})},
      {"odd sizes",
       Case().batch(4).heads(3, 1).len(5, 61).dims(7, 5).causal().kv_lengths({61, 0, 17, 1}).q_lengths({5, 2, 0, 1})},
      {"starts elsewhere", Case().batch(2).heads(2, 1).len(9, 300).dims(8).causal().kv_starts({250, 4000})},
  };
}

TEST_CASE("ragged and paged storage give the bits of dense storage") {
  for (Subject& subject : subjects()) {
    const Expectation expected(subject.c);
    std::vector<Subject> stored = {
        {"ragged", Case(subject.c).ragged_q().ragged_kv()},
        {"ragged keys", Case(subject.c).ragged_kv()},
        {"ragged queries, pages of 16", Case(subject.c).ragged_q().paged(16)},
        {"ragged, transposed", Case(subject.c).ragged_q().ragged_kv().layouts(Layout::kBlhd, Layout::kTransposed,
                                                                              Layout::kBlhd, Layout::kBlhd)},
        {"pages of 32, tokens first",
         Case(subject.c).paged(32).layouts(Layout::kBhld, Layout::kBlhd, Layout::kLbhd, Layout::kBlhd)},
        {"pages of 8, transposed",
         Case(subject.c).paged(8).layouts(Layout::kBhld, Layout::kTransposed, Layout::kTransposed, Layout::kBhld)},
        {"pages of 7, padded",
         Case(subject.c).paged(7).layouts(Layout::kBhld, Layout::kPaddedRows, Layout::kSpread, Layout::kBhld)},
    };
    for (const int64_t page_size : {1, 2, 17, 128, 256, 1000})
      stored.push_back({"pages", Case(subject.c).paged(page_size)});
    for_each_target([&](const std::string& target) {
      const Result dense = subject.c.run({target, 2});
      CHECK(expected.difference(dense) == "");
      for (Subject& other : stored) {
        INFO(subject.name << ", " << other.name << " on " << target);
        const Result result = other.c.run({target, 2});
        CHECK(bit_difference(dense, result) == "");
        CHECK(result.damage == "");
      }
    });
  }
}

}  // namespace
}  // namespace lanewise::test
