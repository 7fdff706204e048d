// docs/CONVENTIONS.md: each line's meaning, computed here from its definition in double, against what its arguments give
// in lanewise. Ids are those of the page.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/statistics.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 16;

// What the other library says: a key is hidden or its scaled score becomes another.
using Meaning = std::function<double(int64_t h, int64_t i, int64_t j, double score)>;  // -inf: hidden

struct Answer {
  Array out, lse;
};

Answer answer(Case c, int64_t q_len, int64_t kv_len, const Meaning& meaning, const std::vector<float>& sinks = {}) {
  Answer a = {Array({1, kHeads, q_len, kDim}), Array({1, kHeads, q_len, 1})};
  for (int64_t h = 0; h < kHeads; ++h) {
    const int64_t g = h / (kHeads / kKvHeads);
    for (int64_t i = 0; i < q_len; ++i) {
      double sum = sinks.empty() ? 0 : std::exp(static_cast<double>(sinks[size_t(h)]));
      std::vector<double> out(size_t(kDim), 0.0);
      for (int64_t j = 0; j < kv_len; ++j) {
        double dot = 0;
        for (int64_t x = 0; x < kDim; ++x) dot += double{c.q().at(0, h, i, x)} * double{c.k().at(0, g, j, x)};
        const double weight = std::exp(meaning(h, i, j, dot / std::sqrt(double{kDim})));
        sum += weight;
        for (int64_t x = 0; x < kDim; ++x) out[size_t(x)] += weight * double{c.v().at(0, g, j, x)};
      }
      for (int64_t x = 0; x < kDim; ++x)
        a.out.at(0, h, i, x) = sum > 0 ? static_cast<float>(out[size_t(x)] / sum) : 0.0f;
      a.lse.at(0, h, i) = static_cast<float>(std::log(sum));
    }
  }
  return a;
}

Case plain(int64_t q_len, int64_t kv_len) { return Case().heads(kHeads, kKvHeads).len(q_len, kv_len).dims(kDim); }

void check(const char* id, Case c, int64_t q_len, int64_t kv_len, const Meaning& meaning,
           const std::vector<float>& sinks = {}) {
  const Answer expected = answer(c, q_len, kv_len, meaning, sinks);
  for_each_target([&](const std::string& target) {
    INFO(id << " on " << target);
    const Result result = c.run({target});
    REQUIRE(std::string(result.status.message) == "");
    for (size_t n = 0; n < expected.out.values.size(); ++n)
      CHECK(std::fabs(result.out.values[n] - expected.out.values[n]) <= 3e-6f);
    for (size_t n = 0; n < expected.lse.values.size(); ++n) {
      CHECK((result.lse.values[n] == expected.lse.values[n] ||
             std::fabs(result.lse.values[n] - expected.lse.values[n]) <= 5e-6f));
    }
  });
}

double visible(bool sees, double score) { return sees ? score : -kInf; }

template <class Value>
Array filled(const Shape& shape, Value value) {
  Array array(shape);
  array.each([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) { x = static_cast<float>(value(b, h, i, j)); });
  return array;
}

TEST_CASE("PyTorch") {
  check("P1", plain(5, 9).causal().q_offset(0), 5, 9,
        [](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i, s); });
  const auto keep = [](int64_t h, int64_t i, int64_t j) { return (h + 2 * i + j) % 3 != 0; };
  check("P2",
        plain(5, 9).mask(
            filled({1, kHeads, 5, 9}, [&](int64_t, int64_t h, int64_t i, int64_t j) { return keep(h, i, j); })),
        5, 9, [&](int64_t h, int64_t i, int64_t j, double s) { return visible(keep(h, i, j), s); });
  check("P2 broadcast",
        plain(5, 9).mask(filled({1, 1, 1, 9}, [&](int64_t, int64_t, int64_t, int64_t j) { return keep(0, 0, j); })), 5,
        9, [&](int64_t, int64_t, int64_t j, double s) { return visible(keep(0, 0, j), s); });
  Array bias = random_array({1, 1, 5, 9}, 60, 2);
  bias.at(0, 0, 3, 4) = -std::numeric_limits<float>::infinity();
  check("P3", plain(5, 9).bias(bias), 5, 9,
        [&](int64_t, int64_t i, int64_t j, double s) { return s + double{bias.at(0, 0, i, j)}; });
  check("P4", plain(5, 9), 5, 9, [](int64_t, int64_t, int64_t, double s) { return s; });
  check("P5", plain(5, 9).mask(filled({1, 1, 5, 1}, [](int64_t, int64_t, int64_t i, int64_t) { return i != 2; })), 5, 9,
        [](int64_t, int64_t i, int64_t, double s) { return visible(i != 2, s); });
}

TEST_CASE("FlashAttention and FlashInfer") {
  const auto position = [](int64_t i) { return i + 20 - 7; };
  const Meaning causal = [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= position(i), s); };
  check("F1", plain(7, 20).causal(), 7, 20, causal);
  check("F1 ragged", plain(7, 20).causal().ragged_q().ragged_kv(), 7, 20, causal);
  check("F1 paged", plain(7, 20).causal().paged(4), 7, 20, causal);
  check("F2", plain(7, 20).window(3, 2), 7, 20, [&](int64_t, int64_t i, int64_t j, double s) {
    return visible(position(i) - 3 <= j && j <= position(i) + 2, s);
  });
  check("F3", plain(7, 20).softcap(0.5f), 7, 20,
        [](int64_t, int64_t, int64_t, double s) { return 0.5 * std::tanh(s / 0.5); });
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  check("F4, F5", plain(7, 20).alibi(slopes).causal(), 7, 20, [&](int64_t h, int64_t i, int64_t j, double s) {
    return visible(j <= position(i), s - double{slopes[size_t(h)]} * std::abs(double(position(i) - j)));
  });
  Case base2 = plain(7, 20);
  const Answer natural = answer(base2, 7, 20, [](int64_t, int64_t, int64_t, double s) { return s; });
  for_each_target([&](const std::string& target) {  // I1: log2 of the sum of 2^(score * log2 e)
    const Result result = base2.run({target});
    for (size_t n = 0; n < natural.lse.values.size(); ++n) {
      const double theirs = std::log2(std::exp(double{natural.lse.values[n]}));
      CHECK(std::fabs(double{result.lse.values[n]} / 0.6931471805599453 - theirs) <= 5e-6);
    }
  });
  const auto keep = [](int64_t i, int64_t j) { return (5 * i + j) % 4 != 1; };
  check("I2",
        plain(7, 20).mask(filled({1, 1, 7, 20}, [&](int64_t, int64_t, int64_t i, int64_t j) { return keep(i, j); }),
                          LW_TYPE_BITS),
        7, 20, [&](int64_t, int64_t i, int64_t j, double s) { return visible(keep(i, j), s); });
  const auto listed = [](int64_t r, int64_t c) { return (r + c) % 2 == 0; };
  check("I3",
        plain(7, 20).block_mask(
            2, 3, filled({1, 1, 4, 7}, [&](int64_t, int64_t, int64_t r, int64_t c) { return listed(r, c); })),
        7, 20, [&](int64_t, int64_t i, int64_t j, double s) { return visible(listed(i / 2, j / 3), s); });
}

TEST_CASE("ONNX, Hugging Face, llama.cpp") {
  const int64_t past = 13;
  check("O1", plain(7, 20).causal().q_offset(past), 7, 20,
        [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i + past, s); });
  const Array bias = random_array({1, kHeads, 7, 20}, 61);
  check("O2", plain(7, 20).softcap(0.5f).bias(bias), 7, 20, [&](int64_t h, int64_t i, int64_t j, double s) {
    return 0.5 * std::tanh(s / 0.5) + double{bias.at(0, h, i, j)};
  });
  for (const int64_t w : {1, 4, 50}) {
    check("H1", plain(7, 20).causal().window(w - 1, -1), 7, 20,
          [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i + past && i + past - j < w, s); });
  }
  const auto kept = [](int64_t j) { return j >= 4; };  // left padding
  check(
      "H2",
      plain(7, 20).causal().mask(filled({1, 1, 1, 20}, [&](int64_t, int64_t, int64_t, int64_t j) { return kept(j); })),
      7, 20, [&](int64_t, int64_t i, int64_t j, double s) { return visible(kept(j) && j <= i + past, s); });
  for (const float lowest : {std::numeric_limits<float>::lowest(), -65504.0f}) {
    check("H3",
          plain(7, 20).bias(filled(
              {1, 1, 7, 20}, [&](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + past ? 0.0f : lowest; })),
          7, 20, [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i + past, s); });
  }
  const std::vector<float> sinks = {0.5f, -1, 2, 0};
  check(
      "H4", plain(7, 20).causal().sinks(sinks), 7, 20,
      [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i + past, s); }, sinks);
  std::vector<float> slopes(kHeads);
  REQUIRE(lw_alibi_slopes(kHeads, slopes.data()).code == LW_OK);
  check("L1", plain(7, 20).causal().alibi(slopes), 7, 20, [&](int64_t h, int64_t i, int64_t j, double s) {
    const double mask = j <= i + past ? -std::abs(double(i + past - j)) : -kInf;
    return s + std::exp2(-8.0 * double(h + 1) / double(kHeads)) * mask;
  });
}

// [1, kHeads, q_len, kv_len] as the other libraries return them: a softmax over the keys, and a sink as one more logit
// that is dropped afterwards.
Array softmax_weights(Case c, int64_t q_len, int64_t kv_len, const Meaning& meaning, const std::vector<float>& sinks) {
  const Answer whole = answer(c, q_len, kv_len, meaning, sinks);
  Array weights({1, kHeads, q_len, kv_len});
  weights.each([&](int64_t, int64_t h, int64_t i, int64_t j, float& weight) {
    double dot = 0;
    for (int64_t x = 0; x < kDim; ++x)
      dot += double{c.q().at(0, h, i, x)} * double{c.k().at(0, h / (kHeads / kKvHeads), j, x)};
    const double score = meaning(h, i, j, dot / std::sqrt(double{kDim}));
    weight = static_cast<float>(std::exp(score - double{whole.lse.at(0, h, i)}));
  });
  return weights;
}

TEST_CASE("attention weights, and sums of them for cache eviction") {
  const int64_t past = 13;
  const Meaning causal = [&](int64_t, int64_t i, int64_t j, double s) { return visible(j <= i + past, s); };
  const std::vector<float> sinks = {0.5f, -1, 2, 0};
  for (const bool with_sinks : {false, true}) {  // W1, W2
    Case c = plain(7, 20).causal();
    if (with_sinks) c.sinks(sinks);
    const Array weights = softmax_weights(c, 7, 20, causal, with_sinks ? sinks : std::vector<float>());
    for_each_target([&](const std::string& target) {
      const Statistics s = run_with_statistics(c, {}, {target});
      REQUIRE(std::string(s.status.message) == "");
      for (size_t n = 0; n < weights.values.size(); ++n)
        CHECK(std::fabs(s.weights.values[n] - weights.values[n]) <= 2e-6f);
      s.row_entropy.each([&](int64_t, int64_t h, int64_t i, int64_t, float entropy) {
        double bits = 0;
        for (int64_t j = 0; j < 20; ++j) {
          const double weight = double{weights.at(0, h, i, j)};
          if (weight > 0) bits -= weight * std::log2(weight);
        }
        CHECK(std::fabs(double{entropy} / 0.6931471805599453 - bits) <= 1e-5);
      });
      // W3: what queries 0 ... 4 gave, then 5 and 6 one by one. W4: the last 3 queries.
      Array so_far({1, kHeads, 20, 1});
      for (const int64_t begin : {0, 5, 6}) {
        StatisticsRequest step;
        step.row_begin = begin;
        step.row_end = begin == 0 ? 5 : begin + 1;
        step.columns_before = &so_far;
        so_far = run_with_statistics(c, step, {target}).column_sums;
      }
      StatisticsRequest last;
      last.row_begin = -3;
      const Array window = run_with_statistics(c, last, {target}).column_sums;
      so_far.each([&](int64_t, int64_t h, int64_t j, int64_t, float sum) {
        double all = 0, of_window = 0;
        for (int64_t i = 0; i < 7; ++i) {
          all += double{weights.at(0, h, i, j)};
          if (i >= 4) of_window += double{weights.at(0, h, i, j)};
        }
        CHECK(std::fabs(double{sum} - all) <= 1e-5);
        CHECK(std::fabs(double{window.at(0, h, j)} - of_window) <= 1e-5);
      });
    });
  }
}

}  // namespace
}  // namespace lanewise::test
