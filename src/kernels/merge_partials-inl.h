// Partial results (out, lse) of one row over disjoint key ranges, combined: with m = max lse and w_i = exp(lse_i - m),
//   out = sum(w_i * out_i) / sum(w_i), lse = m + log(sum(w_i))
// in part order. Parts with lse = -inf weigh nothing and are not read. Error: one prob and one product more than each
// part's own.

#if defined(LANEWISE_MERGE_PARTIALS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_MERGE_PARTIALS_INL_H_
#undef LANEWISE_MERGE_PARTIALS_INL_H_
#else
#define LANEWISE_MERGE_PARTIALS_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/softmax_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void MergePartials(const PartialRows& row) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kLog2E = 1.44269504088896341f;
  const V zero = hn::Zero(d);
  const float minus_infinity = hn::GetLane(hn::Neg(hn::Inf(d)));

  float max = minus_infinity;
  for (int64_t i = 0; i < row.count; ++i) {
    if (max == max && !(row.lse[i] <= max)) max = row.lse[i];  // a NaN is taken, and stays
  }
  const bool empty = max == minus_infinity;
  // 2^((lse - m) log2 e), the same for a part whichever dims ask.
  const auto weight = [&](int64_t i) HWY_ATTR { return Prob(d, hn::Set(d, (row.lse[i] - max) * kLog2E), zero); };
  V sum = zero;
  for (int64_t i = 0; i < row.count; ++i) {
    if (row.lse[i] != minus_infinity) sum = hn::Add(sum, weight(i));
  }

  for (int64_t x = 0; x < row.v_dim; x += N) {
    const int64_t dims = HWY_MIN(N, row.v_dim - x);
    HWY_ALIGN float lanes[hn::MaxLanes(decltype(d)())] = {};
    V acc = zero;
    for (int64_t i = 0; i < row.count; ++i) {
      if (row.lse[i] == minus_infinity) continue;
      for (int64_t l = 0; l < dims; ++l) lanes[l] = row.out[i][(x + l) * row.dim_stride[i]];
      acc = hn::MulAdd(weight(i), hn::Load(d, lanes), acc);
    }
    const V out = empty ? zero : CanonicalNaN(d, hn::Add(hn::Div(acc, sum), zero));
    hn::Store(out, d, lanes);
    for (int64_t l = 0; l < dims; ++l) row.merged_out[(x + l) * row.merged_dim_stride] = lanes[l];
  }
  if (row.merged_lse == nullptr) return;
  // m is a natural logarithm here: the sum's own is added to it.
  const V lse = hn::Add(hn::Set(d, max), LogSumExp(d, zero, sum));
  *row.merged_lse = empty ? minus_infinity : hn::GetLane(CanonicalNaN(d, lse));
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
