// Storage types: elements widened to float32 on reading, rounded on writing (docs/NUMERICS.md, "storage").
//
//   widen    exact, for all 65,536 values of bf16 and f16; a NaN stays a NaN
//   round    to nearest, ties to even; overflow to infinity, denormals kept; every NaN is the type's positive quiet NaN
// The same bits on every target and in every host's floating-point mode that FpEnvironment sets.

#if defined(LANEWISE_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_CONVERT_INL_H_
#undef LANEWISE_CONVERT_INL_H_
#else
#define LANEWISE_CONVERT_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/storage.hpp"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Widening -------------------------------------------------------------------------------------------------------

template <class D, class V16>
HWY_INLINE hn::Vec<D> WidenBf16(D d, V16 bits) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D, class V16>
HWY_INLINE hn::Vec<D> WidenF16(D d, V16 bits) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86 || HWY_ARCH_ARM_A64
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::BitCast(d16, bits));
#else
  // Highway's emulation does not know infinities and NaN.
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffu)));
  // The product moves the exponent from a bias of 15 to one of 127, and normalises denormals.
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
  const hn::RebindToSigned<D> di;
  const auto is_special = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, (0x7c00 << 13) - 1)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
#endif
}

// As many elements as d has lanes, unaligned.
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const Bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  return WidenBf16(d, hn::LoadU(d16, &p->bits));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const F16* p) {
  const hn::Rebind<uint16_t, D> d16;
  return WidenF16(d, hn::LoadU(d16, &p->bits));
}

// The first n < lanes elements; 0 behind them.
template <class D>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const float* p, size_t n) {
  return hn::LoadN(d, p, n);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const Bf16* p, size_t n) {
  const hn::Rebind<uint16_t, D> d16;
  return WidenBf16(d, hn::LoadN(d16, &p->bits, n));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const F16* p, size_t n) {
  const hn::Rebind<uint16_t, D> d16;
  return WidenF16(d, hn::LoadN(d16, &p->bits, n));
}

// One element.
HWY_INLINE float Widen(float x) { return x; }
HWY_INLINE float Widen(Bf16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
HWY_INLINE float Widen(F16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
  float finite;
  std::memcpy(&finite, &magnitude, sizeof finite);
  finite *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &finite, sizeof bits);
  if (magnitude >= 0x7c00u << 13) bits = magnitude | 0x7f800000u;
  bits |= (x.bits & 0x8000u) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// ---- Rounding -------------------------------------------------------------------------------------------------------

// Integer arithmetic: the conversion instruction of x86 flushes denormals. The rounded value, still as float32.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundToBf16(D d, V v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, 0x7fc00000u)), hn::BitCast(d, rounded));
}

// f16 bits in the lower half of each lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToF16Bits(D d, V v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const V magnitude = hn::Abs(v);
  const auto bits = hn::BitCast(du, magnitude);
  const auto sign = hn::ShiftRight<16>(hn::AndNot(bits, hn::BitCast(du, v)));
  // Normal: exponent from a bias of 127 to one of 15, then round off 13 bits.
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0xc8000fffu))));
  // Below 2^-14: the sum with 1/2 has the unit of an f16 denormal in its last place, and rounds to it.
  const auto shifted = hn::BitCast(du, hn::Add(magnitude, hn::Set(d, 0.5f)));
  const auto denormal = hn::Sub(shifted, hn::Set(du, 0x3f000000u));
  const auto signed_bits = hn::BitCast(di, bits);
  auto half = hn::IfThenElse(hn::RebindMask(du, hn::Lt(signed_bits, hn::Set(di, 0x38800000))), denormal, normal);
  // From 65520 on, halfway to the next power of two: infinity.
  half = hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_bits, hn::Set(di, 0x477fefff))), hn::Set(du, 0x7c00u), half);
  half = hn::Or(half, sign);
  return hn::IfThenElse(hn::RebindMask(du, hn::Gt(signed_bits, hn::Set(di, 0x7f800000))), hn::Set(du, 0x7e00u), half);
}

// As many elements as d has lanes, unaligned. float32 is stored as it is: its NaN is made canonical where results are
// made.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreRounded(V v, D d, float* p) {
  hn::StoreU(v, d, p);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundedBits(V v, D d, const Bf16*) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  return hn::TruncateTo(d16, hn::ShiftRight<16>(hn::BitCast(du, RoundToBf16(d, v))));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> RoundedBits(V v, D d, const F16*) {
  const hn::Rebind<uint16_t, D> d16;
  return hn::TruncateTo(d16, RoundToF16Bits(d, v));
}
// even and odd rounded, as 32-bit lanes whose first half in memory is even's: the lower one where bytes begin with the
// lowest.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundedPairs(D d, V even, V odd, const Bf16*) {
  const hn::RebindToUnsigned<D> du;
  const V low = HWY_IS_BIG_ENDIAN ? odd : even, high = HWY_IS_BIG_ENDIAN ? even : odd;
  return hn::BitCast(
      d, hn::Or(hn::ShiftRight<16>(hn::BitCast(du, RoundToBf16(d, low))), hn::BitCast(du, RoundToBf16(d, high))));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundedPairs(D d, V even, V odd, const F16*) {
  const V low = HWY_IS_BIG_ENDIAN ? odd : even, high = HWY_IS_BIG_ENDIAN ? even : odd;
  return hn::BitCast(d, hn::Or(RoundToF16Bits(d, low), hn::ShiftLeft<16>(RoundToF16Bits(d, high))));
}
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void StoreRounded(V v, D d, T* p) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(RoundedBits(v, d, p), d16, &p->bits);
}

// The first n < lanes elements.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreRoundedN(V v, D d, float* p, size_t n) {
  hn::StoreN(v, d, p, n);
}
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void StoreRoundedN(V v, D d, T* p, size_t n) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreN(RoundedBits(v, d, p), d16, &p->bits, n);
}

// ---- Types that only a run knows ------------------------------------------------------------------------------------

// call(an element of this type), whose value means nothing: the one place that goes from LW_TYPE_* to elements.
template <class Call>
HWY_INLINE auto WithElement(int32_t type, const Call& call) {
  switch (type) {
    case LW_TYPE_BF16:
      return call(Bf16());
    case LW_TYPE_F16:
      return call(F16());
    default:
      return call(float());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
