// Register tiles of rows-in-lanes: the loops in which nearly all time is spent.
//
//   ScoreTile   s[j][r] = sum over c of q[c][r] * k[j][c],  j < kKeys,  c ascending: one FMA chain an element
//   ValueTile   acc[x][r] = merge(acc[x][r], sum over j of p[j][r] * v[j][x]),  x < kDims,  j ascending
// r runs over kVectors vectors of rows. q, s, p, acc are scratch, vector-aligned, [...][kVectors * N]; k and v are rows of
// float32 with unit dim stride, read exactly (no element past a row or past the last key).
//
// Shapes: accumulators (vectors x keys) fill the register file less the vectors of one operand and a broadcast. Every loop over
// a register tile is unrolled by pragma, or gcc keeps accumulators in memory (tools/check_spills.py looks).

#if defined(LANEWISE_REGISTER_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_REGISTER_TILES_INL_H_
#undef LANEWISE_REGISTER_TILES_INL_H_
#else
#define LANEWISE_REGISTER_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys of a score tile and dims of a value tile for tiles of kVectors vectors.
template <size_t kVectors>
struct TileShape;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// 32 registers of 16 lanes. 3 x 8 for long rows, 2 x 12 where 3 vectors would be padding (docs/PERFORMANCE.md).
inline constexpr size_t kMaxVectors = 3;
template <> struct TileShape<3> { static constexpr size_t kKeys = 8; };
#if HWY_COMPILER_CLANG
template <> struct TileShape<2> { static constexpr size_t kKeys = 8; };  // clang spills 2 x 12
#else
template <> struct TileShape<2> { static constexpr size_t kKeys = 12; };
#endif
template <> struct TileShape<1> { static constexpr size_t kKeys = 16; };
#elif HWY_ARCH_ARM_A64
// 32 registers of 4 lanes.
inline constexpr size_t kMaxVectors = 4;
template <> struct TileShape<4> { static constexpr size_t kKeys = 6; };
template <> struct TileShape<3> { static constexpr size_t kKeys = 8; };
template <> struct TileShape<2> { static constexpr size_t kKeys = 12; };
template <> struct TileShape<1> { static constexpr size_t kKeys = 16; };
#else
// 16 registers.
inline constexpr size_t kMaxVectors = 3;
template <> struct TileShape<3> { static constexpr size_t kKeys = 4; };
template <> struct TileShape<2> { static constexpr size_t kKeys = 6; };
template <> struct TileShape<1> { static constexpr size_t kKeys = 8; };
#endif

// ---- Scores -------------------------------------------------------------------------------------------------------------------

template <size_t kVectors, size_t kKeys, bool kTakeMax, class V>
HWY_INLINE void ScoreTile(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t qk_dim,
                          float* HWY_RESTRICT s, V (&max)[kVectors]) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V acc[kKeys][kVectors];
  HWY_UNROLL(16)
  for (size_t j = 0; j < kKeys; ++j) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) acc[j][i] = hn::Zero(d);
  }
  for (int64_t c = 0; c < qk_dim; ++c) {
    V qc[kVectors];
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) qc[i] = hn::Load(d, q + static_cast<size_t>(c) * kRows + i * N);
    HWY_UNROLL(16)
    for (size_t j = 0; j < kKeys; ++j) {
      const V kj = hn::Set(d, k[static_cast<int64_t>(j) * stride + c]);
      HWY_UNROLL(4)
      for (size_t i = 0; i < kVectors; ++i) acc[j][i] = hn::MulAdd(qc[i], kj, acc[j][i]);
    }
  }
  HWY_UNROLL(16)
  for (size_t j = 0; j < kKeys; ++j) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) {
      hn::Store(acc[j][i], d, s + j * kRows + i * N);
      if (kTakeMax) max[i] = hn::Max(max[i], acc[j][i]);
    }
  }
}

// Scores of keys [begin, end), visible to all lanes; max takes them in.
template <size_t kVectors, class V>
HWY_INLINE void ScoreKeys(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t qk_dim, int64_t begin,
                          int64_t end, float* HWY_RESTRICT s, V (&max)[kVectors]) {
  constexpr size_t kRows = kVectors * hn::MaxLanes(hn::DFromV<V>());
  constexpr int64_t kKeys = TileShape<kVectors>::kKeys;
  int64_t j = begin;
  for (; j + kKeys <= end; j += kKeys) {
    ScoreTile<kVectors, kKeys, true>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows, max);
  }
  for (; j + 4 <= end; j += 4) {
    ScoreTile<kVectors, 4, true>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows, max);
  }
  for (; j < end; ++j) {
    ScoreTile<kVectors, 1, true>(q, k + j * stride, stride, qk_dim, s + static_cast<size_t>(j) * kRows, max);
  }
}

// Scores of keys [begin, end), of which each lane may see others.
template <size_t kVectors, class V>
HWY_INLINE void ScoreEdgeKeys(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, int64_t stride, int64_t qk_dim,
                              int64_t begin, int64_t end, const VisibleInterval<V> (&visible)[kVectors], float* HWY_RESTRICT s,
                              V (&max)[kVectors]) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V raw_max[kVectors];  // takes hidden scores in: discarded
  for (size_t i = 0; i < kVectors; ++i) raw_max[i] = max[i];
  ScoreKeys<kVectors>(q, k, stride, qk_dim, begin, end, s, raw_max);
  for (int64_t j = begin; j < end; ++j) {
    for (size_t i = 0; i < kVectors; ++i) {
      float* at = s + static_cast<size_t>(j) * kRows + i * N;
      const V score =
          hn::IfThenElse(IsVisible(d, visible[i], static_cast<size_t>(j)), hn::Load(d, at), hn::Set(d, kHidden));
      max[i] = hn::Max(max[i], score);
      hn::Store(score, d, at);
    }
  }
}

// ---- Values -------------------------------------------------------------------------------------------------------------------

template <size_t kVectors, size_t kDims, class V>
HWY_INLINE void ValueTile(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, int64_t begin, int64_t end,
                          const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  V acc[kDims][kVectors];
  HWY_UNROLL(16)
  for (size_t x = 0; x < kDims; ++x) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) acc[x][i] = hn::Zero(d);
  }
  for (int64_t j = begin; j < end; ++j) {
    V pj[kVectors];
    HWY_UNROLL(4)
    for (size_t i = 0; i < kVectors; ++i) pj[i] = hn::Load(d, p + static_cast<size_t>(j) * kRows + i * N);
    const float* vj = v + j * stride;
    HWY_UNROLL(16)
    for (size_t x = 0; x < kDims; ++x) {
      const V vx = hn::Set(d, vj[x]);
      HWY_UNROLL(4)
      for (size_t i = 0; i < kVectors; ++i) acc[x][i] = hn::MulAdd(pj[i], vx, acc[x][i]);
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

// Adds keys [begin, end) of one block into the span: span_acc = merge(span_acc, sum of p * v).
template <size_t kVectors, class V>
HWY_INLINE void AddValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, size_t v_dim, int64_t begin,
                          int64_t end, const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc) {
  constexpr size_t kRows = kVectors * hn::MaxLanes(hn::DFromV<V>());
  constexpr size_t kDims = TileShape<kVectors>::kKeys;
  size_t x = 0;
  for (; x + kDims <= v_dim; x += kDims) {
    ValueTile<kVectors, kDims>(p, v + x, stride, begin, end, factors, span_acc + x * kRows);
  }
  for (; x + 4 <= v_dim; x += 4) ValueTile<kVectors, 4>(p, v + x, stride, begin, end, factors, span_acc + x * kRows);
  for (; x < v_dim; ++x) ValueTile<kVectors, 1>(p, v + x, stride, begin, end, factors, span_acc + x * kRows);
}

// The same where v may be NaN or infinite at hidden keys: each lane takes its visible keys alone. Same bits, slower.
template <size_t kVectors, class V>
HWY_NOINLINE void AddVisibleValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, size_t v_dim,
                                   int64_t begin, int64_t end, const VisibleInterval<V> (&visible)[kVectors],
                                   const MergeFactors<V> (&factors)[kVectors], float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  for (size_t x = 0; x < v_dim; ++x) {
    for (size_t i = 0; i < kVectors; ++i) {
      V acc = hn::Zero(d);
      for (int64_t j = begin; j < end; ++j) {
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
