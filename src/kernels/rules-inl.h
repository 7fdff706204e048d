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

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
