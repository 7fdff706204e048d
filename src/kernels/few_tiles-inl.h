// Register loops of keys-in-lanes: a few rows against one block, memory in address order.
//
//   ScoreFew   s[r][j] = sum over c of q[r][c] * k[j][c]
//              keys in lanes; K is transposed in registers, kWideDims dims of a vector of keys at a time
//   ValueFew   acc[r][x] = sum over j of p[r][j] * v[j][x], sum[r] = sum over j of p[r][j]
//              dims in lanes
// Chains over c and j are those of register_tiles-inl.h: same bits. Key and value rows come as addresses; exactly
// qk_dim and v_dim elements of each are read. Prefetch looks ahead in the lists of addresses, kNearRows further than a
// block's own rows.

#if defined(LANEWISE_FEW_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_TILES_INL_H_
#undef LANEWISE_FEW_TILES_INL_H_
#else
#define LANEWISE_FEW_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of one pass of the register loops; more rows take several passes over a block, which is then in cache.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 || HWY_ARCH_ARM_A64
inline constexpr size_t kMaxPassRows = 8;
inline constexpr size_t kValueRegisters = 24;  // accumulators of a value pass, of 32
#else
inline constexpr size_t kMaxPassRows = 4;
inline constexpr size_t kValueRegisters = 12;  // of 16
#endif

// Memory and arithmetic overlap only by prefetch, spread evenly over the work: while a block's keys are scored its
// values are fetched into the second cache, and while its values are added up the next block's keys are
// (docs/PERFORMANCE.md). A few rows ahead of use, rows are fetched into the first.
struct PrefetchRows {
  const float* const* far;  // rows of the next tensor, as many as the block has keys
  size_t far_lines;         // cache lines of one of them
  size_t near_lines;        // of a row of this tensor
};
inline constexpr size_t kNearRows = 16;

HWY_INLINE void PrefetchNear(const float* row, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(row + i * 16, 0, 3);
}
HWY_INLINE void PrefetchFar(const float* row, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(row + i * 16, 0, 2);
}

// Scores of a block's keys [0, n), a vector of keys at a time, for kRows rows: s[r][j], rows of s are kBlockKeys apart.
// q: [rows][qk_dim]. k repeats the last key's address up to whole vectors. One vector in flight is enough: a row alone
// is one FMA chain, no longer than the transposition beside it; more vectors would touch more rows at once than the
// first cache holds (one row: 46 to 60 GB/s in cache).
template <size_t kRows>
HWY_NOINLINE void ScoreFew(const float* HWY_RESTRICT q, size_t qk_dim, const float* const* HWY_RESTRICT k, size_t n,
                           const PrefetchRows& prefetch, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const float* const* far = prefetch.far;
  for (; n > 0; n -= HWY_MIN(n, N), k += N, far += N, s += N) {
    V acc[kRows];
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) acc[r] = hn::Zero(d);
    size_t c = 0, fetched = 0;
    for (; c + kWideDims <= qk_dim; c += kWideDims) {
      // By the last dims, as many rows are on their way as are worked on here.
      for (; fetched * qk_dim < N * (c + kWideDims); ++fetched) {
        PrefetchNear(k[fetched + kNearRows], prefetch.near_lines);
        PrefetchFar(far[fetched], prefetch.far_lines);
      }
      V kt[kWideDims];
      LoadTransposedWide(d, k, c, kt);
      HWY_UNROLL(8)
      for (size_t t = 0; t < kWideDims; ++t) {
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(hn::Set(d, q[r * qk_dim + c + t]), kt[t], acc[r]);
      }
    }
    for (; c < qk_dim; ++c) {
      HWY_ALIGN float gathered[N];
      for (size_t lane = 0; lane < N; ++lane) gathered[lane] = k[lane][c];
      const V kc = hn::Load(d, gathered);
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(hn::Set(d, q[r * qk_dim + c]), kc, acc[r]);
    }
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) hn::Store(acc[r], d, s + r * kBlockKeys);
  }
}

// acc[r][x ...] over keys [begin, end) for kWidth vectors of dims. kFirst: row sums too. kPartial: `count` lanes of one
// vector.
template <size_t kRows, size_t kWidth, bool kFirst, bool kPartial>
HWY_INLINE void ValueVectors(const float* HWY_RESTRICT p, const float* const* HWY_RESTRICT v, size_t x, size_t count,
                             size_t begin, size_t end, const PrefetchRows& prefetch, float* HWY_RESTRICT acc_out,
                             size_t v_dim, float* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  V acc[kRows][kWidth], row_sum[kRows];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    row_sum[r] = hn::Zero(d);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) acc[r][w] = hn::Zero(d);
  }
  // This pass's share of the far rows, evenly over its keys.
  const size_t passes = (v_dim + kWidth * N - 1) / (kWidth * N);
  const float* const* far = prefetch.far + (end - begin) * (x / (kWidth * N)) / passes;
  size_t wait = passes;
  for (size_t j = begin; j < end; ++j) {
    const float* row = v[j] + x;
    if (--wait == 0) {
      PrefetchFar(*far++, prefetch.far_lines);
      wait = passes;
    }
    const float* ahead = v[j + kNearRows] + x;
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      if (w * N % 16 == 0) __builtin_prefetch(ahead + w * N, 0, 3);
    }
    V vj[kWidth];
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) vj[w] = kPartial ? hn::LoadN(d, row + w * N, count) : hn::LoadU(d, row + w * N);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const V pj = hn::Set(d, p[r * kBlockKeys + j]);
      if (kFirst) row_sum[r] = hn::Add(row_sum[r], pj);
      HWY_UNROLL(8)
      for (size_t w = 0; w < kWidth; ++w) acc[r][w] = hn::MulAdd(vj[w], pj, acc[r][w]);
    }
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    if (kFirst) sum[r] = hn::GetLane(row_sum[r]);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      if (kPartial) {
        hn::StoreN(acc[r][w], d, acc_out + r * v_dim + x + w * N, count);
      } else {
        hn::StoreU(acc[r][w], d, acc_out + r * v_dim + x + w * N);
      }
    }
  }
}

// Values and row sums of a block's keys [begin, end) for kRows rows: acc [rows][v_dim], sum [rows].
template <size_t kRows>
HWY_NOINLINE void ValueFew(const float* HWY_RESTRICT p, const float* const* HWY_RESTRICT v, size_t v_dim, size_t begin,
                           size_t end, const PrefetchRows& prefetch, float* HWY_RESTRICT acc, float* HWY_RESTRICT sum) {
  constexpr size_t N = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kFit = HWY_MAX(size_t{1}, kValueRegisters / kRows);
  constexpr size_t kWidth = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  size_t x = 0;
  if (v_dim >= kWidth * N) {
    ValueVectors<kRows, kWidth, true, false>(p, v, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    for (x = kWidth * N; x + kWidth * N <= v_dim; x += kWidth * N) {
      ValueVectors<kRows, kWidth, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
    }
  } else if (v_dim >= N) {
    ValueVectors<kRows, 1, true, false>(p, v, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    x = N;
  } else {
    ValueVectors<kRows, 1, true, true>(p, v, 0, v_dim, begin, end, prefetch, acc, v_dim, sum);
    return;
  }
  if constexpr (kWidth >= 4) {
    for (; x + 2 * N <= v_dim; x += 2 * N)
      ValueVectors<kRows, 2, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
  }
  for (; x + N <= v_dim; x += N)
    ValueVectors<kRows, 1, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
  if (x < v_dim) ValueVectors<kRows, 1, false, true>(p, v, x, v_dim - x, begin, end, prefetch, acc, v_dim, sum);
}

using ScoreFewFunction = void (*)(const float*, size_t, const float* const*, size_t, const PrefetchRows&, float*);
using ValueFewFunction = void (*)(const float*, const float* const*, size_t, size_t, size_t, const PrefetchRows&,
                                  float*, float*);
struct FewFunctions {
  ScoreFewFunction score;
  ValueFewFunction value;
};

template <size_t kRows>
HWY_INLINE FewFunctions FewFunctionsFor(size_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return FewFunctionsFor<kRows - 1>(rows);
  }
  return {&ScoreFew<kRows>, &ValueFew<kRows>};
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
