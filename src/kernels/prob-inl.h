// prob(s, m) = 2^(s - m): the softmax numerator of a score, relative to its block's reference maximum.
//
// s  score in log2 units, any float with s <= m or NaN. m  reference maximum: an integer (as float), or +inf if s can
// be. Result: relative error <= 1.9e-7 for s - m >= -125; exactly 0 below, so hidden (-3e38) and -inf scores weigh
// nothing; NaN for s = NaN or +inf. The same bits on every target with FMA (docs/NUMERICS.md, "prob").
//
// Not here: the maximum itself (softmax_state-inl.h) and hiding (rules-inl.h).

// Per-target include guard: this file is compiled once for each target.
#if defined(LANEWISE_PROB_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_PROB_INL_H_
#undef LANEWISE_PROB_INL_H_
#else
#define LANEWISE_PROB_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 2^f on [-1/2, 1/2], constant term exactly 1 so that prob(m, m) = 1. Weighted least-squares fit of the relative error
// on Chebyshev nodes, then rounded to float: 1.1e-7 in exact arithmetic, 1.8e-7 as evaluated here. Degree 4 would cost
// 3e-6; degree 6 gains nothing that float32 can hold.
inline constexpr float kExp2Poly[] = {0.0013264727f, 0.0096715130f, 0.055507336f, 0.24022242f, 0.69314700f, 1.0f};

// Below 2^-125 a prob is 0: the last value whose product with poly >= 0.707 is still a normal number, so no result
// depends on whether the CPU flushes denormals.
inline constexpr float kMinExponent = -125.0f;

// p * 2^n for integer n <= 127; exactly 0 below kMinExponent whatever p is; NaN where p is. (The scale instruction
// makes +inf of p = NaN and n = +inf: s <= m keeps that away from rows that are not NaN already.)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V MulByPow2OrZero(D d, V p, V n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // Two instructions instead of six: +1 % of prefill at d = 128, more at d = 64 (docs/PERFORMANCE.md). Same bits.
  // Highway 1.3 has the scaling as MulByFloorPow2; we support 1.2.
  (void)d;
  const __mmask16 keep = _mm512_cmp_ps_mask(n.raw, _mm512_set1_ps(kMinExponent), _CMP_NLT_UQ);
  return V{_mm512_maskz_scalef_ps(keep, p.raw, n.raw)};
#else
  const hn::RebindToSigned<D> di;
  const auto biased = hn::Add(hn::NearestInt(n), hn::Set(di, 127));
  const V product = hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(biased)));
  // The selection comes last, on the product: p may be NaN and must still give 0.
  return hn::IfThenZeroElse(hn::Lt(n, hn::Set(d, kMinExponent)), product);
#endif
}

// 2^n for integer n <= 0, exact; 0 below kMinExponent.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Pow2(D d, V n) {
  return MulByPow2OrZero(d, hn::Set(d, 1.0f), n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Prob(D d, V score, V reference_max) {
  const V whole = hn::Round(score);
  const V fraction = hn::Sub(score, whole);
  const V exponent = hn::Sub(whole, reference_max);
  V poly = hn::Set(d, kExp2Poly[0]);
  poly = hn::MulAdd(poly, fraction, hn::Set(d, kExp2Poly[1]));
  poly = hn::MulAdd(poly, fraction, hn::Set(d, kExp2Poly[2]));
  poly = hn::MulAdd(poly, fraction, hn::Set(d, kExp2Poly[3]));
  poly = hn::MulAdd(poly, fraction, hn::Set(d, kExp2Poly[4]));
  poly = hn::MulAdd(poly, fraction, hn::Set(d, kExp2Poly[5]));
  return MulByPow2OrZero(d, poly, exponent);  // score = -inf makes fraction and poly NaN, and still gives 0
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
