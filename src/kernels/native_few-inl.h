// Register loops of keys-in-lanes in native_bf16 arithmetic: ScoreFew on pairs of dims, and values on pairs of keys.
//
//   ScoreFew<Bf16Pair>  s[r][j] = sum over pairs of dims i of PairDot(q[r][i], k[j][i]), without factor
//   ValuePairs          acc[r][x] = sum over pairs of keys i of PairDot(p[i][r], (v[2i][x], v[2i + 1][x])),
//                       sum[r] = sum over keys of p
// The same pairs, in the same order, as native_tiles-inl.h: same bits.

#if defined(LANEWISE_NATIVE_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_NATIVE_FEW_INL_H_
#undef LANEWISE_NATIVE_FEW_INL_H_
#else
#define LANEWISE_NATIVE_FEW_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/few_tiles-inl.h"
#include "src/kernels/pair_dot-inl.h"

// clang refuses a region for a target in which nothing is declared.
#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Bf16Pair {
  Bf16 even, odd;
};
template <>
struct KeyLoad<Bf16Pair> {
  using Loaded = float;
  static constexpr size_t kDims = 2, kParts = 1;
};
template <>
HWY_INLINE float KeyElement<Bf16Pair>(const void* row, size_t c, size_t dim) {
  const Bf16* from = static_cast<const Bf16*>(row);
  return PairOf(from[c], c + 1 < dim ? from[c + 1] : Bf16{0});
}

inline constexpr size_t kPairRegisters = kRegisters * 3 / 4;  // accumulators of a value pass

// Dims of one vector of pairs of keys.
inline constexpr size_t kPairDims = 2 * hn::MaxLanes(hn::ScalableTag<float>());

// acc holds, in each 128-bit block, dims 8b ... 8b + 3 (low) and 8b + 4 ... 8b + 7 (high): to[0 ... count - 1] in order.
template <class V>
HWY_INLINE void StoreDims(V low, V high, size_t count, float* HWY_RESTRICT to) {
  const hn::DFromV<V> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  HWY_ALIGN float lows[N];
  HWY_ALIGN float highs[N];
  hn::Store(low, d, lows);
  hn::Store(high, d, highs);
  HWY_ALIGN float ordered[2 * N];
  for (size_t b = 0; b < N / 4; ++b) {
    std::memcpy(ordered + 8 * b, lows + 4 * b, 4 * sizeof(float));
    std::memcpy(ordered + 8 * b + 4, highs + 4 * b, 4 * sizeof(float));
  }
  std::memcpy(to, ordered, count * sizeof(float));
}

// acc[r][x ...] over pairs of keys [0, pairs) for kWidth times kPairDims dims; kFirst: row sums too; kPartial: `count` dims
// of one.
template <size_t kRows, size_t kWidth, bool kFirst, bool kPartial>
HWY_INLINE void PairVectors(const float* HWY_RESTRICT p, const void* const* HWY_RESTRICT v, size_t x, size_t count,
                            size_t pairs, const PrefetchRows& prefetch, float* HWY_RESTRICT acc_out, size_t v_dim,
                            float* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const hn::Repartition<uint16_t, decltype(d)> du16;
  V low[kRows][kWidth], high[kRows][kWidth];
  const SumTag<kRows> d_sum;
  constexpr size_t kSums = kSumVectors<kRows>, kSumLanes = hn::MaxLanes(SumTag<kRows>());
  hn::Vec<SumTag<kRows>> row_sum[kSums];
  HWY_UNROLL(2)
  for (size_t n = 0; n < kSums; ++n) row_sum[n] = hn::Zero(d_sum);
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t w = 0; w < kWidth; ++w) low[r][w] = high[r][w] = hn::Zero(d);
  }
  // This pass's share of the far rows, evenly over its keys.
  const size_t passes = (v_dim + kWidth * kPairDims - 1) / (kWidth * kPairDims);
  const void* const* far = prefetch.far + 2 * pairs * (x / (kWidth * kPairDims)) / passes;
  size_t wait = passes;
  for (size_t i = 0; i < pairs; ++i) {
    wait -= HWY_MIN(wait, size_t{2});
    if (wait == 0) {
      for (size_t n = 0; n < 2; n += passes) PrefetchFar(*far++, prefetch.far_lines);
      wait = passes;
    }
    V a[kWidth], b[kWidth];  // pairs of the even and odd dims' halves of each block
    for (size_t n = 0; n < 2; ++n) {
      const Bf16* ahead = static_cast<const Bf16*>(prefetch.near[2 * i + n]) + x;
      HWY_UNROLL(4)
      for (size_t w = 0; w < kWidth; ++w) {
        if (w * kPairDims * sizeof(Bf16) % 64 == 0) __builtin_prefetch(ahead + w * kPairDims, 0, 3);
      }
    }
    const uint16_t* even = &(static_cast<const Bf16*>(v[2 * i]) + x)->bits;
    const uint16_t* odd = &(static_cast<const Bf16*>(v[2 * i + 1]) + x)->bits;
    HWY_UNROLL(4)
    for (size_t w = 0; w < kWidth; ++w) {
      const auto e = kPartial ? hn::LoadN(du16, even + w * kPairDims, count) : hn::LoadU(du16, even + w * kPairDims);
      const auto o = kPartial ? hn::LoadN(du16, odd + w * kPairDims, count) : hn::LoadU(du16, odd + w * kPairDims);
      a[w] = hn::BitCast(d, hn::InterleaveLower(du16, e, o));
      b[w] = hn::BitCast(d, hn::InterleaveUpper(du16, e, o));
    }
    const float* pi = p + i * ProbStride(kRows);
    HWY_UNROLL(2)
    for (size_t n = 0; kFirst && n < kSums; ++n) {
      const auto pair = hn::LoadU(d_sum, pi + n * kSumLanes);
      row_sum[n] = hn::Add(hn::Add(row_sum[n], EvenOf(d_sum, pair)), OddOf(d_sum, pair));
    }
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (size_t w = 0; w < kWidth; ++w) {
        low[r][w] = PairDotBroadcast(d, pi + r, a[w], low[r][w]);
        high[r][w] = PairDotBroadcast(d, pi + r, b[w], high[r][w]);
      }
    }
  }
  HWY_UNROLL(2)
  for (size_t n = 0; kFirst && n < kSums; ++n)
    hn::StoreN(row_sum[n], d_sum, sum + n * kSumLanes, HWY_MIN(kSumLanes, kRows - n * kSumLanes));
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t w = 0; w < kWidth; ++w) {
      StoreDims(low[r][w], high[r][w], kPartial ? count : kPairDims, acc_out + r * v_dim + x + w * kPairDims);
    }
  }
}

// ValueFewFunction on pairs: p holds pairs of probs, v rows of bf16; a whole block at once, of one kv head: offset and
// begin are 0, end is even, and what acc and sum hold does not matter.
template <size_t kRows>
HWY_NOINLINE void ValuePairs(const float* HWY_RESTRICT p, const void* const* HWY_RESTRICT v, size_t, size_t v_dim,
                             size_t, size_t end, const PrefetchRows& prefetch, float* HWY_RESTRICT acc,
                             float* HWY_RESTRICT sum) {
  constexpr size_t kFit = HWY_MAX(size_t{1}, kPairRegisters / (2 * kRows));
  constexpr size_t kWidth = kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  const size_t pairs = end / 2;
  size_t x = 0;
  if (v_dim >= kWidth * kPairDims) {
    PairVectors<kRows, kWidth, true, false>(p, v, 0, 0, pairs, prefetch, acc, v_dim, sum);
    for (x = kWidth * kPairDims; x + kWidth * kPairDims <= v_dim; x += kWidth * kPairDims)
      PairVectors<kRows, kWidth, false, false>(p, v, x, 0, pairs, prefetch, acc, v_dim, sum);
  } else if (v_dim >= kPairDims) {
    PairVectors<kRows, 1, true, false>(p, v, 0, 0, pairs, prefetch, acc, v_dim, sum);
    x = kPairDims;
  } else {
    PairVectors<kRows, 1, true, true>(p, v, 0, v_dim, pairs, prefetch, acc, v_dim, sum);
    return;
  }
  for (; x + kPairDims <= v_dim; x += kPairDims)
    PairVectors<kRows, 1, false, false>(p, v, x, 0, pairs, prefetch, acc, v_dim, sum);
  if (x < v_dim) PairVectors<kRows, 1, false, true>(p, v, x, v_dim - x, pairs, prefetch, acc, v_dim, sum);
}

template <size_t kRows = kMaxPassRows>
HWY_INLINE void FillPairLoops(FewLoops& loops) {
  loops.score[kRows] = &ScoreFew<Bf16Pair, kRows>;
  loops.value[kRows] = &ValuePairs<kRows>;
  if constexpr (kRows > 1) FillPairLoops<kRows - 1>(loops);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // per-target guard
