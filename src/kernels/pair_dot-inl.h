// The bf16 pair dot and its operands: what native_bf16 arithmetic is made of (docs/NUMERICS.md, "native_bf16").
//
//   PairDot(a, b, acc)[lane] = acc[lane] + a.even * b.even + a.odd * b.odd
// a, b: two bf16 in the halves of each 32-bit lane, held as float vectors whatever floats those bits make. Denormals
// count as 0; how the two products round is the instruction's own.

#if defined(LANEWISE_PAIR_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_PAIR_DOT_INL_H_
#undef LANEWISE_PAIR_DOT_INL_H_
#else
#define LANEWISE_PAIR_DOT_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/storage.hpp"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_DOT_BF16

template <class D, class V = hn::Vec<D>>
HWY_INLINE V PairDot(D d, V a, V b, V acc) {
  const hn::Repartition<hwy::bfloat16_t, D> d16;
  V unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, a), hn::BitCast(d16, b), acc, unused);
}

// One pair in all lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V BroadcastPair(D d, const float* pair) {
  V v = hn::Set(d, *pair);
#if HWY_COMPILER_CLANG && HWY_ARCH_X86
  asm("" : "+v"(v.raw));  // clang 16 does not survive a broadcast that it knows is used as bf16
#endif
  return v;
}

// PairDot(b, one pair in all lanes, acc). Compilers broadcast into a register, which costs as much again as half the
// product: an AVX-512 core that works in halves makes three vectors in two cycles (docs/PERFORMANCE.md).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V PairDotBroadcast(D d, const float* pair, V b, V acc) {
#if HWY_ARCH_X86
  static_assert(hn::MaxLanes(D()) == 16, "1to16");
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc.raw) : "v"(b.raw), "m"(*pair));
  return acc;
#else
  return PairDot(d, BroadcastPair(d, pair), b, acc);
#endif
}
// acc[i] = PairDot(b[i], one pair in all lanes, acc[i]).
template <bool kFromMemory, class D, size_t kCount, class V = hn::Vec<D>>
HWY_INLINE void PairDotBroadcast(D d, const float* pair, const V (&b)[kCount], V (&acc)[kCount]) {
  if constexpr (kFromMemory) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kCount; ++i) acc[i] = PairDotBroadcast(d, pair, b[i], acc[i]);
  } else {
    const V all = BroadcastPair(d, pair);
    HWY_UNROLL(4)
    for (size_t i = 0; i < kCount; ++i) acc[i] = PairDot(d, b[i], all, acc[i]);
  }
}

// Two vectors of f32, rounded to bf16 and paired lane by lane: even in the lower halves.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundToPairs(D d, V even, V odd) {
  const hn::Repartition<hwy::bfloat16_t, D> d16;
  const hn::Repartition<uint16_t, D> du16;
  // Neither is a denormal: the x86 conversion would flush it.
  const auto halves = hn::BitCast(du16, hn::OrderedDemote2To(d16, even, odd));
  constexpr size_t N = hn::MaxLanes(D());
  HWY_ALIGN static constexpr struct Order {
    uint16_t at[2 * N];
    constexpr Order() : at() {
      for (size_t i = 0; i < N; ++i) {
        at[2 * i] = static_cast<uint16_t>(i);
        at[2 * i + 1] = static_cast<uint16_t>(N + i);
      }
    }
  } kOrder;
  return hn::BitCast(d, hn::TableLookupLanes(halves, hn::SetTableIndices(du16, kOrder.at)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V EvenOf(D d, V pairs) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, pairs)));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V OddOf(D d, V pairs) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::And(hn::BitCast(du, pairs), hn::Set(du, 0xffff0000u)));
}

#endif  // HWY_NATIVE_DOT_BF16

// A pair as the float whose bits it is.
HWY_INLINE float PairOf(Bf16 even, Bf16 odd) {
  const uint32_t bits = uint32_t{odd.bits} << 16 | even.bits;
  float pair;
  std::memcpy(&pair, &bits, sizeof pair);
  return pair;
}

HWY_INLINE int64_t PairsOf(int64_t n) { return (n + 1) / 2; }

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
