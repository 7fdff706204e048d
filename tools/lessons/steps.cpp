#include "lessons/steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lessons/random.hpp"
#include "lessons/studies.hpp"
#include "src/reference.hpp"

namespace lanewise::lessons {

std::vector<OnlineStep> online_softmax(const std::vector<double>& scores, const std::vector<double>& v, size_t v_dim) {
  std::vector<OnlineStep> steps;
  OnlineStep now = {0, -std::numeric_limits<double>::infinity(), 0, 0, std::vector<double>(v_dim)};
  for (size_t j = 0; j < scores.size(); ++j) {
    const double row_max = std::max(now.row_max, scores[j]);
    now.rescale = std::exp(now.row_max - row_max);
    now.score = scores[j];
    now.row_max = row_max;
    const double p = std::exp(scores[j] - row_max);
    now.row_sum = now.row_sum * now.rescale + p;
    for (size_t x = 0; x < v_dim; ++x) now.acc[x] = now.acc[x] * now.rescale + p * v[j * v_dim + x];
    steps.push_back(now);
  }
  return steps;
}

std::vector<Overflow> overflow_study(const std::vector<float>& scores, const std::string& target) {
  const Both weights = softmax_of(scores, target);
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (const float score : scores) sum += std::exp(score);
  std::vector<Overflow> rows;
  for (size_t j = 0; j < scores.size(); ++j) {
    const float naive = std::exp(scores[j]);
    rows.push_back({scores[j], naive, std::exp(static_cast<double>(scores[j])),
                    std::exp(static_cast<double>(scores[j]) - largest), static_cast<double>(naive / sum),
                    weights.kernel[j], weights.reference[j]});
  }
  return rows;
}

BlockStudy block_study(uint64_t seed, const std::string& target) {
  constexpr int64_t kBlock = 256, kBlocks = 4, kDim = 64;
  Random random(seed);
  std::vector<float> q(kDim), k(kBlock * kBlocks * kDim), v(kBlock * kBlocks);
  for (float& value : q) value = random.normal();
  for (size_t n = 0; n < k.size(); ++n) {
    const size_t block = n / (kBlock * kDim);
    k[n] = random.normal() * static_cast<float>(block + 1);
  }
  for (float& value : v) value = random.normal();
  const Heads heads = {1, 1, kBlock * kBlocks, kDim, q.data(), k.data(), inverse_root(kDim)};
  BlockStudy study;
  State merged;
  for (int64_t b = 0; b < kBlocks; ++b) {
    const State block = state_of(heads, v, 1, b * kBlock, kBlock, target);
    const float before = b == 0 ? block.row_max : merged.row_max;
    merged = b == 0 ? block : merge(merged, block);
    const double rescale = b == 0 ? 0 : std::exp2(static_cast<double>(before - merged.row_max));
    // lse in double from the state: (row_max + log2 row_sum) ln 2.
    const double lse = (merged.row_max + std::log2(static_cast<double>(merged.row_sum))) * 0.69314718055994531;
    Heads so_far = heads;
    so_far.kv_len = (b + 1) * kBlock;
    const Both scores = scores_of(so_far, target);
    double sum = 0;
    const double top = *std::max_element(scores.reference.begin(), scores.reference.end());
    for (const double score : scores.reference) sum += std::exp(score - top);
    study.steps.push_back({block, merged, rescale, lse, top + std::log(sum)});
  }
  study.whole = state_of(heads, v, 1, 0, kBlock * kBlocks, target);
  const auto same = [](float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  study.same_bits = same(merged.row_max, study.whole.row_max) && same(merged.row_sum, study.whole.row_sum) &&
                    same(merged.acc[0], study.whole.acc[0]);
  return study;
}

}  // namespace lanewise::lessons
