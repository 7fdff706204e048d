// Failures other attention kernels had (docs/RELIABILITY.md): masks and biases of groups A to D.
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

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

TEST_CASE("A01: whole blocks hidden by a bias before and after a row's keys") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t len : {513, 640, 1100}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(len, len).dims(4);
    c.q().fill(1);
    c.k().fill(1);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) {
      v = static_cast<float>(j) / 640 + static_cast<float>(x);
    });
    c.bias(filled({1, 1, len, len},
                  [](int64_t, int64_t, int64_t i, int64_t j) { return i - 9 <= j && j <= i ? 0 : -kInf; }));
    for (const Result& result : c.check()) {
      if (len > 600 && storage.type == LW_TYPE_F32)
        CHECK(std::fabs(result.out.at(0, 0, 600, 0) - 0.93046875f) <= 2e-6f);
    }
  }
}

TEST_CASE("A03: a bias of the lowest finite value hides a whole row") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float amplitude : {0.0f, 1.0f, 1e3f}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(3, 3).dims(4).amplitudes(amplitude, amplitude, 1);
    c.bias(filled({1, 1, 3, 3}, [](int64_t, int64_t, int64_t i, int64_t) { return i == 0 ? kLowest : 1.0f; }));
    for (const Result& result : c.check()) check_empty(result, 0, 1);
  }
}

TEST_CASE("A05: two rules that hide a row together, neither alone") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(8, 8).dims(16).causal();
  c.mask(filled({1, 1, 1, 8}, [](int64_t, int64_t, int64_t, int64_t j) { return j >= 5; }));
  for (const Result& result : c.check()) check_empty(result, 0, 5);
  c.softcap(30).bias(random_array({1, 1, 8, 8}, 5));
  for (const Result& result : c.check()) check_empty(result, 0, 5);
}

TEST_CASE("A09: a masked row holds zeros whatever the output held") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(4, 4).dims(2).scale(1);
  c.mask(filled({1, 1, 4, 4}, [](int64_t, int64_t, int64_t i, int64_t) { return i != 1; }));
  for (const Result& result : c.check()) check_empty(result, 1, 2);
  for_each_target_of(c, [&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result first = plan.run(p, {target});
    for (const float before : {7.0f, kNan}) {
      How how = {target};
      how.before = [&] {
        for (int64_t n = 0; n < 8; ++n) store(storage.type, p.outputs.out.data, n, before);
      };
      CHECK(bit_difference(first, plan.run(p, how)) == "");
    }
  });
}

TEST_CASE("A11: one query, a half-precision bias, the first key alone") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float others : {-kInf, -65504.0f}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(1, 448).dims(64);
    c.bias(filled({1, 1, 1, 448}, [&](int64_t, int64_t, int64_t, int64_t j) { return j == 0 ? 0.0f : others; }),
           LW_TYPE_F16);
    Prepared p = c.prepare();
    for (const Result& result : c.check()) {
      for (int64_t x = 0; x < 64; ++x) {
        const float value = load(storage.type, p.inputs.v.data, x);
        CHECK(std::fabs(result.out.at(0, 0, 0, x) - value) <=
              (storage.type == LW_TYPE_F32 ? std::ldexp(std::fabs(value), -23) : 0));
      }
    }
  }
}

TEST_CASE("B01: content of a key that a mask hides does not reach the row") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for_each_target_of(Case().stored_as(storage), [&](const std::string& target) {
    std::vector<Result> results;
    for (const bool in_values : {false, true}) {
      for (const float content : {4.0f, 1e10f, kNan, kInf, -kInf}) {
        Case c = Case().stored_as(storage).heads(1, 1).len(2, 2).dims(4);
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

TEST_CASE("B06: content of masked slots changes nothing, by any kind of mask") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const auto used = [](int64_t j) { return j < 32; };
  for_each_target_of(Case().stored_as(storage), [&](const std::string& target) {
    for (const int kind : {0, 1, 2}) {
      std::vector<Result> results;
      for (const float content : {0.0f, 1.0f, kNan, 100.0f, 1e3f}) {  // NaN: random
        Case c = Case().stored_as(storage).heads(16, 8).len(32, 128).dims(256);
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
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float constant : {-1e9f, -1e10f}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(3, 32).dims(16, 1);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) { v = j % 2 ? 1e4f : 1.0f; });
    c.bias(filled({1, 1, 1, 32}, [&](int64_t, int64_t, int64_t, int64_t j) { return j % 2 ? constant : 0.0f; }));
    for (const Result& result : c.check()) {
      for (const float value : result.out.values) CHECK(value == 1);
    }
  }
}

TEST_CASE("C03: a bias of -10000 on all keys changes no weight") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(1, 33).dims(1);
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& v) { v = static_cast<float>(j); });
  c.bias(Array({1, 1, 1, 33}, -10000));
  // Equal weights; they are no powers of two, so their sums round.
  for (const Result& result : c.check()) CHECK(std::fabs(result.out.values[0] - 16) <= 1e-5f);
}

TEST_CASE("C06: a bias of -1e30 leaves no weight") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const float large = storage.type == LW_TYPE_F16 ? 65504 : 1e36f;
  Case c = Case().stored_as(storage).heads(1, 1).len(1, 512).dims(1);
  c.v().each([&](int64_t, int64_t, int64_t j, int64_t, float& v) { v = j == 300 ? 1.0f : large; });
  c.bias(filled({1, 1, 1, 512}, [](int64_t, int64_t, int64_t, int64_t j) { return j == 300 ? 0.0f : -1e30f; }));
  for (const Result& result : c.check()) CHECK(result.out.values[0] == 1);
}

TEST_CASE("C11: masked, visible and masked keys in every rotation") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t block : {16, 32, 64, 128}) {
    for (int64_t visible = 0; visible < 3; ++visible) {
      for (const bool by_bias : {false, true}) {
        Case c = Case().stored_as(storage).heads(2, 1).len(3, 3 * block).dims(16);
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
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const float lowest = -3.3895314e38f;  // of bf16
  for (const float hides : {lowest, lowest + lowest}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(8, 8).dims(32, 8).causal();
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

}  // namespace
}  // namespace lanewise::test
