// Rows of memory <-> rows in lanes, through 4 x 4 transpositions inside 128-bit blocks.
//
// load:  lane r of out[u] = row[r][c + u], u = 0 ... 3, for as many rows as a vector has lanes (N), widened
// store: row[r][c + u] = lane r of in[u], rounded
// Blocks of 4 consecutive elements are read and written whole: callers keep c + 4 within the row.

#if defined(LANEWISE_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_TRANSPOSE_INL_H_
#undef LANEWISE_TRANSPOSE_INL_H_
#else
#define LANEWISE_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Block b of the result is row[4 b][c ... c + 3], widened.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const T* const* row, size_t c) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return LoadWide(d, row[0] + c);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadBlocks(half, row + hn::MaxLanes(D()) / 2, c), LoadBlocks(half, row, c));
  }
}

template <class D, class T>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, T* const* row, size_t c) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    StoreRounded(v, d, row[0] + c);
  } else {
    const hn::Half<D> half;
    StoreBlocks(half, hn::LowerHalf(half, v), row, c);
    StoreBlocks(half, hn::UpperHalf(half, v), row + hn::MaxLanes(D()) / 2, c);
  }
}

// In each 128-bit block, v[0 ... 3] become their 4 x 4 transposition.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void Transpose4x4(D d, V (&v)[4]) {
  const hn::Repartition<uint64_t, D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, v[0], v[1]));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, v[2], v[3]));
  const auto up01 = hn::BitCast(wide, hn::InterleaveUpper(d, v[0], v[1]));
  const auto up23 = hn::BitCast(wide, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(wide, low01, low23));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23));
  v[2] = hn::BitCast(d, hn::InterleaveLower(wide, up01, up23));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(wide, up01, up23));
}

template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void LoadTransposed(D d, const T* const* row, size_t c, V (&out)[4]) {
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t) out[t] = LoadBlocks(d, row + t, c);
  Transpose4x4(d, out);
}

template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void StoreTransposed(D d, V (&in)[4], T* const* row, size_t c) {
  Transpose4x4(d, in);
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t) StoreBlocks(d, in[t], row + t, c);
}

// Dims that TransposeWide makes at once.
inline constexpr size_t kWideDims = HWY_MIN(size_t{8}, hn::MaxLanes(hn::ScalableTag<float>()));

// Of half as many rows as a vector has lanes. Vectors of more than 4 lanes only, as what follows.
template <class D, class T, class V>
HWY_INLINE void LoadHalfOfRows(D d, const T* const* row, size_t c, V (&x)[4]) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const hn::Half<D> half;
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t) x[t] = hn::Combine(d, LoadWide(half, row[4 + t] + c), LoadWide(half, row[t] + c));
#else
  HWY_UNROLL(4)
  for (size_t t = 0; t < 4; ++t) x[t] = LoadWide(d, row[t] + c);
#endif
}

// lane r of out[u] = row[r][c + u] for u < kWideDims. x: the rows of the lower half of out, y: of the upper; 4 x 4
// blocks of each are transposed, then blocks of both meet.
template <class D, class V>
HWY_INLINE void TransposeWide(D d, V (&x)[4], V (&y)[4], V (&out)[kWideDims]) {
  Transpose4x4(d, x);
  Transpose4x4(d, y);
  HWY_UNROLL(4)
  for (size_t u = 0; u < 4; ++u) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
    out[u] = V{_mm512_shuffle_f32x4(x[u].raw, y[u].raw, 0x88)};
    out[4 + u] = V{_mm512_shuffle_f32x4(x[u].raw, y[u].raw, 0xdd)};
#else
    out[u] = hn::ConcatLowerLower(d, y[u], x[u]);
    out[4 + u] = hn::ConcatUpperUpper(d, y[u], x[u]);
#endif
  }
}

// Loads dims c ... c + kWideDims * kGroups - 1 of the rows. A vector of 16 rows whose stride is a multiple of 4 KiB
// fills a set of the first cache twice: both halves of a row's cache line are taken before its place is.
template <size_t kGroups, class D, class T, class V>
HWY_INLINE void LoadWideRows(D d, const T* const* row, size_t c, V (&x)[kGroups][4], V (&y)[kGroups][4]) {
  constexpr size_t kHalf = hn::MaxLanes(D()) / 2;
  HWY_UNROLL(2)
  for (size_t g = 0; g < kGroups; ++g) LoadHalfOfRows(d, row, c + g * kWideDims, x[g]);
  if (kGroups > 1) {
    HWY_FENCE;
  }
  HWY_UNROLL(2)
  for (size_t g = 0; g < kGroups; ++g) LoadHalfOfRows(d, row + kHalf, c + g * kWideDims, y[g]);
  if (kGroups > 1) {
    HWY_FENCE;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
