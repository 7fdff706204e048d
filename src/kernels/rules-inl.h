// Score rules and visibility, elementwise: one form for every kernel (docs/NUMERICS.md, "rules").
//
// Hiding is decided by conditions on positions, never by the score: a hidden score becomes kHidden whatever it was, NaN
// too.

#if defined(LANEWISE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_RULES_INL_H_
#undef LANEWISE_RULES_INL_H_
#else
#define LANEWISE_RULES_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Finite (an infinity would make NaN of score - round(score)) and so far below kNoMax that its prob is 0 against any
// maximum.
inline constexpr float kHidden = -3e38f;

// Keys begin <= key < end are visible. Key indices within a block, as floats: exact.
template <class V>
struct VisibleInterval {
  // By hand: gcc builds an implicit constructor for the plain baseline, where a NEON vector's own cannot be inlined.
  HWY_ATTR VisibleInterval() {}
  HWY_ATTR VisibleInterval(V first, V last) : begin(first), end(last) {}
  V begin, end;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> IsVisible(D d, const VisibleInterval<V>& visible, size_t key) {
  const V k = hn::Set(d, static_cast<float>(key));
  return hn::And(hn::Le(visible.begin, k), hn::Lt(k, visible.end));
}

// ---- Rules on scores, in this order; scores in log2 units -----------------------------------------------------------

// tanh(x) / x on |x| <= kTanhReach as P(u) / Q(u), u = x^2, both beginning with 1: small scores pass unchanged.
// Weighted least squares of the relative error on Chebyshev nodes, then rounded to float: 7e-9 in exact arithmetic,
// 2.8e-7 as evaluated here (test_tanh). Beyond kTanhReach tanh is 1 within 2.3e-7, and x is taken to be kTanhReach.
inline constexpr float kTanhReach = 8.0f;
inline constexpr float kTanhP[] = {1.529347670725656e-08f, 2.193984437326435e-05f, 0.003574356436729431f,
                                   0.13446831703186035f, 1.0f};
inline constexpr float kTanhQ[] = {8.548105938643857e-07f, 0.00034157896880060434f, 0.026174968108534813f,
                                   0.46780160069465637f, 1.0f};

// cap * tanh(s / cap). cap_inverse = 1 / cap. Comparisons are false for NaN, which so passes through.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SoftCap(D d, V s, float cap, float cap_inverse) {
  const V reach = hn::Set(d, kTanhReach * cap);
  const V least = hn::Set(d, -kTanhReach * cap);
  s = hn::IfThenElse(hn::Gt(s, reach), reach, s);
  s = hn::IfThenElse(hn::Lt(s, least), least, s);
  const V x = hn::Mul(s, hn::Set(d, cap_inverse));
  const V u = hn::Mul(x, x);
  V p = hn::Set(d, kTanhP[0]);
  V q = hn::Set(d, kTanhQ[0]);
  HWY_UNROLL(4)
  for (size_t i = 1; i < 5; ++i) {
    p = hn::MulAdd(p, u, hn::Set(d, kTanhP[i]));
    q = hn::MulAdd(q, u, hn::Set(d, kTanhQ[i]));
  }
  return hn::Mul(s, hn::Div(p, q));
}

// distance = |p - j|, rounded once.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AddAlibi(D, V s, V minus_slope, V distance) {
  return hn::MulAdd(minus_slope, distance, s);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V AddBias(D d, V s, V bias) {
  return hn::MulAdd(bias, hn::Set(d, 1.44269504f), s);
}

// A bias at or below this hides its key.
inline constexpr float kHides = -1e38f;

// Distances of positions below this are exact floats.
inline constexpr int64_t kExactDistance = int64_t{1} << 24;

// minus slope * log2(e), rounded once.
HWY_INLINE float MinusSlope(float slope) { return static_cast<float>(-1.4426950408889634074 * double{slope}); }

HWY_INLINE float DistanceOf(int64_t from, int64_t to) { return static_cast<float>(from < to ? to - from : from - to); }

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
