#include "bench/kernel_parts.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernel_parts.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The library's headers hold more than is timed here.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "src/kernels/register_tiles-inl.h"
#include "src/kernels/rows_io-inl.h"
#pragma GCC diagnostic pop

HWY_BEFORE_NAMESPACE();
namespace lanewise::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace kernels = lanewise::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
inline constexpr size_t kLanes = hn::MaxLanes(D());

template <size_t kVectors>
void Scores(const float* q, const float* k, int64_t stride, int64_t qk_dim, float* scores) {
  V max[kVectors];
  for (size_t i = 0; i < kVectors; ++i) max[i] = hn::Set(D(), kernels::kNoMax);
  kernels::Fetcher fetcher;  // nothing to fetch
  kernels::ScoreKeys<kVectors, kVectors * kLanes, true>(q, k, stride, qk_dim, 0, kBlockKeys, scores, max, fetcher);
}

template <size_t kVectors>
void Probs(float* scores) {
  V max[kVectors], sum[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    max[i] = hn::Set(D(), 8.0f);
    sum[i] = hn::Zero(D());
  }
  kernels::ProbKeys<kVectors, kVectors * kLanes>(scores, 0, kBlockKeys, max, sum);
}

template <size_t kVectors>
void Values(const float* probs, const float* v, int64_t stride, int64_t v_dim, float* acc) {
  kernels::MergeFactors<V> factors[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    factors[i] = kernels::FactorsOf(D(), hn::Set(D(), 4.0f), hn::Set(D(), 5.0f));
  }
  kernels::Fetcher fetcher;  // nothing to fetch
  kernels::AddValues<kVectors>(probs, v, stride, static_cast<size_t>(v_dim), kernels::KeyRange{0, kBlockKeys}, factors,
                               acc, fetcher);
}

void StoreRows(const ResultTensor& to, int64_t rows, size_t vectors, size_t v_dim, const float* from) {
  kernels::StoreRows(to, 0, rows, 1, vectors, v_dim, from);
}

void Pack(const KeyTensor& keys, int64_t dim, float* packed, int64_t stride) {
  kernels::PackKeys(keys, dim, 0, kBlockKeys, packed, stride);
}

template <size_t kVectors>
void AddTile(KernelParts& parts) {
  if constexpr (kVectors <= kernels::kMaxVectors) {
    parts.scores[kVectors - 1] = &Scores<kVectors>;
    parts.probs[kVectors - 1] = &Probs<kVectors>;
    parts.values[kVectors - 1] = &Values<kVectors>;
  }
}

KernelParts Parts() {
  static_assert(kernels::kMaxVectors <= kMostVectors, "one entry a tile");
  KernelParts parts;
  parts.lanes = kLanes;
  parts.max_vectors = kernels::kMaxVectors;
  AddTile<1>(parts);
  AddTile<2>(parts);
  AddTile<3>(parts);
  AddTile<4>(parts);
  parts.store_rows = &StoreRows;
  parts.pack = &Pack;
  return parts;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lanewise::bench {
HWY_EXPORT(Parts);

KernelParts kernel_parts_for(int64_t target) {
#if HWY_TARGETS & (HWY_TARGETS - 1)
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Parts)[chosen.GetIndex()]();
#else
  (void)target;  // the only one
  return HWY_STATIC_DISPATCH(Parts)();
#endif
}
}  // namespace lanewise::bench
#endif  // HWY_ONCE
