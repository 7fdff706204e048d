// Failures other attention kernels had (docs/RELIABILITY.md): masks and biases of groups E, F, G and R.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/masks.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("E05: chunks of a prefill with a mask are the whole prefill") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int32_t type : {int32_t{LW_TYPE_F32}, storage.type}) {
    Case whole = Case().stored_as(storage).heads(2, 1).len(30, 30).dims(16).causal();
    whole.bias(random_array({1, 1, 30, 30}, 41), type);
    whole.check();
    for_each_target_of(whole, [&](const std::string& target) {
      const Result together = whole.run({target});
      for (int64_t begin = 0; begin < 30; begin += 7) {
        const int64_t end = std::min<int64_t>(begin + 7, 30);
        const Result chunk = whole.query_part(begin, end).key_part(0, end).run({target});
        CHECK(bit_difference(together.out.slice(2, begin, end), chunk.out) == "");
        CHECK(bit_difference(together.lse.slice(2, begin, end), chunk.lse) == "");
      }
    });
  }
}

TEST_CASE("E07: a key mask with causal") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const std::vector<float> keeps = {0, 1, 1, 0, 0, 1, 0};
  const Array flags = filled({1, 1, 1, 7}, [&](int64_t, int64_t, int64_t, int64_t j) { return keeps[size_t(j)]; });
  Case c = Case().stored_as(storage).heads(13, 13).len(7, 7).dims(37).causal().mask(flags);
  for (const Result& result : c.check()) check_empty(result, 0, 1);
  Case one_hot = Case().stored_as(storage).heads(1, 1).len(7, 7).dims(37, 7).causal().mask(flags);
  one_hot.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) { v = j == x; });
  for (const Result& result : one_hot.check()) {
    result.out.each([&](int64_t, int64_t, int64_t i, int64_t j, float weight) {
      CHECK((weight != 0) == (j <= i && keeps[size_t(j)] != 0));
    });
  }
}

TEST_CASE("F07: any order of the keys in a ring, with their mask columns, is the same") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  // 16 slots after 40 tokens: slot = position mod 16, of which the last 10 are visible.
  Case in_order = Case().stored_as(storage).heads(2, 1).len(1, 16).dims(24);
  in_order.mask(filled({1, 1, 1, 16}, [](int64_t, int64_t, int64_t, int64_t j) { return j >= 6; }));
  Case ring = in_order;
  const auto token = [](int64_t slot) { return (slot - 40 % 16 + 32) % 16; };
  ring.k().each([&](int64_t, int64_t, int64_t j, int64_t x, float& e) { e = in_order.k().at(0, 0, token(j), x); });
  ring.v().each([&](int64_t, int64_t, int64_t j, int64_t x, float& e) { e = in_order.v().at(0, 0, token(j), x); });
  ring.mask(filled({1, 1, 1, 16}, [&](int64_t, int64_t, int64_t, int64_t j) { return token(j) >= 6; }));
  ring.check();
  const std::vector<Result> expected = in_order.check();
  for (size_t n = 0; n < expected.size(); ++n) {
    const Result rotated = ring.run({expected[n].target});
    check_close(storage, expected[n].out, rotated.out);
  }
}

TEST_CASE("G01: a bias that does not depend on the key changes no weight, and is not read as if it did") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case plain = Case().stored_as(storage).batch(2).heads(2, 1).len(9, 70).dims(16);
  Case c = plain;
  c.bias(random_array({2, 2, 9, 1}, 6));
  const Expectation expected(plain);
  for (const Result& result : c.check()) {
    Result without_lse = result;
    without_lse.lse = plain.run({result.target}).lse;
    CHECK(expected.difference(without_lse) == "");
  }
}

TEST_CASE("G03, G09: a mask of one head or one query is the same for all") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t q_len : {2, 7, 33}) {
    Case().stored_as(storage).heads(8, 4).len(q_len, 50).dims(16).bias(random_array({1, 1, q_len, 50}, 7)).check();
    Case().stored_as(storage).batch(2).heads(2, 2).len(q_len, 50).dims(16).bias(random_array({2, 2, 1, 50}, 8)).check();
    Case()
        .stored_as(storage)
        .heads(8, 4)
        .len(q_len, 50)
        .dims(16)
        .mask(filled({1, 1, q_len, 50}, [](int64_t, int64_t, int64_t i, int64_t j) { return (i + j) % 3; }))
        .check();
  }
}

TEST_CASE("G05: a mask a query head, with grouped heads") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).batch(3).heads(8, 2).len(8, 8).dims(64);
  c.bias(random_array({3, 8, 8, 8}, 9, 4), storage.type).check();
}

TEST_CASE("G07: bool, bits and biases that hide the same keys") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const auto keep = [](int64_t, int64_t, int64_t i, int64_t j) { return (3 * i + 5 * j) % 4 != 0; };
  Case by_bool = Case().stored_as(storage).heads(2, 2).len(17, 17).dims(32).mask(filled({1, 1, 17, 17}, keep));
  const std::vector<Result> expected = by_bool.check();
  Case by_bits =
      Case().stored_as(storage).heads(2, 2).len(17, 17).dims(32).mask(filled({1, 1, 17, 17}, keep), LW_TYPE_BITS);
  const auto check_bias = [&](float hides) {
    Case c = Case().stored_as(storage).heads(2, 2).len(17, 17).dims(32);
    c.bias(filled({1, 1, 17, 17},
                  [&](int64_t b, int64_t h, int64_t i, int64_t j) { return keep(b, h, i, j) ? 0.0f : hides; }));
    return c.check();
  };
  const std::vector<Result> bits = by_bits.check(), infinite = check_bias(-kInf), large = check_bias(-1e9f);
  for (size_t n = 0; n < expected.size(); ++n) {
    CHECK(bit_difference(expected[n], bits[n]) == "");
    CHECK(bit_difference(expected[n], infinite[n]) == "");
    check_close(storage, expected[n].out, large[n].out);
  }
}

TEST_CASE("R01: masks that leave nothing of most pieces of the keys, and nothing at all") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const int64_t kv_len = 12000;
  for (const int64_t first : {kv_len - 96, kv_len}) {
    Array keep = filled({1, 1, 1, kv_len}, [&](int64_t, int64_t, int64_t, int64_t j) { return j >= first; });
    Array hide =
        filled({1, 1, 1, kv_len}, [&](int64_t, int64_t, int64_t, int64_t j) { return j >= first ? 0 : -kInf; });
    Array tiles = filled({1, 1, 1, kv_len / 96}, [&](int64_t, int64_t, int64_t, int64_t t) { return 96 * t >= first; });
    const Case plain = Case().stored_as(storage).heads(1, 1).len(1, kv_len).dims(16);
    std::vector<Result> right;
    for (Case& c : std::vector<Case>{Case(plain).mask(keep), Case(plain).mask(keep, LW_TYPE_BITS),
                                     Case(plain).bias(hide), Case(plain).block_mask(1, 96, tiles)}) {
      const Expectation expected(c);
      size_t n = 0;
      for_each_target_of(c, [&](const std::string& target) {
        Prepared p = c.prepare();
        const PreparedPlan plan(p.problem, target);
        for (int32_t threads = 1; threads <= 16; ++threads) {
          const Result result = plan.run(p, {target, threads, threads % 2 ? Runner::kPartsReversed : Runner::kOpenmp});
          CHECK(expected.difference(result) == "");
          if (first == kv_len) check_empty(result, 0, 1);
          if (n == right.size()) right.push_back(result);
          CHECK(bit_difference(right[n], result) == "");  // of any kind of mask
        }
        ++n;
      });
    }
  }
}

TEST_CASE("G11: every size of a call minds the mask") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t q_len : {1, 2, 3, 4, 8, 16, 64, 1000}) {
    for (const int64_t kv_len : {1, 64, 1000}) {
      for (const int64_t dim : {8, 64, 128}) {
        if (q_len == 1000 && kv_len == 1000 && dim != 8) continue;
        Case c = Case().stored_as(storage).heads(1, 1).len(q_len, kv_len).dims(dim, 4);
        c.mask(filled({1, 1, 1, kv_len}, [](int64_t, int64_t, int64_t, int64_t j) { return j % 3 != 2; }));
        c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) {
          if (j % 3 == 2) v = 1e6f;
        });
        Case unmasked = c;
        unmasked.rules() = RuleSet();
        const Expectation expected(c);
        for_each_target_of(c, [&](const std::string& target) {
          INFO(q_len << " x " << kv_len << " x " << dim << " on " << target);
          CHECK(expected.difference(run_unpoisoned(unmasked, c, target)) == "");
        });
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
