// Failures other attention kernels had (docs/RELIABILITY.md), groups C, D and H: sentinels, maxima, exp far from 0,
// reduced precision, scale.
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> counting(size_t n) {
  std::vector<float> values(n);
  for (size_t j = 0; j < n; ++j) values[j] = static_cast<float>(j);
  return values;
}

TEST_CASE("C01: rows whose logits all lie far below zero") {
  for (const float offset : {80000.0f, 0.0f, 1e3f, 6e4f, 1e6f}) {
    std::vector<float> scores;
    for (int j = 0; j < 64; ++j) scores.push_back(-(offset + static_cast<float>(j)));
    Case c = scores_case(scores, counting(64));
    for (const Result& result : c.check()) {
      const double off = static_cast<double>(result.out.values[0]) - 0.5819767068693263;
      INFO(result.target << " off by " << off);
      // Scores are multiplied by log2(e) in float32: relative 2^-24 each for constant and product. And poly5's own
      // error.
      CHECK(std::fabs(off) <= std::ldexp(static_cast<double>(offset) + 63, -22) + 1e-6);
    }
  }
}

TEST_CASE("C03: every score a tiny negative number") {
  for (const Result& result : scores_case(std::vector<float>(33, -1e-30f), counting(33)).check()) {
    CHECK(result.out.values[0] == 16.0f);
  }
}

TEST_CASE("C07: exp over its whole range") {
  std::vector<float> xs;
  for (double x = 0; x <= 103; x += 0.37) xs.push_back(static_cast<float>(x));
  for (int n = 1; n * 0.6931471805599453 <= 103; ++n) {
    const float x = static_cast<float>(n * 0.6931471805599453);
    xs.insert(xs.end(), {std::nextafter(x, 0.0f), x, std::nextafter(x, kInf)});
    // Halves of an octave: where the rounding to an integer exponent changes sides.
    const float half = static_cast<float>((n - 0.5) * 0.6931471805599453);
    xs.insert(xs.end(), {std::nextafter(half, 0.0f), half, std::nextafter(half, kInf)});
  }
  std::sort(xs.begin(), xs.end());
  const int64_t rows = static_cast<int64_t>(xs.size());
  Case c = Case().heads(1, 1).len(rows, 2).dims(1).scale(1);
  c.q().values = xs;
  c.k().values = {0, -1};
  c.v().values = {0, 1};
  for (const Result& result : c.check()) {
    for (size_t n = 0; n < xs.size(); ++n) {
      const double x = static_cast<double>(xs[n]), value = static_cast<double>(result.out.values[n]);
      const double expected = std::exp(-x) / (1 + std::exp(-x));
      INFO(result.target << ", x = " << x << ": " << value << ", expected " << expected);
      if (x <= 80) {
        // x log2(e) is rounded once: e^-x is off by up to x 2^-24, 4.8e-6 at 80, before poly5 adds its 2e-7.
        CHECK(std::fabs(value - expected) <= (2e-7 + std::ldexp(x, -24) * 1.25 + 1.2e-7) * expected);
        CHECK(std::fabs(value - expected) <= 5.1e-6 * expected);
      } else {
        CHECK(std::fabs(value - expected) <= 4e-38);
      }
      if (n > 0) CHECK(result.out.values[n] <= result.out.values[n - 1] * (1 + 1.2e-7f));
    }
  }
}

TEST_CASE("C10: the maximum jumps by 20000 between blocks, and back") {
  for (const bool low_first : {true, false}) {
    std::vector<float> scores(1100), values(1100);
    for (size_t j = 0; j < 1100; ++j) {
      const bool low = (j < 512) == low_first;
      scores[j] = low ? -1e4f : 1e4f;
      values[j] = low ? 1e30f : 1.0f;
    }
    for (const Result& result : scores_case(scores, values).check()) {
      CHECK(std::fabs(result.out.values[0] - 1) <= 1e-5f);
    }
  }
}

TEST_CASE("C11: visible keys between hidden ones, in every order (by window)") {
  for (const int64_t first : {0, 32, 64}) {
    for (const int64_t q_len : {1, 5}) {
      Case c = Case().len(q_len, 96).dims(16).q_offset(first).window(0, 31);
      for (const Result& result : c.check()) {
        for (const float value : result.out.values) CHECK(std::isfinite(value));
      }
    }
  }
  // And over block boundaries.
  for (const int64_t block : {16, 64, 128, 256, 300}) {
    Case c = Case().len(1, 3 * block).dims(16).q_offset(block).window(0, block - 1);
    c.check();
  }
}

TEST_CASE("C13: a row with one finite key below the usual sentinels (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float logit : {-59904.0f, -999424.0f}) {
    if (rounded(storage.type, logit) != logit) continue;
    Case c = Case()
                 .stored_as(storage)
                 .batch(3)
                 .heads(4, 1)
                 .len(3, 3)
                 .dims(1)
                 .scale(1)
                 .causal()
                 .q_lengths({1, 3, 1})
                 .kv_lengths({1, 3, 1});
    c.q().fill(1);
    c.k().fill(logit);
    for (const Result& result : c.check()) {
      for (int64_t h = 0; h < 4; ++h) {
        for (const int64_t b : {0, 2}) {
          CHECK(result.out.at(b, h, 0) == rounded(storage.type, c.v().at(b, 0, 0)));
          CHECK(std::fabs(result.lse.at(b, h, 0) - logit) <= 2e-7f * std::fabs(logit));
        }
      }
    }
    c.k().at(0, 0, 0, 0) = std::numeric_limits<float>::quiet_NaN();  // P4: that row, no other
    for (const Result& result : c.check()) {
      CHECK(std::isnan(result.out.at(0, 0, 0)));
      CHECK(std::isnan(result.lse.at(0, 3, 0)));
      CHECK(result.out.at(2, 0, 0) == rounded(storage.type, c.v().at(2, 0, 0)));
    }
  }
}

TEST_CASE("D01: a denominator of many equal weights does not stop growing") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t kv_len : {255, 256, 257, 2047, 2048, 2049, 4096, 4097, 65536}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(1, kv_len).dims(1);
    c.q().fill(0);
    c.v().fill(1);
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      const Result result = c.run({target});
      CHECK(result.out.values[0] == 1);
      CHECK(expected.difference(result) == "");
    });
  }
}

TEST_CASE("D03: a dot product beyond the range of half precision, brought back by the scale") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t q_len : {1, 40}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(q_len, 2).dims(64).scale(0.125f);
    c.q().fill(111);
    c.k().each([](int64_t, int64_t, int64_t j, int64_t, float& k) { k = j == 0 ? 110 : 109; });
    for (const Result& result : c.check()) {
      for (int64_t i = 0; i < q_len; ++i) {
        CHECK(std::fabs(result.lse.at(0, 0, i) - 97680) <= 97.7f);
        for (int64_t x = 0; x < 64; ++x) {
          const float value = rounded(storage.type, c.v().at(0, 0, 0, x));
          // The second key's weight is e^-888; the first one's is divided by itself.
          CHECK(std::fabs(result.out.at(0, 0, i, x) - value) <=
                (storage.type == LW_TYPE_F32 ? std::ldexp(std::fabs(value), -23) : 0));
        }
      }
    }
  }
}

TEST_CASE("D05: scale and its product with log2(e) are not rounded to the storage type") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t q_len : {1, 40}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(q_len, 2).dims(1).scale(0.1f);
    c.q().fill(1);
    c.k().values = {0, -40};
    c.v().values = {0, 1};
    for (const Result& result : c.check()) {
      for (const float value : result.out.values) CHECK(std::fabs(value - 0.0179862f) <= 0.003f * 0.0179862f);
    }
  }
}

TEST_CASE("D07: magnitudes that spread the exponents, with and without a block mask") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const bool blocks : {false, true}) {
    Case c = Case().stored_as(storage).heads(2, 2).len(257, 257).dims(64).amplitudes(5, 5, 1);
    if (blocks) {
      Array listed({1, 1, 5, 5});
      listed.each([](int64_t, int64_t, int64_t row, int64_t column, float& on) { on = (row + column) % 2 == 0; });
      c.block_mask(64, 64, listed);
    }
    const Expectation expected(c);
    for (const Result& result : c.check()) {
      for (size_t n = 0; n < result.out.values.size(); ++n) {
        // Two units of bf16 in the last place of values next to 1.
        const double off = static_cast<double>(result.out.values[n]) - expected.reference_result().out[n];
        if (!(std::fabs(off) <= std::ldexp(1, -7))) FAIL(result.target << " element " << n << " off " << off);
      }
    }
  }
}

TEST_CASE("C: infinite scores, one side each") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const Result& result : scores_case({0, -kInf, 1}, {1, 2, 3}).stored_as(storage).check()) {
    const double e = std::exp(1.0);
    if (storage.type == LW_TYPE_F32)
      CHECK(std::fabs(static_cast<double>(result.out.values[0]) - (1 + 3 * e) / (1 + e)) < 1e-6);
  }
  for (const Result& result : scores_case({-kInf, -kInf}, {1, 2}).stored_as(storage).check()) {
    CHECK(result.out.values[0] == 0);
    CHECK(result.lse.values[0] == -kInf);
  }
  for (const Result& result : scores_case({0, kInf, 1}, {1, 2, 3}).stored_as(storage).check()) {
    CHECK(std::isnan(result.out.values[0]));
    CHECK(std::isnan(result.lse.values[0]));
  }
}

TEST_CASE("results that are NaN are the positive quiet NaN, and zeros are positive") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float sign : {1.0f, -1.0f}) {
    Case c = scores_case({0, std::copysign(std::numeric_limits<float>::quiet_NaN(), sign)}, {1, 2}).stored_as(storage);
    Array expected({1, 1, 1, 1});
    expected.values[0] = std::numeric_limits<float>::quiet_NaN();  // 7fc00000
    for (const Result& result : c.check()) {
      CHECK(bit_difference(result.out, expected) == "");
      CHECK(bit_difference(result.lse, expected) == "");
    }
    for (const Result& result : scores_case({0, 0}, {sign * 0.0f, sign * 0.0f}).stored_as(storage).check()) {
      CHECK(!std::signbit(result.out.values[0]));
    }
  }
}

TEST_CASE("H07: scale 0 is a scale") {
  Case c = Case().heads(1, 1).len(3, 3).dims(2).causal();
  for (size_t n = 0; n < 6; ++n) {
    c.q().values[n] = 0.1f * static_cast<float>(n + 1);
    c.k().values[n] = 0.7f + 0.1f * static_cast<float>(n);
    c.v().values[n] = static_cast<float>(n + 1);
  }
  const float root_half = static_cast<float>(1 / std::sqrt(2.0));
  const std::vector<float> means = {1, 2, 2, 3, 3, 4};
  const std::vector<Result> unset = Case(c).check(), given = Case(c).scale(root_half).check(),
                            zero = Case(c).scale(0).check();
  for (size_t n = 0; n < unset.size(); ++n) {
    CHECK(bit_difference(unset[n], given[n]) == "");
    CHECK(zero[n].out.values == means);
  }
}

TEST_CASE("H: any finite scale, down to the signs") {
  for (const float scale : {-1.0f, -0.125f, -0.0f, 1e-30f, 1e-45f, 3.0f})
    Case().len(5, 70).dims(16).scale(scale).check();
  // The largest: with scores still in range.
  Case().len(5, 70).dims(16).scale(1e38f).amplitudes(1e-19f, 1e-19f, 1).check();
  Case().len(5, 70).dims(16).scale(-1e38f).amplitudes(1e-19f, 1e-19f, 1).check();
}

}  // namespace
}  // namespace lanewise::test
