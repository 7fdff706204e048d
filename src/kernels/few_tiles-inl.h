// Register loops of keys-in-lanes: a few rows against one block, memory in address order.
//
//   ScoreFew   s[r][j] = sum over c of q[r][c] * k[j][c]
//              keys in lanes; K is transposed in registers, kWideDims dims of a vector of keys at a time
//   ValueFew   acc[r][x] += sum over j of p[j][r] * v[j][x], sum[r] += sum over j of p[j][r]
//              dims in lanes; for the sums, rows
// Chains over c and j are those of register_tiles-inl.h: same bits. Key and value rows come as addresses; exactly
// qk_dim and v_dim elements of each are read. Prefetch looks ahead in the lists of addresses, kNearRows further than a
// block's own rows.
//
// Each is compiled once a storage type (few_loops_<type>.cpp), which it widens in registers.

#if defined(LANEWISE_FEW_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_TILES_INL_H_
#undef LANEWISE_FEW_TILES_INL_H_
#else
#define LANEWISE_FEW_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/pair_dot-inl.h"
#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 || HWY_ARCH_ARM_A64
inline constexpr size_t kRegisters = 32;
#elif HWY_NATIVE_FMA
inline constexpr size_t kRegisters = 16;
#else
inline constexpr size_t kRegisters = 14;  // of 16: a product takes one
#endif
// Compilers broadcast a prob once for several products, into a register, which an AVX-512 core that works in halves
// pays for: it makes three vectors in two cycles (docs/PERFORMANCE.md). With many rows each product broadcasts from
// memory for itself; with fewer, loads would bind.
template <size_t kRows>
inline constexpr bool kBroadcastsFromMemory = HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 && kRows > 8;
// Row sums of a pass: one lane a row.
template <size_t kRows>
using SumTag = hn::CappedTag<float, ProbStride(kRows)>;
template <size_t kRows>
inline constexpr size_t kSumVectors = (kRows + hn::MaxLanes(SumTag<kRows>()) - 1) / hn::MaxLanes(SumTag<kRows>());

// Vectors of dims of a value pass: as many as leave room for accumulators, the vectors of V (one row uses each but
// once, from memory), row sums, and a broadcast where products do not take it from memory. What does not fit is loaded
// again for every row (6 rows: 70 instead of 82 % of the FMA peak in cache).
template <size_t kRows>
constexpr size_t ValueWidth() {
  for (const size_t width : {size_t{8}, size_t{4}, size_t{3}, size_t{2}}) {
    const size_t used = kRows * width + (kRows > 1 ? width : 0) + kSumVectors<kRows> + !kBroadcastsFromMemory<kRows>;
    if (used < kRegisters) return width;
  }
  return 1;
}

HWY_INLINE void PrefetchNear(const void* row, size_t lines) {
  HWY_UNROLL(4)
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(row) + i * 64, 0, 3);
}
HWY_INLINE void PrefetchFar(const void* row, size_t lines) {
  HWY_UNROLL(4)
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(row) + i * 64, 0, 2);
}

template <class T>
HWY_INLINE const T* RowAt(const void* address, size_t offset) {
  return reinterpret_cast<const T*>(static_cast<const char*>(address) + offset);
}

// How ScoreFew reads keys of T: loaded as Loaded, kDims dims of a row in each, which make kParts products with as many
// elements of q. bf16 keys are transposed as pairs of dims, (even, odd) in the halves of a 32-bit lane, whatever floats
// those bits make.
template <class T>
struct KeyLoad {
  using Loaded = T;
  static constexpr size_t kDims = 1, kParts = 1;
};
template <>
struct KeyLoad<Bf16> {
  using Loaded = float;
  static constexpr size_t kDims = 2, kParts = 2;
};

// Product `part` of a loaded vector with q, added to acc.
template <class T, class D, class V = hn::Vec<D>>
HWY_INLINE V PartOf(D d, V loaded, size_t part) {
  if constexpr (KeyLoad<T>::kParts == 1) return loaded;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, loaded);
  const bool low_half = (part == 0) != (HWY_IS_BIG_ENDIAN != 0);  // of a lane: the dim that comes first in memory
  return hn::BitCast(d, low_half ? hn::ShiftLeft<16>(bits) : hn::And(bits, hn::Set(du, 0xffff0000u)));
}
template <class T, class D, class V = hn::Vec<D>>
HWY_INLINE V AddProduct(D d, const float* q, V k, V acc) {
#if HWY_NATIVE_DOT_BF16
  if constexpr (KeyLoad<T>::kDims != KeyLoad<T>::kParts) return PairDotBroadcast(d, q, k, acc);
#endif
  return hn::MulAdd(hn::Set(d, *q), k, acc);
}

// Element c of a key row (the pair from c on), c the dim of one part.
template <class T>
HWY_INLINE float KeyElement(const void* row, size_t c, size_t) {
  return Widen(static_cast<const T*>(row)[c]);
}

// Elements from dim c on of a vector of keys: the tail that no whole step takes. Before the tile, which then stays in
// registers.
template <class T>
HWY_NOINLINE void GatherTail(const void* const* keys, size_t offset, size_t c, size_t dim, float* HWY_RESTRICT tail) {
  constexpr size_t N = hn::MaxLanes(hn::ScalableTag<float>());
  for (; c < dim; c += KeyLoad<T>::kDims / KeyLoad<T>::kParts, tail += N) {
    for (size_t lane = 0; lane < N; ++lane) tail[lane] = KeyElement<T>(RowAt<char>(keys[lane], offset), c, dim);
  }
}

// Scores of a block's keys [0, n), a vector of keys at a time, for kRows rows: s[r][j], rows of s are kBlockKeys apart.
// q: [elements][kRows]. k repeats the last key's address up to whole vectors. One vector in flight is enough: a row
// alone is one FMA chain, no longer than the transposition beside it; more vectors would touch more rows at once than
// the first cache holds (one row: 46 to 60 GB/s in cache).
template <class T, size_t kRows>
HWY_NOINLINE void ScoreFew(const float* HWY_RESTRICT q, size_t qk_dim, const void* const* HWY_RESTRICT keys,
                           size_t offset, size_t n, const PrefetchRows& prefetch, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  using Loaded = typename KeyLoad<T>::Loaded;
  constexpr size_t kParts = KeyLoad<T>::kParts;
  constexpr size_t kPartDims = KeyLoad<T>::kDims / kParts;   // dims of an element of q
  constexpr size_t kGroups = N == 16 && kRows <= 8 ? 2 : 1;  // with more rows, registers run out
  constexpr size_t kDims = KeyLoad<T>::kDims * kWideDims * kGroups;
  const void* const* far = prefetch.far;
  const void* const* near = prefetch.near;
  for (; n > 0; n -= HWY_MIN(n, N), keys += N, far += N, near += N, s += N) {
    const Loaded* k[N];
    for (size_t lane = 0; lane < N; ++lane) k[lane] = RowAt<Loaded>(keys[lane], offset);
    HWY_ALIGN float tail[kDims * N];
    if (qk_dim % kDims != 0) GatherTail<T>(keys, offset, qk_dim / kDims * kDims, qk_dim, tail);
    V acc[kRows];
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) acc[r] = hn::Zero(d);
    size_t c = 0, fetched = 0;
    for (; c + kDims <= qk_dim; c += kDims) {
      // By the last dims, as many rows are on their way as are worked on here.
      for (; fetched * qk_dim < N * (c + kDims); ++fetched) {
        PrefetchNear(RowAt<char>(near[fetched], prefetch.near_offset), prefetch.near_lines);
        PrefetchFar(far[fetched], prefetch.far_lines);
      }
      V x[kGroups][4], y[kGroups][4];
      if constexpr (N > 4) LoadWideRows(d, k, c / KeyLoad<T>::kDims, x, y);
      HWY_UNROLL(2)
      for (size_t g = 0; g < kGroups; ++g) {
        V kt[kWideDims];
        if constexpr (N > 4) {
          TransposeWide(d, x[g], y[g], kt);
        } else {
          LoadTransposed(d, k, c / KeyLoad<T>::kDims, kt);
        }
        HWY_UNROLL(8)
        for (size_t t = 0; t < kWideDims; ++t) {
          HWY_UNROLL(2)
          for (size_t part = 0; part < kParts; ++part) {
            const V kc = PartOf<T>(d, kt[t], part);
            const float* qc = q + (c / kPartDims + (g * kWideDims + t) * kParts + part) * kRows;
            HWY_UNROLL(16)
            for (size_t r = 0; r < kRows; ++r) acc[r] = AddProduct<T>(d, qc + r, kc, acc[r]);
          }
        }
      }
    }
    for (const float* element = tail; c < qk_dim; c += kPartDims, element += N) {
      const V kc = hn::Load(d, element);
      HWY_UNROLL(16)
      for (size_t r = 0; r < kRows; ++r) acc[r] = AddProduct<T>(d, q + c / kPartDims * kRows + r, kc, acc[r]);
    }
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) hn::Store(acc[r], d, s + r * kBlockKeys);
  }
}

// acc[w] += *p * v[w], *p in all lanes.
template <bool kFromMemory, class D, size_t kWidth, class V = hn::Vec<D>>
HWY_INLINE void MulAddBroadcast(D d, const float* p, const V (&v)[kWidth], V (&acc)[kWidth]) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (kFromMemory) {
    static_assert(hn::MaxLanes(D()) == 16, "1to16");
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w)
      asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[w].raw) : "v"(v[w].raw), "m"(*p));
  } else
#endif
  {
    const V all = hn::Set(d, *p);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) acc[w] = hn::MulAdd(v[w], all, acc[w]);
  }
}

// acc[r][x ...] over keys [begin, end) for kWidth vectors of dims. kFirst: row sums too. kPartial: `count` lanes of one
// vector.
template <class T, size_t kRows, size_t kWidth, bool kFirst, bool kPartial>
HWY_INLINE void ValueVectors(const float* HWY_RESTRICT p, const void* const* HWY_RESTRICT v, size_t offset, size_t x,
                             size_t count, size_t begin, size_t end, const PrefetchRows& prefetch,
                             float* HWY_RESTRICT acc_out, size_t v_dim, float* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const SumTag<kRows> d_sum;
  constexpr size_t kSums = kSumVectors<kRows>, kSumLanes = hn::MaxLanes(SumTag<kRows>());
  V acc[kRows][kWidth];
  hn::Vec<SumTag<kRows>> row_sum[kSums];
  HWY_UNROLL(2)
  for (size_t i = 0; kFirst && i < kSums; ++i)
    row_sum[i] = hn::LoadN(d_sum, sum + i * kSumLanes, HWY_MIN(kSumLanes, kRows - i * kSumLanes));
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      const float* from = acc_out + r * v_dim + x + w * N;
      acc[r][w] = kPartial ? hn::LoadN(d, from, count) : hn::LoadU(d, from);
    }
  }
  // This pass's share of the far rows, evenly over its keys.
  const size_t dims = kPartial ? count : kWidth * N;
  const void* const* far = prefetch.far + (end - begin) * x / v_dim;
  size_t due = (end - begin) * x % v_dim;
  for (size_t j = begin; j < end; ++j) {
    const T* row = RowAt<T>(v[j], offset) + x;
    due += dims;
    if (due >= v_dim) {
      due -= v_dim;
      PrefetchFar(*far++, prefetch.far_lines);
    }
    const T* ahead = RowAt<T>(prefetch.near[j - begin], prefetch.near_offset) + x;
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      if (w * N * sizeof(T) % 64 == 0) __builtin_prefetch(ahead + w * N, 0, 3);
    }
    V vj[kWidth];
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) vj[w] = kPartial ? LoadWideN(d, row + w * N, count) : LoadWide(d, row + w * N);
    const float* pj = p + j * ProbStride(kRows);
    HWY_UNROLL(2)
    for (size_t i = 0; kFirst && i < kSums; ++i) row_sum[i] = hn::Add(row_sum[i], hn::LoadU(d_sum, pj + i * kSumLanes));
    HWY_UNROLL(16)
    for (size_t r = 0; r < kRows; ++r) MulAddBroadcast<kBroadcastsFromMemory<kRows>>(d, pj + r, vj, acc[r]);
  }
  HWY_UNROLL(2)
  for (size_t i = 0; kFirst && i < kSums; ++i)
    hn::StoreN(row_sum[i], d_sum, sum + i * kSumLanes, HWY_MIN(kSumLanes, kRows - i * kSumLanes));
  HWY_UNROLL(16)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      float* to = acc_out + r * v_dim + x + w * N;
      if (kPartial) {
        hn::StoreN(acc[r][w], d, to, count);
      } else {
        hn::StoreU(acc[r][w], d, to);
      }
    }
  }
}

// Values and row sums of a block's keys [begin, end) for kRows rows, added to acc [rows][v_dim] and sum [rows].
template <class T, size_t kRows>
HWY_NOINLINE void ValueFew(const float* HWY_RESTRICT p, const void* const* HWY_RESTRICT v, size_t offset, size_t v_dim,
                           size_t begin, size_t end, const PrefetchRows& prefetch, float* HWY_RESTRICT acc,
                           float* HWY_RESTRICT sum) {
  constexpr size_t N = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kWidth = ValueWidth<kRows>();
  size_t x = 0;
  if (v_dim >= kWidth * N) {
    ValueVectors<T, kRows, kWidth, true, false>(p, v, offset, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    for (x = kWidth * N; x + kWidth * N <= v_dim; x += kWidth * N)
      ValueVectors<T, kRows, kWidth, false, false>(p, v, offset, x, 0, begin, end, prefetch, acc, v_dim, sum);
  } else if (v_dim >= N) {
    ValueVectors<T, kRows, 1, true, false>(p, v, offset, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    x = N;
  } else {
    ValueVectors<T, kRows, 1, true, true>(p, v, offset, 0, v_dim, begin, end, prefetch, acc, v_dim, sum);
    return;
  }
  if constexpr (kWidth >= 3) {
    for (; x + 2 * N <= v_dim; x += 2 * N)
      ValueVectors<T, kRows, 2, false, false>(p, v, offset, x, 0, begin, end, prefetch, acc, v_dim, sum);
  }
  for (; x + N <= v_dim; x += N)
    ValueVectors<T, kRows, 1, false, false>(p, v, offset, x, 0, begin, end, prefetch, acc, v_dim, sum);
  if (x < v_dim)
    ValueVectors<T, kRows, 1, false, true>(p, v, offset, x, v_dim - x, begin, end, prefetch, acc, v_dim, sum);
}

template <class T, size_t kRows = kMaxPassRows>
HWY_INLINE void FillFewLoops(FewLoops& loops) {
  loops.score[kRows] = &ScoreFew<T, kRows>;
  loops.value[kRows] = &ValueFew<T, kRows>;
  if constexpr (kRows > 1) FillFewLoops<T, kRows - 1>(loops);
}
template <class T>
HWY_INLINE FewLoops FewLoopsOf() {
  FewLoops loops = {};
  FillFewLoops<T>(loops);
  return loops;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
