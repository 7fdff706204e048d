// Register tiles of rows-in-lanes in native_bf16 arithmetic, on pairs.
//
//   scores  s[j][r] = factor * sum over pairs of dims i of PairDot(q[i][r], k[j][i])
//   probs   p[j][r] = bf16(2^(s[j][r] - m[r])), row_sum[r] = sum over j of p[j][r], paired over keys
//   values  acc[x][r] = merge(acc[x][r], sum over pairs of keys i of PairDot(p[i][r], v[i][x]))
// States, merges and results are the canonical ones.

#if defined(LANEWISE_NATIVE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_NATIVE_TILES_INL_H_
#undef LANEWISE_NATIVE_TILES_INL_H_
#else
#define LANEWISE_NATIVE_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/pair_dot-inl.h"
#include "src/kernels/prob-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/ruled_tile-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"

// clang refuses a region for a target in which nothing is declared.
#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Runs of keys of a block, whole pairs each, in order. A gap of fewer keys than kSmallGap is computed and hidden: tiles are
// about as wide.
inline constexpr int64_t kSmallGap = 8;
struct PairRuns {
  int64_t count = 0;
  int64_t begin[kBlockKeys / kSmallGap], end[kBlockKeys / kSmallGap];
};

// ---- Scores ---------------------------------------------------------------------------------------------------------

template <size_t kVectors, size_t kKeys, bool kTakeMax, class V>
HWY_INLINE void PairScoreTile(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t pairs,
                              float factor, float* HWY_RESTRICT s, V* max) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V acc[kKeys][kVectors];
  HWY_UNROLL(16)
  for (size_t j = 0; j < kKeys; ++j) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) acc[j][i] = hn::Zero(d);
  }
  for (int64_t c = 0; c < pairs; ++c) {
    V qc[kVectors];
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) qc[i] = hn::Load(d, q + static_cast<size_t>(c) * kRows + i * N);
    HWY_UNROLL(16)
    for (size_t j = 0; j < kKeys; ++j) {
      PairDotBroadcast<kVectors <= 2>(d, k + static_cast<int64_t>(j) * stride + c, qc, acc[j]);
    }
  }
  if (kTakeMax) {
    HWY_FENCE;  // as in ScoreTile
  }
  const V factors = hn::Set(d, factor);
  HWY_UNROLL(4)
  for (size_t i = 0; i < kVectors; ++i) {
    V strip_max = kTakeMax ? max[i] : acc[0][i];
    HWY_UNROLL(16)
    for (size_t j = 0; j < kKeys; ++j) {
      const V score = hn::Mul(acc[j][i], factors);
      hn::Store(score, d, s + j * kRows + i * N);
      if (kTakeMax) strip_max = hn::Max(strip_max, score);
    }
    if (kTakeMax) max[i] = strip_max;
  }
}

template <size_t kVectors, bool kTakeMax, class V>
HWY_NOINLINE void PairScoreKeys(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t pairs,
                                float factor, int64_t begin, int64_t end, float* HWY_RESTRICT s, V* HWY_RESTRICT max,
                                Fetcher& fetcher) {
  constexpr size_t kRows = kVectors * hn::MaxLanes(hn::DFromV<V>());
  constexpr int64_t kKeys = TileShape<kVectors>::kKeys;
  int64_t j = begin;
  for (; j + kKeys <= end; j += kKeys) {
    if (fetcher.lines_a_step > 0) fetcher.Step();
    PairScoreTile<kVectors, kKeys, kTakeMax>(q, k + j * stride, stride, pairs, factor,
                                             s + static_cast<size_t>(j) * kRows, max);
  }
  for (; j + 4 <= end; j += 4) {
    PairScoreTile<kVectors, 4, kTakeMax>(q, k + j * stride, stride, pairs, factor, s + static_cast<size_t>(j) * kRows,
                                         max);
  }
  for (; j < end; ++j) {
    PairScoreTile<kVectors, 1, kTakeMax>(q, k + j * stride, stride, pairs, factor, s + static_cast<size_t>(j) * kRows,
                                         max);
  }
}

// ---- Probs ----------------------------------------------------------------------------------------------------------

// Scores of keys [begin, end), both even, become pairs of probs: row j / 2 of s holds keys j and j + 1. sum takes the
// probs in. max: the block's maximum, which each range rounds up to the reference maximum again.
template <size_t kVectors, class V>
HWY_NOINLINE void PairProbKeys(float* HWY_RESTRICT s, int64_t begin, int64_t end, V* HWY_RESTRICT max,
                               V* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V reference_max[kVectors], row_sum[kVectors];
  HWY_UNROLL(4)
  for (size_t i = 0; i < kVectors; ++i) {
    reference_max[i] = hn::Ceil(max[i]);
    row_sum[i] = sum[i];
  }
  for (int64_t j = begin; j < end; j += 2) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) {
      const float* at = s + static_cast<size_t>(j) * kRows + i * N;
      const V even = Prob(d, hn::Load(d, at), reference_max[i]);
      const V odd = Prob(d, hn::Load(d, at + kRows), reference_max[i]);
      const V pairs = RoundToPairs(d, even, odd);
      row_sum[i] = hn::Add(hn::Add(row_sum[i], EvenOf(d, pairs)), OddOf(d, pairs));
      hn::Store(pairs, d, s + static_cast<size_t>(j / 2) * kRows + i * N);
    }
  }
  HWY_UNROLL(4)
  for (size_t i = 0; i < kVectors; ++i) {
    max[i] = reference_max[i];
    sum[i] = row_sum[i];
  }
}

// ---- Values ---------------------------------------------------------------------------------------------------------

// p: [pair of keys][rows], v: [pair of keys][stride]; over runs of keys, whole pairs each.
template <size_t kVectors, size_t kDims, class V>
HWY_INLINE void PairValueTile(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride,
                              const PairRuns& runs, const MergeFactors<V> (&factors)[kVectors],
                              float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V acc[kDims][kVectors];
  HWY_UNROLL(16)
  for (size_t x = 0; x < kDims; ++x) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) acc[x][i] = hn::Zero(d);
  }
  for (int64_t n = 0; n < runs.count; ++n) {
    for (int64_t j = runs.begin[n] / 2; j < runs.end[n] / 2; ++j) {
      V pj[kVectors];
      HWY_UNROLL(4)
      for (size_t i = 0; i < kVectors; ++i) pj[i] = hn::Load(d, p + static_cast<size_t>(j) * kRows + i * N);
      const float* vj = v + j * stride;
      HWY_UNROLL(16)
      for (size_t x = 0; x < kDims; ++x) {
        PairDotBroadcast<kVectors <= 2>(d, vj + x, pj, acc[x]);
      }
    }
  }
  HWY_UNROLL(16)
  for (size_t x = 0; x < kDims; ++x) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) {
      float* at = span_acc + x * kRows + i * N;
      hn::Store(Merge(factors[i], hn::Load(d, at), acc[x][i]), d, at);
    }
  }
}

template <size_t kVectors, class V>
HWY_NOINLINE void AddPairValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, size_t v_dim,
                                const PairRuns& runs, const MergeFactors<V> (&factors)[kVectors],
                                float* HWY_RESTRICT span_acc) {
  constexpr size_t kRows = kVectors * hn::MaxLanes(hn::DFromV<V>());
  constexpr size_t kDims = TileShape<kVectors>::kKeys;
  size_t x = 0;
  for (; x + kDims <= v_dim; x += kDims)
    PairValueTile<kVectors, kDims>(p, v + x, stride, runs, factors, span_acc + x * kRows);
  for (; x + 4 <= v_dim; x += 4) PairValueTile<kVectors, 4>(p, v + x, stride, runs, factors, span_acc + x * kRows);
  for (; x < v_dim; ++x) PairValueTile<kVectors, 1>(p, v + x, stride, runs, factors, span_acc + x * kRows);
}

// The same where v may be NaN or infinite at hidden keys: each lane takes its visible keys alone. Same bits, slower.
template <class V>
HWY_NOINLINE void AddSeenPairValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride,
                                    size_t v_dim, size_t vectors, const uint32_t* HWY_RESTRICT bits,
                                    const PairRuns& runs, const MergeFactors<V>* factors,
                                    float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const size_t lanes = vectors * N;
  const auto half = [&](hn::Vec<decltype(du)> word, int64_t key, uint32_t mask) HWY_ATTR {
    return hn::IfThenElseZero(hn::TestBit(word, hn::Set(du, uint32_t{1} << (key % 32))), hn::Set(du, mask));
  };
  for (size_t x = 0; x < v_dim; ++x) {
    for (size_t i = 0; i < vectors; ++i) {
      V acc = hn::Zero(d);
      for (int64_t n = 0; n < runs.count; ++n) {
        for (int64_t j = runs.begin[n]; j < runs.end[n]; j += 2) {
          const auto word = hn::Load(du, bits + static_cast<size_t>(j / 32) * lanes + i * N);
          const auto seen = hn::Or(half(word, j, 0xffffu), half(word, j + 1, 0xffff0000u));
          const V vx = BroadcastPair(d, v + j / 2 * stride + static_cast<int64_t>(x));
          acc = PairDot(d, hn::Load(d, p + static_cast<size_t>(j / 2) * lanes + i * N),
                        hn::And(vx, hn::BitCast(d, seen)), acc);
        }
      }
      float* at = span_acc + x * lanes + i * N;
      hn::Store(Merge(factors[i], hn::Load(d, at), acc), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // per-target guard
