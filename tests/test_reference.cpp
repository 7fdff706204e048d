// The reference against answers that are known without it: closed forms, hand-checked examples, real inputs with
// float64 answers from elsewhere. One case a rule, so that a wrong rule names itself.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "src/reference.hpp"
#include "support/case.hpp"
#include "support/compare.hpp"

namespace lanewise::test {
namespace {

constexpr double kExact = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// One head, every score 0 and v[j] = j: the output of a row is the mean index of its visible keys.
Case uniform(int64_t q_len, int64_t kv_len) {
  Case c = Case().heads(1, 1).len(q_len, kv_len).dims(1);
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& value) { value = static_cast<float>(j); });
  return c;
}

void check_rows(const ReferenceResult& found, const std::vector<double>& out) {
  REQUIRE(found.out.size() == out.size());
  for (size_t n = 0; n < out.size(); ++n) {
    INFO("element " << n << ": " << found.out[n] << ", expected " << out[n]);
    CHECK(agrees(found.out[n], out[n], kExact));
  }
}

// Compares `found` with a definition of visibility by itself: visible(i, j), key positions from 0.
void check_visible(const Prepared& p, const std::function<bool(int64_t, int64_t)>& visible) {
  const ReferenceResult found = solve(p);
  for (int64_t i = 0; i < p.problem.q_len; ++i) {
    double sum = 0, count = 0;
    for (int64_t j = 0; j < p.problem.kv_len; ++j) {
      if (!visible(i, j)) continue;
      sum += static_cast<double>(j);
      count += 1;
    }
    INFO("row " << i);
    const size_t row = static_cast<size_t>(i);
    CHECK(agrees(found.out[row], count > 0 ? sum / count : 0, kExact));
    CHECK(agrees(found.lse[row], count > 0 ? std::log(count) : -kInfinity, kExact));
  }
}

TEST_CASE("reference: causal, window and prefix see what they say") {
  for (const int64_t offset : {-3, 0, 4, 20}) {
    Prepared p = uniform(9, 13).q_offset(offset).prepare();
    p.problem.causal = 1;
    check_visible(p, [=](int64_t i, int64_t j) { return j <= i + offset; });
    p.problem.prefix_len = 3;
    check_visible(p, [=](int64_t i, int64_t j) { return j < 3 || j <= i + offset; });
    p.problem.window_left = 2;
    check_visible(p, [=](int64_t i, int64_t j) { return j < 3 || (j <= i + offset && j >= i + offset - 2); });
    p.problem.causal = 0;
    p.problem.prefix_len = 0;
    check_visible(p, [=](int64_t i, int64_t j) { return j >= i + offset - 2; });
    p.problem.window_right = 0;
    check_visible(p, [=](int64_t i, int64_t j) { return j >= i + offset - 2 && j <= i + offset; });
    p.inputs.overrides = LW_OVERRIDE_WINDOW | LW_OVERRIDE_Q_OFFSET;
    p.inputs.window_left = 0;
    p.inputs.window_right = 1;
    p.inputs.q_offset = 2;
    check_visible(p, [](int64_t i, int64_t j) { return j >= i + 2 && j <= i + 3; });
  }
}

TEST_CASE("reference: q_offset's default lines up the last query with the last key") {
  check_visible(uniform(4, 9).causal().prepare(), [](int64_t i, int64_t j) { return j <= i + 5; });
  check_visible(uniform(7, 3).causal().prepare(),
                [](int64_t i, int64_t j) { return j <= i - 4; });  // rows 0-3 see none
  const std::vector<int32_t> lengths = {6}, starts = {10}, offsets = {12}, positions = {11, 11, 15};
  Prepared p = uniform(3, 9).kv_lengths(lengths).prepare();
  p.problem.causal = 1;
  check_visible(p, [](int64_t i, int64_t j) { return j < 6 && j <= i + 3; });
  // Row 0 of k at position 10: the default moves along, an explicit offset does not.
  p.inputs.kv_starts = starts.data();
  check_visible(p, [](int64_t i, int64_t j) { return j < 6 && j <= i + 3; });
  p.inputs.q_offsets = offsets.data();
  check_visible(p, [](int64_t i, int64_t j) { return j < 6 && 10 + j <= 12 + i; });
  p.inputs.q_positions = positions.data();
  p.inputs.q_positions_stride[1] = 1;
  check_visible(p, [&](int64_t i, int64_t j) { return j < 6 && 10 + j <= positions[static_cast<size_t>(i)]; });
}

TEST_CASE("reference: bool, bit and additive masks hide alike") {
  const auto visible = [](int64_t i, int64_t j) { return (i * 5 + j * 3) % 7 < 4 && i != 2; };
  std::vector<uint8_t> flags(4 * 19), bits(4 * 3);
  std::vector<float> lowest(4 * 19), minus_infinity(4 * 19), limit(4 * 19);
  std::vector<uint16_t> f16(4 * 19), bf16(4 * 19);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 19; ++j) {
      const size_t n = static_cast<size_t>(i * 19 + j);
      const bool seen = visible(i, j);
      flags[n] = seen;
      bits[static_cast<size_t>(i * 3 + j / 8)] |= static_cast<uint8_t>(seen << (j % 8));
      lowest[n] = seen ? 0.0f : -std::numeric_limits<float>::max();
      minus_infinity[n] = seen ? 0.0f : -kInf;
      limit[n] = seen ? 0.0f : -1e38f;
      f16[n] = seen ? 0 : 0xfc00;   // -inf
      bf16[n] = seen ? 0 : 0xff7f;  // the lowest finite bf16
    }
  }
  Case c = uniform(4, 19);
  c.k().at(0, 0, 8, 0) = kNan;  // hidden in row 2 only; its score is NaN elsewhere
  const auto check = [&](int32_t mask_type, int32_t bias_type, const void* data, int64_t row_stride) {
    Prepared p = uniform(4, 19).prepare();
    p.problem.mask_type = mask_type;
    p.problem.bias_type = bias_type;
    const int32_t type = mask_type ? mask_type : bias_type;
    (mask_type ? p.inputs.mask : p.inputs.bias) = tensor_at(data, type, {0, 0, row_stride, 1});
    check_visible(p, visible);
    Prepared with_nan = c.prepare();
    with_nan.problem = p.problem;
    with_nan.inputs.mask = p.inputs.mask;
    with_nan.inputs.bias = p.inputs.bias;
    const ReferenceResult found = solve(with_nan);
    for (size_t i = 0; i < 4; ++i) CHECK(std::isnan(found.out[i]) == visible(static_cast<int64_t>(i), 8));
    CHECK(found.lse[2] == -kInfinity);
  };
  check(LW_TYPE_BOOL, LW_TYPE_NONE, flags.data(), 19);
  check(LW_TYPE_BITS, LW_TYPE_NONE, bits.data(), 3);
  check(LW_TYPE_NONE, LW_TYPE_F32, lowest.data(), 19);
  check(LW_TYPE_NONE, LW_TYPE_F32, minus_infinity.data(), 19);
  check(LW_TYPE_NONE, LW_TYPE_F32, limit.data(), 19);
  check(LW_TYPE_NONE, LW_TYPE_F16, f16.data(), 19);
  check(LW_TYPE_NONE, LW_TYPE_BF16, bf16.data(), 19);
}

TEST_CASE("reference: scale is a number, not a marker") {
  // H07: q = .1 ... .6, k = .7 ... 1.2, v = 1 ... 6.
  Case c = Case().heads(1, 1).len(3, 3).dims(2).causal();
  for (size_t n = 0; n < 6; ++n) {
    c.q().values[n] = 0.1f * static_cast<float>(n + 1);
    c.k().values[n] = 0.7f + 0.1f * static_cast<float>(n);
    c.v().values[n] = static_cast<float>(n + 1);
  }
  check_rows(solve(Case(c).scale(0).prepare()), {1, 2, 2, 3, 3, 4});
  const float root_half = static_cast<float>(1 / std::sqrt(2.0));
  CHECK(solve(Case(c).prepare()).out == solve(Case(c).scale(root_half).prepare()).out);
  CHECK(solve(Case(c).scale(-1).prepare()).out[2] < 2);  // the later key, with the larger score, now weighs less
  Prepared p = Case(c).scale(3).prepare();
  p.inputs.overrides = LW_OVERRIDE_SCALE;
  p.inputs.scale = 0;
  check_rows(solve(p), {1, 2, 2, 3, 3, 4});
}

TEST_CASE("reference: softcap comes before bias") {
  Prepared p = scores_case({120, 60}, {1, 0}).prepare();
  p.problem.softcap = 30;  // H05
  check_rows(solve(p), {1 / (1 + std::exp(30 * (std::tanh(2.0) - std::tanh(4.0))))});
  CHECK(std::fabs(solve(p).out[0] - 0.7425093) < 1e-7);
  CHECK(solve(p).softcapped);
  p = scores_case({0, 0, 0, 0}, {1, 0, 0, 0}).prepare();
  const float bias[] = {5, 0, 0, 0};
  p.problem.softcap = 1;
  p.problem.bias_type = LW_TYPE_F32;
  p.inputs.bias = tensor_at(bias, LW_TYPE_F32, {0, 0, 0, 1});
  check_rows(solve(p), {std::exp(5) / (std::exp(5) + 3)});  // H09: 0.9801867
  p.inputs.overrides = LW_OVERRIDE_SOFTCAP;
  p.inputs.softcap = 0;
  check_rows(solve(p), {std::exp(5) / (std::exp(5) + 3)});
  CHECK_FALSE(solve(p).softcapped);
}

TEST_CASE("reference: ALiBi falls with distance, by query head and sequence") {
  Case c = Case().batch(2).heads(4, 2).len(8, 8).dims(1);
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& value) { value = j == 7; });
  Prepared p = c.prepare();
  const float slopes[] = {1, 0.5, 2, 0, 3, 4, 0.25, 1};
  p.problem.alibi = 1;
  p.inputs.alibi_slopes = slopes;
  p.inputs.alibi_batch_stride = 4;
  const ReferenceResult found = solve(p);
  for (size_t row = 0; row < 64; ++row) {
    const double slope = static_cast<double>(slopes[row / 8]), i = static_cast<double>(row % 8);
    double sum = 0;
    for (double j = 0; j < 8; ++j) sum += std::exp(-slope * std::fabs(i - j));
    CHECK(agrees(found.out[row], std::exp(-slope * (7 - i)) / sum, kExact));
  }
  CHECK(std::fabs(found.out[7] - 0.6323327) < 1e-3);  // I03 to the leading digits: its row 7, slope 1
}

TEST_CASE("reference: a sink takes weight and gives none (J01, J03, J05)") {
  const std::vector<float> ones(5, 1.0f), zeros(5, 0.0f);
  for (const float sink : {-kInf, -1e4f, -80.0f, 0.0f, 1.5f, 80.0f, 1e4f}) {
    Prepared p = scores_case(zeros, ones).prepare();
    p.problem.sinks = 1;
    p.problem.softcap = 2;  // J05: the sink is neither capped nor scaled
    p.inputs.sinks = &sink;
    const double logit = static_cast<double>(sink), top = std::max(logit, std::log(5.0));
    check_rows(solve(p), {1 / (1 + std::exp(logit - std::log(5.0)))});
    CHECK(agrees(solve(p).lse[0], top + std::log1p(std::exp(std::min(logit, std::log(5.0)) - top)), kExact * 1e4));
    const int32_t none = 0;
    p.inputs.kv_lengths = &none;
    check_rows(solve(p), {0});
    CHECK(solve(p).lse[0] == logit);
  }
  for (const float sink : {kNan, kInf}) {
    Prepared p = scores_case(zeros, ones).prepare();
    p.problem.sinks = 1;
    p.inputs.sinks = &sink;
    check_rows(solve(p), {static_cast<double>(kNan)});
  }
}

TEST_CASE("reference: undefined scores make their row NaN, -inf scores weigh nothing") {
  const auto row = [](const std::vector<float>& score, const std::vector<float>& value) {
    return solve(scores_case(score, value).prepare());
  };
  CHECK(std::isnan(row({0, kNan}, {1, 2}).out[0]));
  CHECK(std::isnan(row({0, kNan}, {1, 2}).lse[0]));
  CHECK(std::isnan(row({0, kInf}, {1, 2}).out[0]));
  check_rows(row({0, -kInf}, {1, 2}), {1});
  check_rows(row({-kInf, -kInf}, {1, kNan}), {0});
  CHECK(row({-kInf, -kInf}, {1, 2}).lse[0] == -kInfinity);
  CHECK(std::isnan(row({0, -kInf}, {1, kInf}).out[0]));  // visible, so 0 * inf takes part
  check_rows(row({0, 0}, {1, kInf}), {kInfinity});
  check_rows(row({-80000, -80001}, {0, 1}), {1 / (1 + std::exp(1))});
}

}  // namespace
}  // namespace lanewise::test
