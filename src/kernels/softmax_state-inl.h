// The online-softmax state and its merge (docs/NUMERICS.md, "merge"): reference maximum M (an integer, as float),
// row_sum, acc.
//
//   empty state    M = -1e38, row_sum = 0, acc = 0
//   merge(a, b)    M' = max(M_a, M_b); x = fma(x_a, 2^(M_a - M'), x_b * 2^(M_b - M')) for row_sum and each acc
//   finish         out = acc / row_sum + 0, lse = (M + log2(row_sum)) * ln 2; no visible weight (row_sum = 0): out 0, lse -inf
//
// Exact powers of two make the merge the same in every kernel; NaN in row_sum or acc stays NaN through merges.

#if defined(LANEWISE_SOFTMAX_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_SOFTMAX_STATE_INL_H_
#undef LANEWISE_SOFTMAX_STATE_INL_H_
#else
#define LANEWISE_SOFTMAX_STATE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/prob-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The reference maximum of a block without visible keys: finite, so that no difference of maxima is NaN, and far above
// a hidden score, so that hidden keys of an empty block sum to 0.
inline constexpr float kNoMax = -1e38f;

// Result types store one NaN: positive and quiet.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V CanonicalNaN(D d, V v) {
  const hn::RebindToUnsigned<D> du;
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, 0x7fc00000u)), v);
}

// Factors of merge(a, b).
template <class V>
struct MergeFactors {
  HWY_ATTR MergeFactors() {}
  HWY_ATTR MergeFactors(V m, V f, V g) : max(m), a(f), b(g) {}
  V max, a, b;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE MergeFactors<V> FactorsOf(D d, V max_a, V max_b) {
  const V max = hn::Max(max_a, max_b);
  return {max, Pow2(d, hn::Sub(max_a, max)), Pow2(d, hn::Sub(max_b, max))};
}

template <class V>
HWY_INLINE V Merge(const MergeFactors<V>& factors, V x_a, V x_b) {
  return hn::MulAdd(x_a, factors.a, hn::Mul(x_b, factors.b));
}

// The state of a sink, one logit without a value: what a span of one key would be, with acc 0. -inf: no sink; +inf and
// NaN make NaN of what they meet.
template <class V>
struct SinkState {
  HWY_ATTR SinkState() {}
  HWY_ATTR SinkState(V m, V s) : max(m), sum(s) {}
  V max, sum;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE SinkState<V> SinkOf(D d, V sink2) {
  const V max = hn::IfThenElse(hn::Lt(sink2, hn::Set(d, kNoMax)), hn::Set(d, kNoMax), hn::Ceil(sink2));
  return {max, Prob(d, sink2, max)};
}

// sink * log2(e), rounded once.
HWY_INLINE float Sink2(float sink) { return static_cast<float>(1.4426950408889634074 * double{sink}); }

// log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1], least squares on Chebyshev nodes: log2 is within 5e-8 absolute as
// evaluated.
inline constexpr float kLog2Poly[] = {
    -0.11020159721374512f, 0.18631209433078766f, -0.19102497398853302f, 0.2045752853155136f,  -0.23961904644966125f,
    0.2885688841342926f,   -0.3606966435909271f, 0.4808982014656067f,   -0.7213473320007324f, 1.4426950216293335f};

// (M + log2(row_sum)) * ln 2. row_sum normal and positive, or NaN. The exponent of row_sum joins M first: both are
// integers.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LogSumExp(D d, V max, V row_sum) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, row_sum);
  // Exponent of the power of two nearest to row_sum in the logarithm: mantissa in [sqrt(1/2), sqrt(2)).
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const V mantissa = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V f = hn::Sub(mantissa, hn::Set(d, 1.0f));
  V poly = hn::Set(d, kLog2Poly[0]);
  for (size_t i = 1; i < 10; ++i) poly = hn::MulAdd(poly, f, hn::Set(d, kLog2Poly[i]));
  const V whole = hn::Add(max, hn::ConvertTo(d, exponent));
  const V lse = hn::Mul(hn::MulAdd(poly, f, whole), hn::Set(d, 0.693147180559945f));
  // The bit tricks above lose NaN; an infinite sum means the scores overflowed.
  return hn::IfThenElse(hn::IsFinite(row_sum), lse, hn::Add(row_sum, max));
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
