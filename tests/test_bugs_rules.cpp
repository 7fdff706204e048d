// Failures other attention kernels had (docs/RELIABILITY.md), groups H, I, J: softcap and scale, ALiBi, sinks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> ones(size_t n) { return std::vector<float>(n, 1.0f); }

TEST_CASE("H01: a softcap leaves nothing of tile padding") {
  for (const size_t len : {1, 63, 65, 97, 129}) {
    for (const Result& result : scores_case(std::vector<float>(len, 0.0f), ones(len)).softcap(1).check())
      CHECK(result.out.values[0] == 1);
    for (const float cap : {1.0f, 20.0f, 50.0f}) {
      for (const Result& result : scores_case(std::vector<float>(len, -1e4f), ones(len)).softcap(cap).check())
        CHECK(result.out.values[0] == 1);
    }
  }
}

TEST_CASE("H03: a softcap of scores far beyond it") {
  Case c = scores_case({1000, 3000, 5000, 1e4f, -1e4f, 4400}, ones(6)).softcap(50);
  c.dims(1, 6);
  c.v() = Array({1, 1, 6, 6});
  for (int64_t j = 0; j < 6; ++j) c.v().at(0, 0, j, j) = 1;
  for (const Result& result : c.check()) {
    for (int64_t x = 0; x < 6; ++x)
      CHECK(std::fabs(result.out.at(0, 0, 0, x) - (x == 4 ? 0.0f : 0.2f)) <= (x == 4 ? 1e-30f : 1e-6f));
  }
}

TEST_CASE("H05: softcap is cap times tanh of score over cap") {
  for (const Result& result : scores_case({120, 60}, {1, 0}).softcap(30).check())
    CHECK(std::fabs(result.out.values[0] - 0.7425093f) <= 3e-6f);
}

TEST_CASE("H09: the bias is added after the softcap") {
  Case c = scores_case({0, 0, 0, 0}, {1, 0, 0, 0}).softcap(1);
  Array bias({1, 1, 1, 4});
  bias.values[0] = 5;
  for (const Result& result : c.bias(bias).check()) CHECK(std::fabs(result.out.values[0] - 0.9801867f) <= 1e-6f);
}

std::vector<float> slopes_of(int64_t heads) {
  std::vector<float> slopes(static_cast<size_t>(heads));
  REQUIRE(lw_alibi_slopes(heads, slopes.data()).code == LW_OK);
  return slopes;
}

float power(double exponent) { return static_cast<float>(std::pow(2.0, exponent)); }

TEST_CASE("I01, I05: standard slopes of any head count") {
  std::vector<float> expected;
  for (int i = 1; i <= 8; ++i) expected.push_back(power(-i));
  for (const double e : {-0.5, -1.5, -2.5, -3.5}) expected.push_back(power(e));
  CHECK(slopes_of(12) == expected);
  CHECK(slopes_of(1) == std::vector<float>{power(-8)});
  CHECK(slopes_of(3) == std::vector<float>{power(-4), power(-8), power(-2)});
  CHECK(slopes_of(5) == std::vector<float>{power(-2), power(-4), power(-6), power(-8), power(-1)});
  CHECK(slopes_of(6) == std::vector<float>{power(-2), power(-4), power(-6), power(-8), power(-1), power(-3)});
  CHECK(slopes_of(7) ==
        std::vector<float>{power(-2), power(-4), power(-6), power(-8), power(-1), power(-3), power(-5)});
  for (const int64_t heads : {40, 66}) {
    const int64_t lower = heads == 40 ? 32 : 64;
    const std::vector<float> slopes = slopes_of(heads), below = slopes_of(lower), above = slopes_of(2 * lower);
    for (int64_t i = 0; i < heads; ++i)
      CHECK(slopes[size_t(i)] == (i < lower ? below[size_t(i)] : above[size_t(2 * (i - lower))]));
  }
  CHECK(lw_alibi_slopes(0, expected.data()).code == LW_INVALID_ARGUMENT);
  CHECK(std::string(lw_alibi_slopes(-3, expected.data()).message).find("-3") != std::string::npos);
  CHECK(std::string(lw_alibi_slopes(4, nullptr).message).find("slopes") != std::string::npos);
}

TEST_CASE("I05: slopes belong to query heads, grouped or not") {
  Case().batch(2).heads(6, 2).len(9, 40).dims(16).causal().alibi(slopes_of(6)).check();
  std::vector<float> per_sequence = slopes_of(6);
  for (const float slope : slopes_of(6)) per_sequence.push_back(2 * slope);
  Case().batch(2).heads(6, 2).len(9, 40).dims(16).causal().alibi(per_sequence).check();
}

TEST_CASE("I03: ALiBi makes far keys light") {
  Case c = Case().heads(1, 1).len(8, 8).dims(1, 8).causal().alibi({1});
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& v) { v = j == x; });
  for (const Result& result : c.check()) {
    CHECK(std::fabs(result.out.at(0, 0, 7, 7) - 0.6323327f) <= 1e-6f);
    for (int64_t j = 0; j < 7; ++j)
      CHECK(std::fabs(result.out.at(0, 0, 7, j + 1) / result.out.at(0, 0, 7, j) - 2.7182818f) <= 4e-6f);
  }
}

TEST_CASE("I03: distances that float32 does not hold exactly") {
  Case c = Case().heads(2, 1).len(20, 40).dims(8).alibi({1e-8f, 1e-7f}).q_offset((int64_t{1} << 25) + 7);
  c.check();
  c.q_offset(-(int64_t{1} << 31) - 5).check();
}

TEST_CASE("q_positions are any int32: before the first key, behind the last, as far away as there is") {
  constexpr int32_t kFirst = std::numeric_limits<int32_t>::min(), kLast = std::numeric_limits<int32_t>::max();
  const std::vector<int32_t> positions = {kFirst, -1, 0, 20, 40, kLast};
  for (const int64_t heads : {1, 9}) {  // few rows, and many
    Case plain = Case().heads(heads, 1).len(6, 41).dims(8).q_positions(positions);
    plain.check();
    for (const Result& result : Case(plain).causal().check()) {
      for (int64_t h = 0; h < heads; ++h) {
        for (const int64_t i : {0, 1}) {  // see nothing
          CHECK(result.out.at(0, h, i, 3) == 0);
          CHECK(result.lse.at(0, h, i) == -kInf);
        }
        CHECK(std::fabs(result.out.at(0, h, 2, 3) - plain.v().at(0, 0, 0, 3)) <= 1e-6f);  // sees key 0 alone
      }
    }
    Case(plain).window(5, 2).check();
    Case(plain).window(kLast, kLast).check();
    Case(plain).causal().prefix(7).paged(4).check();
    const std::vector<float> slopes(static_cast<size_t>(heads), 1e-9f);  // distances up to 2^33
    Case(plain).alibi(slopes).check();
    Case(plain).alibi(slopes).kv_starts({kLast}).check();
    Case(plain).kv_starts({kLast}).window(kLast, 0).check();
  }
}

TEST_CASE("J01: a sink takes its share") {
  for (const int32_t type : {LW_TYPE_F32, LW_TYPE_BF16}) {
    Case c = Case().heads(1, 1).len(1, 5).dims(8).types(type, type, LW_TYPE_F32).sinks({1.5f});
    c.q().fill(0);
    c.v().fill(1);
    for (const Result& result : c.check()) CHECK(std::fabs(result.out.values[0] - 0.5273322f) <= 1e-6f);
  }
  for (size_t len = 1; len <= 70; ++len) {
    Case c = scores_case(std::vector<float>(len, 0.0f), ones(len)).sinks({std::log(static_cast<float>(len))});
    for (const Result& result : c.check()) CHECK(std::fabs(result.out.values[0] - 0.5f) <= 1e-6f);
  }
}

TEST_CASE("J03: sinks of any size, and none") {
  for (const float sink : {-kInf, -1e4f, -80.0f, 0.0f, 80.0f, 1e4f}) {
    Case c = scores_case(std::vector<float>(5, 0.0f), ones(5));
    const std::vector<Result> without = c.check();
    const double weight = std::exp(static_cast<double>(sink));
    size_t n = 0;
    for (const Result& result : c.sinks({sink}).check()) {
      CHECK(std::fabs(static_cast<double>(result.out.values[0]) - 5 / (5 + weight)) <= 1e-6);
      const double lse = sink > 1e3f ? static_cast<double>(sink) : std::log(5 + weight);
      CHECK(std::fabs(static_cast<double>(result.lse.values[0]) - lse) <= 1e-6 * std::max(1.0, lse));
      if (sink == -kInf) CHECK(bit_difference(without[n], result) == "");
      ++n;
    }
  }
}

TEST_CASE("J03: a sink alone, and sinks that are not numbers") {
  for (const int64_t q_len : {1, 40}) {
    Case alone = Case().heads(2, 1).len(q_len, 30).dims(4).sinks({2.5f, -kInf}).mask(Array({1, 1, 1, 30}));
    for (const Result& result : alone.check()) {
      for (const float value : result.out.values) CHECK(value == 0);
      CHECK(std::fabs(result.lse.at(0, 0, 0) - 2.5f) <= 1e-6f);
      CHECK(result.lse.at(0, 1, 0) == -kInf);
    }
    Case nan = Case().heads(3, 3).len(q_len, 30).dims(4).sinks({kInf, 0, std::numeric_limits<float>::quiet_NaN()});
    for (const Result& result : nan.check()) {
      CHECK(std::isnan(result.out.at(0, 0, 0, 0)));
      CHECK(!std::isnan(result.out.at(0, 1, 0, 0)));
      CHECK(std::isnan(result.lse.at(0, 2, 0)));
    }
  }
}

TEST_CASE("J05: a sink is neither capped nor scaled") {
  Case c = Case().heads(1, 1).len(1, 5).dims(4).scale(0.125f).softcap(2).sinks({5});
  c.q().fill(0);
  c.v().fill(1);
  for (const Result& result : c.check()) CHECK(std::fabs(result.out.values[0] - 0.0325917f) <= 1e-6f);
}

}  // namespace
}  // namespace lanewise::test
