// Register tiles of rows-in-lanes: the loops in which nearly all time is spent.
//
//   ScoreTile   s[j][r] = sum over c of q[c][r] * k[j][c],  j < kKeys,  c ascending: one FMA chain an element
//   ValueTile   acc[x][r] = merge(acc[x][r], sum over j of p[j][r] * v[j][x]),  x < kDims,  j ascending
// r runs over the tile's vectors of rows. q, s, p, acc are scratch, vector-aligned, [...][rows of the tile]; k and v
// are rows of float32 with unit dim stride, read exactly (no element past a row or past the last key). Which vectors
// take part in which keys: strips-inl.h. Every loop over a register tile is unrolled by pragma, or gcc keeps
// accumulators in memory (tools/check_spills.py looks).

#if defined(LANEWISE_REGISTER_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_REGISTER_TILES_INL_H_
#undef LANEWISE_REGISTER_TILES_INL_H_
#else
#define LANEWISE_REGISTER_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/fetch_ahead-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/prob-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/strips-inl.h"
#include "src/kernels/tile_shapes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Scores ---------------------------------------------------------------------------------------------------------

// kStrips of the tile's vectors: q, s and max begin at the first of them; kRows is the tile's row count.
template <size_t kStrips, size_t kKeys, size_t kRows, bool kTakeMax, class V>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t qk_dim,
                          float* HWY_RESTRICT s, V* max, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  V acc[kKeys][kStrips];
  HWY_UNROLL(16)
  for (size_t j = 0; j < kKeys; ++j) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kStrips; ++i) acc[j][i] = hn::Zero(d);
  }
  const int64_t steps = fetcher.RowSteps(qk_dim);
  for (int64_t c = 0; c < qk_dim;) {
    fetcher.RowStep();
    const int64_t end = HWY_MIN(qk_dim, c + steps);
    for (; c < end; ++c) {
      V qc[kStrips];
      HWY_UNROLL(4)
      for (size_t i = 0; i < kStrips; ++i) qc[i] = hn::Load(d, q + static_cast<size_t>(c) * kRows + i * N);
      HWY_UNROLL(16)
      for (size_t j = 0; j < kKeys; ++j) {
        const V kj = hn::Set(d, k[static_cast<int64_t>(j) * stride + c]);
        HWY_UNROLL(4)
        for (size_t i = 0; i < kStrips; ++i) acc[j][i] = hn::MulAdd(qc[i], kj, acc[j][i]);
      }
    }
  }
  // Keeps max in memory during the loop above: in registers it would spill the tile (gcc 12: 2.4 % of prefill).
  if (kTakeMax) {
    HWY_FENCE;
  }
  HWY_UNROLL(4)
  for (size_t i = 0; i < kStrips; ++i) {
    V strip_max = kTakeMax ? max[i] : acc[0][i];
    HWY_UNROLL(16)
    for (size_t j = 0; j < kKeys; ++j) {
      hn::Store(acc[j][i], d, s + j * kRows + i * N);
      if (kTakeMax) strip_max = hn::Max(strip_max, acc[j][i]);
    }
    if (kTakeMax) max[i] = strip_max;
  }
}

// Scores of keys [begin, end). A function of its own, like the other loops over tiles: what its callers hold in
// registers must not spill the tile.
template <size_t kStrips, size_t kRows, bool kTakeMax, class V>
HWY_NOINLINE void ScoreKeys(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t qk_dim,
                            int64_t begin, int64_t end, float* HWY_RESTRICT s, V* HWY_RESTRICT max, Fetcher& fetcher) {
  constexpr int64_t kKeys = TileShape<kStrips>::kKeys;
  int64_t j = begin;
  for (; j + kKeys <= end; j += kKeys) {
    if (fetcher.lines_a_step > 0) fetcher.Step();
    ScoreTile<kStrips, kKeys, kRows, kTakeMax>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows,
                                               max, fetcher);
  }
  if constexpr (kKeys > 4) {
    for (; j + 4 <= end; j += 4) {
      ScoreTile<kStrips, 4, kRows, kTakeMax>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows, max,
                                             fetcher);
    }
  }
  for (; j < end; ++j) {
    ScoreTile<kStrips, 1, kRows, kTakeMax>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows, max,
                                           fetcher);
  }
}

// Scores of keys [begin, end) of which lanes may see others: hidden scores are replaced, and max takes visible ones
// alone.
template <size_t kStrips, size_t kRows, class V>
HWY_NOINLINE void ScoreEdgeKeys(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride,
                                int64_t qk_dim, int64_t begin, int64_t end, const VisibleInterval<V>* visible,
                                float* HWY_RESTRICT s, V* max, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  ScoreKeys<kStrips, kRows, false>(q, k, stride, qk_dim, begin, end, s, max, fetcher);
  for (size_t i = 0; i < kStrips; ++i) {
    V strip_max = max[i];
    for (int64_t j = begin; j < end; ++j) {
      float* at = s + static_cast<size_t>(j) * kRows + i * N;
      const V score =
          hn::IfThenElse(IsVisible(d, visible[i], static_cast<size_t>(j)), hn::Load(d, at), hn::Set(d, kHidden));
      strip_max = hn::Max(strip_max, score);
      hn::Store(score, d, at);
    }
    max[i] = strip_max;
  }
}

// ---- Probs ----------------------------------------------------------------------------------------------------------

// Scores of keys [begin, end) become probs; max (of the block's scores) becomes the reference maximum; sum takes the
// probs in, in key order.
template <size_t kStrips, size_t kRows, class V>
HWY_NOINLINE void ProbKeys(float* HWY_RESTRICT s, int64_t begin, int64_t end, V* HWY_RESTRICT max,
                           V* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  V reference_max[kStrips], row_sum[kStrips];
  HWY_UNROLL(4)
  for (size_t i = 0; i < kStrips; ++i) {
    reference_max[i] = hn::Ceil(max[i]);
    row_sum[i] = sum[i];
  }
  for (int64_t j = begin; j < end; ++j) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kStrips; ++i) {
      float* at = s + static_cast<size_t>(j) * kRows + i * N;
      const V prob = Prob(d, hn::Load(d, at), reference_max[i]);
      row_sum[i] = hn::Add(row_sum[i], prob);
      hn::Store(prob, d, at);
    }
  }
  HWY_UNROLL(4)
  for (size_t i = 0; i < kStrips; ++i) {
    max[i] = reference_max[i];
    sum[i] = row_sum[i];
  }
}

// ---- Values ---------------------------------------------------------------------------------------------------------

// acc[x][kFirst ...] += p * v over keys [begin, end), for kStrips of the vectors.
template <size_t kFirst, size_t kStrips, size_t kVectors, size_t kDims, class V>
HWY_INLINE void ValueKeys(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, int64_t begin,
                          int64_t end, V (&acc)[kDims][kVectors]) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  for (int64_t j = begin; j < end; ++j) {
    V pj[kStrips];
    HWY_UNROLL(4)
    for (size_t i = 0; i < kStrips; ++i) pj[i] = hn::Load(d, p + static_cast<size_t>(j) * kRows + (kFirst + i) * N);
    const float* vj = v + j * stride;
    HWY_UNROLL(16)
    for (size_t x = 0; x < kDims; ++x) {
      const V vx = hn::Set(d, vj[x]);
      HWY_UNROLL(4)
      for (size_t i = 0; i < kStrips; ++i) acc[x][kFirst + i] = hn::MulAdd(pj[i], vx, acc[x][kFirst + i]);
    }
  }
}

template <size_t kVectors, size_t kDims, class V>
struct ValuePart {
  const float* HWY_RESTRICT p;
  const float* HWY_RESTRICT v;
  int64_t stride;
  V (&acc)[kDims][kVectors];
  Fetcher& fetcher;

  template <size_t kFirst, size_t kStrips>
  HWY_INLINE void operator()(int64_t begin, int64_t end) const {
    if constexpr (kStrips < kVectors) {
      ValueKeys<kFirst, kStrips>(p, v, stride, begin, end, acc);
    } else {
      const int64_t steps = fetcher.RowSteps(kBlockKeys);
      for (int64_t j = begin; j < end; j += steps) {
        fetcher.RowStep();
        ValueKeys<kFirst, kStrips>(p, v, stride, j, HWY_MIN(end, j + steps), acc);
      }
    }
  }
};

template <size_t kVectors, size_t kDims, class Keys, class V>
HWY_INLINE void ValueTile(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, const Keys& keys,
                          const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V acc[kDims][kVectors];
  HWY_UNROLL(16)
  for (size_t x = 0; x < kDims; ++x) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) acc[x][i] = hn::Zero(d);
  }
  ForEachPart<kVectors>(keys, ValuePart<kVectors, kDims, V>{p, v, stride, acc, fetcher});
  HWY_UNROLL(16)
  for (size_t x = 0; x < kDims; ++x) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) {
      float* at = span_acc + x * kRows + i * N;
      hn::Store(Merge(factors[i], hn::Load(d, at), acc[x][i]), d, at);
    }
  }
}

// Adds one block's keys into the span: span_acc = merge(span_acc, sum of p * v). Keys: KeyRange, KeyRuns or Strips.
template <size_t kVectors, class Keys, class V>
HWY_NOINLINE void AddValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, size_t v_dim,
                            const Keys& keys, const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc,
                            Fetcher& fetcher) {
  constexpr size_t kRows = kVectors * hn::MaxLanes(hn::DFromV<V>());
  constexpr size_t kDims = TileShape<kVectors>::kKeys;
  size_t x = 0;
  for (; x + kDims <= v_dim; x += kDims) {
    ValueTile<kVectors, kDims>(p, v + x, stride, keys, factors, span_acc + x * kRows, fetcher);
  }
  if constexpr (kDims > 4) {
    for (; x + 4 <= v_dim; x += 4)
      ValueTile<kVectors, 4>(p, v + x, stride, keys, factors, span_acc + x * kRows, fetcher);
  }
  for (; x < v_dim; ++x) ValueTile<kVectors, 1>(p, v + x, stride, keys, factors, span_acc + x * kRows, fetcher);
}

// The same where v may be NaN or infinite at hidden keys: each lane takes its visible keys alone. Same bits, slower.
template <size_t kVectors, class V>
HWY_NOINLINE void AddVisibleValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride,
                                   size_t v_dim, const Strips<kVectors>& strips,
                                   const VisibleInterval<V> (&visible)[kVectors],
                                   const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  for (size_t x = 0; x < v_dim; ++x) {
    for (size_t i = 0; i < kVectors; ++i) {
      V acc = hn::Zero(d);
      for (int64_t j = strips.begin[i]; j < strips.end[i]; ++j) {
        const V pj = hn::Load(d, p + static_cast<size_t>(j) * kRows + i * N);
        const V sum = hn::MulAdd(pj, hn::Set(d, v[j * stride + static_cast<int64_t>(x)]), acc);
        acc = hn::IfThenElse(IsVisible(d, visible[i], static_cast<size_t>(j)), sum, acc);
      }
      float* at = span_acc + x * kRows + i * N;
      hn::Store(Merge(factors[i], hn::Load(d, at), acc), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
