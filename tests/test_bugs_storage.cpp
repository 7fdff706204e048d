// Failures other attention kernels had (docs/RELIABILITY.md) that need ragged batches or pages: groups A, B, C, K, M, N, O
// and R.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("A07: causal with more queries than keys, pages of two") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const Result& result : Case().stored_as(storage).len(7, 3).dims(64).causal().paged(2).check()) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 4; ++i) {
        CHECK(result.lse.at(0, h, i) == -kInf);
        for (int64_t d = 0; d < 64; ++d) CHECK(result.out.at(0, h, i, d) == 0);
      }
    }
  }
}

TEST_CASE("B07: rows behind the last sequence's end") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  // Rows 200 and 201 hold poison in q, k and v, canaries in out: check() reports a written one.
  Case().stored_as(storage).heads(4, 4).len(199, 199).dims(128).causal().ragged_q().ragged_kv().check();
}

TEST_CASE("C13: a row with one finite key below the usual sentinels") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float logit : {-59904.0f, -999424.0f}) {
    if (rounded(storage.type, logit) != logit) continue;
    Case c = Case().stored_as(storage).batch(3).heads(4, 1).len(3, 3).dims(1).scale(1).causal().ragged_q().ragged_kv();
    c.q_lengths({1, 3, 1}).kv_lengths({1, 3, 1});
    c.q().fill(1);
    c.k().fill(logit);
    for (const Result& result : c.check()) {
      for (int64_t h = 0; h < 4; ++h) {
        CHECK(result.out.at(0, h, 0) == rounded(storage.type, c.v().at(0, 0, 0)));
        CHECK(result.out.at(2, h, 0) == rounded(storage.type, c.v().at(2, 0, 0)));
        CHECK(std::fabs(result.lse.at(2, h, 0) - logit) <= 2e-7f * std::fabs(logit));
      }
    }
  }
}

TEST_CASE("K03: packed sequences with grouped heads") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).batch(3).heads(8, 2).len(5, 5).dims(16).causal().q_lengths({3, 5, 2}).kv_lengths(
      {3, 5, 2});
  c.ragged_q().ragged_kv().layouts(Layout::kBlhd, Layout::kBlhd, Layout::kBlhd, Layout::kBlhd).check();
}

TEST_CASE("M07: longest query length 1, empty sequences between") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c =
      Case().stored_as(storage).batch(4).heads(9, 3).len(1, 5).dims(64).causal().scale(1).amplitudes(0.5f, 0.5f, 1);
  c.q_lengths({0, 1, 0, 1}).kv_lengths({0, 3, 0, 5});
  Case(c).ragged_q().ragged_kv().check();
  Case(c).ragged_q().paged(2).check();
}

TEST_CASE("N01: table entries past the needed pages") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  // Two of them a row: -1, 0x7FFFFFFF and a page of poison in turn, then the guard page.
  for (const int32_t context : {33, 32, 48, 1}) Case().stored_as(storage).len(1, context).dims(64).paged(16).check();
}

TEST_CASE("N05: any page size, any order of pages") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t page_size : {1, 2, 8, 16, 17, 32, 128, 256}) {
    Case plain = Case().stored_as(storage).batch(2).heads(4, 2).len(1, 300).dims(32).kv_lengths({300, 201});
    const Expectation expected(plain);
    for_each_target_of(plain, [&](const std::string& target) {
      const Result dense = plain.run({target});
      CHECK(expected.difference(dense) == "");
      for (const uint64_t seed : {1, 2, 3}) {
        CHECK(bit_difference(dense, Case(plain).paged(page_size, seed).run({target, 2})) == "");
      }
    });
  }
}

TEST_CASE("N07: every decode step over pages with NaN in unused slots") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (int32_t context = 1; context <= 1100;
       context += context < 40 || context % 256 > 250 || context % 256 < 4 ? 1 : 7) {
    Case c = Case().stored_as(storage).heads(2, 1).len(1, context).dims(16).paged(16);
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      const Result alone = plan.run(p, {target});
      INFO("context " << context << " on " << target);
      CHECK(expected.difference(alone) == "");
      for (const int32_t threads : {5, 16}) {
        CHECK(bit_difference(alone, plan.run(p, {target, threads, Runner::kPartsReversed})) == "");
      }
    });
  }
}

TEST_CASE("P6: a hole where some row may see a key is refused, elsewhere it is nothing") {
  for_each_target([&](const std::string& target) {
    Case c = Case().batch(2).heads(2, 1).len(4, 40).dims(8).causal().q_offset(20).kv_lengths({40, 37}).paged(8);
    Prepared p = c.prepare();
    const Result good = run_prepared(p, {target});
    REQUIRE(std::string(good.status.message) == "");
    int32_t* table = reinterpret_cast<int32_t*>(p.page_table.data());
    const int64_t width = p.inputs.page_table_stride[0];
    // Query 3 is at position 23: pages 0 to 2 are seen, 3 and 4 are not.
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t page = 0; page < width; ++page) {
        const int32_t before = table[b * width + page];
        for (const int32_t bad : {-1, INT32_MIN, INT32_MAX, static_cast<int32_t>(p.problem.page_count)}) {
          table[b * width + page] = bad;
          const Result result = run_prepared(p, {target});
          INFO("sequence " << b << ", page " << page << " is " << bad);
          CHECK(result.damage == "");
          if (page < 3) {
            CHECK(result.status.code == LW_INVALID_ARGUMENT);
            const std::string where = "page_table[" + std::to_string(b) + "][" + std::to_string(page) + "]";
            CHECK(std::string(result.status.message).find(where) != std::string::npos);
            CHECK(std::string(result.status.message).find(std::to_string(bad)) != std::string::npos);
          } else {
            CHECK(bit_difference(good, result) == "");
          }
        }
        table[b * width + page] = before;
      }
    }
  });
}

TEST_CASE("O03: no queries but keys in the middle of a ragged batch") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const bool causal : {false, true}) {
    Case c =
        Case().stored_as(storage).batch(3).heads(2, 2).len(150, 100).dims(16).causal(causal).q_lengths({150, 0, 150});
    c.ragged_q().ragged_kv().check();
  }
}

TEST_CASE("O05: rows past the last sequence's end are left alone") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c =
      Case().stored_as(storage).batch(2).heads(2, 1).len(9, 9).dims(16).causal().q_lengths({9, 8}).kv_lengths({9, 8});
  c.ragged_q().ragged_kv().with_state().check();
}

TEST_CASE("R01: whole pieces of the keys are hidden, then all of them") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case last = Case().stored_as(storage).heads(1, 1).len(1, 12000).dims(16).q_offset(11999).window(95, -1);
  Case first = Case().stored_as(storage).heads(1, 1).len(1, 12000).dims(16).q_offset(95).causal();
  Case none = Case().stored_as(storage).heads(1, 1).len(1, 12000).dims(16).q_offset(20000).window(95, -1);
  for (Case* c : {&last, &first, &none}) {
    const Expectation expected(*c);
    for_each_target_of(*c, [&](const std::string& target) {
      Prepared p = c->prepare();
      const PreparedPlan plan(p.problem, target);
      for (int32_t threads = 1; threads <= 16; ++threads) {
        const Result result = plan.run(p, {target, threads, threads % 2 ? Runner::kPartsReversed : Runner::kOpenmp});
        CHECK(expected.difference(result) == "");
      }
    });
  }
  for (const Result& result : none.check()) {
    for (const float value : result.out.values) CHECK(value == 0);
    CHECK(result.lse.values[0] == -kInf);
  }
}

TEST_CASE("R05: a neighbour sequence's content reaches no row") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).batch(3).heads(4, 2).len(20, 20).dims(32).causal().ragged_q().ragged_kv();
  c.q_lengths({20, 7, 12}).kv_lengths({20, 7, 12});
  const Expectation expected(c);
  for_each_target_of(c, [&](const std::string& target) {
    const Result usual = c.run({target, 2});
    CHECK(expected.difference(usual) == "");
    for (const float content : {0.5f, kNan, kInf}) {
      Case neighbours = c;
      for (Array* array : {&neighbours.q(), &neighbours.k(), &neighbours.v()}) {
        std::fill(array->values.begin() + static_cast<int64_t>(array->values.size()) / 3, array->values.end(), content);
      }
      const Result result = neighbours.run({target, 2});
      CHECK(bit_difference(usual.out.slice(0, 0, 1), result.out.slice(0, 0, 1)) == "");
      CHECK(bit_difference(usual.lse.slice(0, 0, 1), result.lse.slice(0, 0, 1)) == "");
    }
  });
}

}  // namespace
}  // namespace lanewise::test
