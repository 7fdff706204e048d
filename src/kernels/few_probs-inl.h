// Scores of a few rows become probs, row by row: plain rules, and what native_bf16 adds before and after.

#if defined(LANEWISE_FEW_PROBS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_PROBS_INL_H_
#undef LANEWISE_FEW_PROBS_INL_H_
#else
#define LANEWISE_FEW_PROBS_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/few_loops-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/prob-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hides scores of a row at keys outside [begin, end) of the block; the row's maximum over visible ones; then probs in
// place.
static inline HWY_NOINLINE float ProbsOfRow(float* HWY_RESTRICT s, int64_t n, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const VisibleInterval<V> visible = {hn::Set(d, static_cast<float>(begin)), hn::Set(d, static_cast<float>(end))};
  V max = hn::Set(d, kNoMax);
  for (int64_t j = 0; j < n; j += N) {
    V score = hn::Load(d, s + j);
    if (j < begin || j + N > end) {
      const V key = hn::Iota(d, static_cast<float>(j));
      score = hn::IfThenElse(hn::And(hn::Le(visible.begin, key), hn::Lt(key, visible.end)), score, hn::Set(d, kHidden));
      hn::Store(score, d, s + j);
    }
    max = hn::Max(max, score);
  }
  max = hn::Ceil(hn::MaxOfLanes(d, max));
  for (int64_t j = 0; j < n; j += N) hn::Store(Prob(d, hn::Load(d, s + j), max), d, s + j);
  return hn::GetLane(max);
}

// Dots of native_bf16 come without factor.
static inline HWY_NOINLINE void ScaleScores(float factor, int64_t n, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < n; j += N) hn::Store(hn::Mul(hn::Load(d, s + j), hn::Set(d, factor)), d, s + j);
}

// n probs, rounded to bf16, become pairs: p[i] holds keys 2i and 2i + 1.
static inline HWY_NOINLINE void PairProbs(int64_t n, float* HWY_RESTRICT p) {
#if HWY_NATIVE_DOT_BF16
  const hn::ScalableTag<float> d;
  const hn::Repartition<hwy::bfloat16_t, decltype(d)> d16;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < n; j += 2 * N) {
    const auto first = hn::Load(d, p + j), second = hn::Load(d, p + j + N);
    hn::Store(hn::BitCast(d, hn::OrderedDemote2To(d16, first, second)), d, p + j / 2);
  }
#else
  (void)n;
  (void)p;
#endif
}

// Probs (or pairs of them) of `rows` rows, at most kMaxPassRows, as a value loop takes them: one row as it is, of more
// to[j * ProbStride(rows) + r] = p[r * kBlockKeys + j], j < n.
static inline HWY_NOINLINE const float* ProbsByKey(const float* HWY_RESTRICT p, int64_t rows, int64_t n,
                                                   float* HWY_RESTRICT to) {
  if (rows == 1) return p;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(decltype(d)()));
  const int64_t stride = static_cast<int64_t>(ProbStride(static_cast<size_t>(rows)));
  for (int64_t j = 0; j < n; j += N) {
    float* key[N];
    for (int64_t lane = 0; lane < N; ++lane) key[lane] = to + (j + lane) * stride;
    for (int64_t r = 0; r < stride; r += 4) {  // empty lanes repeat the last row
      V v[4];
      HWY_UNROLL(4)
      for (int64_t u = 0; u < 4; ++u) v[u] = hn::Load(d, p + HWY_MIN(r + u, rows - 1) * kBlockKeys + j);
      StoreTransposed(d, v, key, static_cast<size_t>(r));
    }
  }
  return to;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
