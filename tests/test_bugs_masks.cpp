// Failures other attention kernels had (docs/RELIABILITY.md): masks and biases of groups A, B, C, D, E, F, G.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

template <class Value>
Array filled(const Shape& shape, Value value) {
  Array array(shape);
  array.each([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) { x = static_cast<float>(value(b, h, i, j)); });
  return array;
}

// Rows [begin, end) of the first head are empty: out 0, lse -inf.
void check_empty(const Result& result, int64_t begin, int64_t end) {
  INFO(result.target);
  for (int64_t i = begin; i < end; ++i) {
    CHECK(result.lse.at(0, 0, i) == -kInf);
    for (int64_t x = 0; x < result.out.shape[3]; ++x) CHECK(result.out.at(0, 0, i, x) == 0);
  }
}

TEST_CASE("A01: whole blocks hidden by a bias before and after a row's keys") {
  for (const int64_t len : {513, 640, 1100}) {
    Case c = Case().heads(1, 1).len(len, len).dims(4);
    c.q().fill(1);
    c.k().fill(1);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) {
      v = static_cast<float>(j) / 640 + static_cast<float>(x);
    });
    c.bias(filled({1, 1, len, len},
                  [](int64_t, int64_t, int64_t i, int64_t j) { return i - 9 <= j && j <= i ? 0 : -kInf; }));
    for (const Result& result : c.check()) {
      if (len > 600) CHECK(std::fabs(result.out.at(0, 0, 600, 0) - 0.93046875f) <= 2e-6f);
    }
  }
}

TEST_CASE("A03: a bias of the lowest finite value hides a whole row") {
  for (const float amplitude : {0.0f, 1.0f, 1e3f}) {
    Case c = Case().heads(1, 1).len(3, 3).dims(4).amplitudes(amplitude, amplitude, 1);
    c.bias(filled({1, 1, 3, 3}, [](int64_t, int64_t, int64_t i, int64_t) { return i == 0 ? kLowest : 1.0f; }));
    for (const Result& result : c.check()) check_empty(result, 0, 1);
  }
}

TEST_CASE("A05: two rules that hide a row together, neither alone") {
  Case c = Case().heads(1, 1).len(8, 8).dims(16).causal();
  c.mask(filled({1, 1, 1, 8}, [](int64_t, int64_t, int64_t, int64_t j) { return j >= 5; }));
  for (const Result& result : c.check()) check_empty(result, 0, 5);
  c.softcap(30).bias(random_array({1, 1, 8, 8}, 5));
  for (const Result& result : c.check()) check_empty(result, 0, 5);
}

TEST_CASE("A09: a masked row holds zeros whatever the output held") {
  Case c = Case().heads(1, 1).len(4, 4).dims(2).scale(1);
  c.mask(filled({1, 1, 4, 4}, [](int64_t, int64_t, int64_t i, int64_t) { return i != 1; }));
  for (const Result& result : c.check()) check_empty(result, 1, 2);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result first = plan.run(p, {target});
    for (const float before : {7.0f, kNan}) {
      How how = {target};
      how.before = [&] {
        for (int64_t n = 0; n < 8; ++n) static_cast<float*>(p.outputs.out.data)[n] = before;
      };
      CHECK(bit_difference(first, plan.run(p, how)) == "");
    }
  });
}

TEST_CASE("A11: one query, a half-precision bias, the first key alone") {
  for (const float others : {-kInf, -65504.0f}) {
    Case c = Case().heads(1, 1).len(1, 448).dims(64).types(LW_TYPE_F16, LW_TYPE_F16, LW_TYPE_F16);
    c.bias(filled({1, 1, 1, 448}, [&](int64_t, int64_t, int64_t, int64_t j) { return j == 0 ? 0.0f : others; }),
           LW_TYPE_F16);
    Prepared p = c.prepare();
    for (const Result& result : c.check()) {
      for (int64_t x = 0; x < 64; ++x) CHECK(result.out.at(0, 0, 0, x) == load(LW_TYPE_F16, p.inputs.v.data, x));
    }
  }
}

TEST_CASE("B01: content of a key that a mask hides does not reach the row") {
  for_each_target([](const std::string& target) {
    std::vector<Result> results;
    for (const bool in_values : {false, true}) {
      for (const float content : {4.0f, 1e10f, kNan, kInf, -kInf}) {
        Case c = Case().heads(1, 1).len(2, 2).dims(4);
        for (Array* array : {&c.q(), &c.k(), &c.v()}) {
          for (size_t n = 0; n < 8; ++n) array->values[n] = static_cast<float>(n);
        }
        (in_values ? c.v() : c.k()).at(0, 0, 1, 0) = content;
        c.mask(filled({1, 1, 1, 2}, [](int64_t, int64_t, int64_t, int64_t j) { return j == 0; }));
        // As it stands: preparing would poison what nobody sees.
        Prepared p = Case(c).mask(Array({1, 1, 1, 2}, 1.0f)).prepare();
        const Prepared masked = c.prepare();
        p.problem = masked.problem;
        p.inputs.mask = masked.inputs.mask;
        results.push_back(run_prepared(p, {target}));
        CHECK(bit_difference(results.front(), results.back()) == "");
      }
    }
    CHECK(results.front().out.at(0, 0, 0, 0) == 0);
    CHECK(results.front().out.at(0, 0, 1, 3) == 3);
  });
}

// Runs `c` with all its keys in memory as they are, and masks of another case.
Result run_unpoisoned(Case c, Case with_masks, const std::string& target) {
  Prepared p = c.prepare();
  const Prepared masks = with_masks.prepare();
  p.problem = masks.problem;
  p.inputs.mask = masks.inputs.mask;
  p.inputs.bias = masks.inputs.bias;
  return run_prepared(p, {target});
}

TEST_CASE("B06: content of masked slots changes nothing, by any kind of mask") {
  const auto used = [](int64_t j) { return j < 32; };
  for_each_target([&](const std::string& target) {
    for (const int kind : {0, 1, 2}) {
      std::vector<Result> results;
      for (const float content : {0.0f, 1.0f, kNan, 100.0f, 1e3f}) {  // NaN: random
        Case c = Case().heads(16, 8).len(32, 128).dims(256).types(LW_TYPE_BF16, LW_TYPE_BF16, LW_TYPE_BF16);
        for (Array* array : {&c.k(), &c.v()}) {
          array->each([&](int64_t, int64_t, int64_t j, int64_t, float& x) {
            if (!used(j) && !std::isnan(content)) x = content;
          });
        }
        Case masked = c;
        if (kind == 0)
          masked.mask(filled({1, 1, 1, 128}, [&](int64_t, int64_t, int64_t, int64_t j) { return used(j); }));
        // -65504 is a number, but far enough below that weights are 0; as bf16 it is -65536.
        if (kind > 0) {
          masked.bias(filled({1, 1, 1, 128},
                             [&](int64_t, int64_t, int64_t, int64_t j) {
                               return used(j) ? 0 : kind == 1 ? -kInf : -65504.0f;
                             }),
                      LW_TYPE_BF16);
        }
        results.push_back(run_unpoisoned(c, masked, target));
        CHECK(bit_difference(results.front(), results.back()) == "");
      }
    }
  });
}

TEST_CASE("B11: mask constants of -1e9 and -1e10 leave no weight") {
  for (const float constant : {-1e9f, -1e10f}) {
    Case c = Case().heads(1, 1).len(3, 32).dims(16, 1).types(LW_TYPE_F16, LW_TYPE_F16, LW_TYPE_F16);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) { v = j % 2 ? 1e4f : 1.0f; });
    c.bias(filled({1, 1, 1, 32}, [&](int64_t, int64_t, int64_t, int64_t j) { return j % 2 ? constant : 0.0f; }));
    for (const Result& result : c.check()) {
      for (const float value : result.out.values) CHECK(value == 1);
    }
  }
}

TEST_CASE("C03: a bias of -10000 on all keys changes no weight") {
  Case c = Case().heads(1, 1).len(1, 33).dims(1);
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) { v = static_cast<float>(j); });
  c.bias(Array({1, 1, 1, 33}, -10000));
  // Equal weights; they are no powers of two, so their sums round.
  for (const Result& result : c.check()) CHECK(std::fabs(result.out.values[0] - 16) <= 1e-5f);
}

TEST_CASE("C06: a bias of -1e30 leaves no weight") {
  Case c = Case().heads(1, 1).len(1, 512).dims(1);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) { v = j == 300 ? 1.0f : 1e36f; });
  c.bias(filled({1, 1, 1, 512}, [](int64_t, int64_t, int64_t, int64_t j) { return j == 300 ? 0.0f : -1e30f; }));
  for (const Result& result : c.check()) CHECK(result.out.values[0] == 1);
}

TEST_CASE("C11: masked, visible and masked keys in every rotation") {
  for (const int64_t block : {16, 32, 64, 128}) {
    for (int64_t visible = 0; visible < 3; ++visible) {
      for (const bool by_bias : {false, true}) {
        Case c = Case().heads(2, 1).len(3, 3 * block).dims(16);
        if (by_bias) {
          c.bias(filled({1, 1, 1, 3 * block},
                        [&](int64_t, int64_t, int64_t, int64_t j) { return j / block == visible ? 0.0f : -kInf; }));
        } else {
          c.mask(
              filled({1, 1, 1, 3 * block}, [&](int64_t, int64_t, int64_t, int64_t j) { return j / block == visible; }),
              LW_TYPE_BITS);
        }
        c.check();
      }
    }
  }
}

TEST_CASE("D09: the lowest bf16 value and what two of them add up to hide alike") {
  const float lowest = -3.3895314e38f;  // of bf16
  for (const float hides : {lowest, lowest + lowest}) {
    Case c = Case().heads(1, 1).len(8, 8).dims(32, 8).causal();
    c.q().fill(0);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) { v = j == x; });
    c.bias(filled({1, 1, 8, 8},
                  [&](int64_t, int64_t, int64_t i, int64_t j) { return j >= 5 || (i == 2 && j == 1) ? hides : 0.0f; }),
           LW_TYPE_BF16);
    for (const Result& result : c.check()) {
      for (int64_t i = 0; i < 8; ++i) {
        for (int64_t j = 0; j < 8; ++j) {
          const bool hidden = j > i || j >= 5 || (i == 2 && j == 1);
          CHECK((result.out.at(0, 0, i, j) == 0) == hidden);
        }
      }
    }
  }
}

TEST_CASE("E05: chunks of a prefill with a mask are the whole prefill") {
  for (const int32_t type : {LW_TYPE_F32, LW_TYPE_BF16}) {
    Case whole = Case().heads(2, 1).len(30, 30).dims(16).types(type, type, LW_TYPE_F32).causal();
    whole.bias(random_array({1, 1, 30, 30}, 41), type);
    whole.check();
    for_each_target([&](const std::string& target) {
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
  const std::vector<float> keeps = {0, 1, 1, 0, 0, 1, 0};
  const Array flags = filled({1, 1, 1, 7}, [&](int64_t, int64_t, int64_t, int64_t j) { return keeps[size_t(j)]; });
  Case c = Case().heads(13, 13).len(7, 7).dims(37).causal().mask(flags);
  for (const Result& result : c.check()) check_empty(result, 0, 1);
  Case one_hot = Case().heads(1, 1).len(7, 7).dims(37, 7).causal().mask(flags);
  one_hot.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) { v = j == x; });
  for (const Result& result : one_hot.check()) {
    result.out.each([&](int64_t, int64_t, int64_t i, int64_t j, float weight) {
      CHECK((weight != 0) == (j <= i && keeps[size_t(j)] != 0));
    });
  }
}

TEST_CASE("F07: any order of the keys in a ring, with their mask columns, is the same") {
  // 16 slots after 40 tokens: slot = position mod 16, of which the last 10 are visible.
  Case in_order = Case().heads(2, 1).len(1, 16).dims(24);
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
    for (size_t x = 0; x < rotated.out.values.size(); ++x)
      CHECK(std::fabs(rotated.out.values[x] - expected[n].out.values[x]) <= 1e-6f);
  }
}

TEST_CASE("G01: a bias that does not depend on the key changes no weight, and is not read as if it did") {
  Case plain = Case().batch(2).heads(2, 1).len(9, 70).dims(16);
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
  for (const int64_t q_len : {2, 7, 33}) {
    Case().heads(8, 4).len(q_len, 50).dims(16).bias(random_array({1, 1, q_len, 50}, 7)).check();
    Case().batch(2).heads(2, 2).len(q_len, 50).dims(16).bias(random_array({2, 2, 1, 50}, 8)).check();
    Case()
        .heads(8, 4)
        .len(q_len, 50)
        .dims(16)
        .mask(filled({1, 1, q_len, 50}, [](int64_t, int64_t, int64_t i, int64_t j) { return (i + j) % 3; }))
        .check();
  }
}

TEST_CASE("G05: a mask a query head, with grouped heads") {
  Case c = Case().batch(3).heads(8, 2).len(8, 8).dims(64).types(LW_TYPE_F16, LW_TYPE_F16, LW_TYPE_F16);
  c.bias(random_array({3, 8, 8, 8}, 9, 4), LW_TYPE_F16).check();
}

TEST_CASE("G07: bool, bits and biases that hide the same keys") {
  const auto keep = [](int64_t, int64_t, int64_t i, int64_t j) { return (3 * i + 5 * j) % 4 != 0; };
  Case by_bool = Case().heads(2, 2).len(17, 17).dims(32).mask(filled({1, 1, 17, 17}, keep));
  const std::vector<Result> expected = by_bool.check();
  Case by_bits = Case().heads(2, 2).len(17, 17).dims(32).mask(filled({1, 1, 17, 17}, keep), LW_TYPE_BITS);
  const auto check_bias = [&](float hides) {
    Case c = Case().heads(2, 2).len(17, 17).dims(32);
    c.bias(filled({1, 1, 17, 17},
                  [&](int64_t b, int64_t h, int64_t i, int64_t j) { return keep(b, h, i, j) ? 0.0f : hides; }));
    return c.check();
  };
  const std::vector<Result> bits = by_bits.check(), infinite = check_bias(-kInf), large = check_bias(-1e9f);
  for (size_t n = 0; n < expected.size(); ++n) {
    CHECK(bit_difference(expected[n], bits[n]) == "");
    CHECK(bit_difference(expected[n], infinite[n]) == "");
    for (size_t x = 0; x < large[n].out.values.size(); ++x)
      CHECK(std::fabs(large[n].out.values[x] - expected[n].out.values[x]) <= 1e-6f);
  }
}

TEST_CASE("G11: every size of a call minds the mask") {
  for (const int64_t q_len : {1, 2, 3, 4, 8, 16, 64, 1000}) {
    for (const int64_t kv_len : {1, 64, 1000}) {
      for (const int64_t dim : {8, 64, 128}) {
        if (q_len == 1000 && kv_len == 1000 && dim != 8) continue;
        const int32_t type = dim == 64 ? LW_TYPE_BF16 : LW_TYPE_F32;
        Case c = Case().heads(1, 1).len(q_len, kv_len).dims(dim, 4).types(type, type, type);
        c.mask(filled({1, 1, 1, kv_len}, [](int64_t, int64_t, int64_t, int64_t j) { return j % 3 != 2; }));
        c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) {
          if (j % 3 == 2) v = 1e6f;
        });
        Case unmasked = c;
        unmasked.rules() = RuleSet();
        const Expectation expected(c);
        for_each_target([&](const std::string& target) {
          INFO(q_len << " x " << kv_len << " x " << dim << " on " << target);
          CHECK(expected.difference(run_unpoisoned(unmasked, c, target)) == "");
        });
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
