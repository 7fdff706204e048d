// One tile of rows against one block under plain rules: causal, window and lengths, where each row sees one interval of
// keys whose bounds never fall with rows. ruled_tile-inl.h is the counterpart for all other rules.

#if defined(LANEWISE_PLAIN_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_PLAIN_TILE_INL_H_
#undef LANEWISE_PLAIN_TILE_INL_H_
#else
#define LANEWISE_PLAIN_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/register_tiles-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// How the vectors of a tile take part in keys [begin, end) of a block whose first key row is block_row.
template <size_t kVectors>
HWY_INLINE Strips<kVectors> CutStrips(const RowTile& tile, int64_t block_row, int64_t begin, int64_t end) {
  constexpr size_t N = hn::MaxLanes(hn::ScalableTag<float>());
  Strips<kVectors> strips;
  for (size_t i = 0; i < kVectors; ++i) {
    // Bounds do not fall with rows, so a vector's first lane begins and its last lane ends it.
    strips.begin[i] = HWY_MAX(begin, HWY_MIN(end, tile.visible_begin[i * N] - block_row));
    strips.end[i] = HWY_MAX(begin, HWY_MIN(end, tile.visible_end[i * N + N - 1] - block_row));
  }
  if (strips.begin[kVectors - 1] > strips.end[0]) {  // a window narrower than the tile
    for (size_t i = 0; i < kVectors; ++i) {
      strips.begin[i] = begin;
      strips.end[i] = end;
    }
  }
  return strips;
}

// What each lane may see of the block whose first key row is block_row.
template <size_t kVectors, class V>
HWY_INLINE void LoadVisible(const RowTile& tile, int64_t block_row, VisibleInterval<V> (&visible)[kVectors]) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  HWY_ALIGN float bounds[2 * kRows];
  for (size_t r = 0; r < kRows; ++r) {
    bounds[r] = static_cast<float>(ClampTo(tile.visible_begin[r] - block_row, 0, kBlockKeys));
    bounds[kRows + r] = static_cast<float>(ClampTo(tile.visible_end[r] - block_row, 0, kBlockKeys));
  }
  for (size_t i = 0; i < kVectors; ++i) visible[i] = {hn::Load(d, bounds + i * N), hn::Load(d, bounds + kRows + i * N)};
}

template <size_t kVectors, class V>
struct EdgeScorePart {
  const Task& task;
  const RowTile& tile;
  const KeyBlock& k;
  const VisibleInterval<V>* visible;
  float* HWY_RESTRICT scores;
  V* max;
  Fetcher& fetcher;

  template <size_t kFirst, size_t kStrips>
  HWY_INLINE void operator()(int64_t begin, int64_t end) const {
    constexpr size_t N = hn::MaxLanes(hn::DFromV<V>());
    if (begin >= end) return;
    ScoreEdgeKeys<kStrips, kVectors * N>(tile.q + kFirst * N, k.data, k.stride, task.qk_dim, begin, end,
                                         visible + kFirst, scores + kFirst * N, max + kFirst, fetcher);
  }
};

// Scores, probs and row sums of a block in which lanes see different keys. The lanes' intervals go to `visible`.
template <size_t kVectors, class V>
HWY_NOINLINE void EdgeProbs(const Task& task, const RowTile& tile, float* HWY_RESTRICT probs, const KeyBlock& k,
                            int64_t block_row, const Strips<kVectors>& strips, VisibleInterval<V> (&visible)[kVectors],
                            V (&max)[kVectors], V (&sum)[kVectors], Fetcher& fetcher) {
  constexpr size_t N = hn::MaxLanes(hn::DFromV<V>());
  constexpr size_t kRows = kVectors * N;
  LoadVisible<kVectors>(tile, block_row, visible);
  const EdgeScorePart<kVectors, V> part{task, tile, k, visible, probs, max, fetcher};
  ForEachHeadPart(strips, part);
  // Keys of all vectors: hidden from some lane, seen by all, hidden from some lane.
  const int64_t common_begin = strips.begin[kVectors - 1];
  const int64_t common_end = strips.end[0];
  const int64_t full_begin = ClampTo(tile.all_begin - block_row, common_begin, common_end);
  const int64_t full_end = ClampTo(tile.all_end - block_row, full_begin, common_end);
  part.template operator()<0, kVectors>(common_begin, full_begin);
  ScoreKeys<kVectors, kRows, true>(tile.q, k.data, k.stride, task.qk_dim, full_begin, full_end, probs, max, fetcher);
  part.template operator()<0, kVectors>(full_end, common_end);
  ForEachTailPart(strips, part);

  for (size_t i = 0; i < kVectors; ++i) {
    ProbKeys<1, kRows>(probs + i * N, strips.begin[i], strips.end[i], max + i, sum + i);
  }
}

// What is fetched while a block's scores are computed, and while its values are added.
struct BlockAhead {
  RowsAhead scores, values;
};

// Keys [begin, end) of one block, relative to the block's first key row, for one tile.
template <size_t kVectors>
HWY_NOINLINE void AttendBlock(const Task& task, const RowTile& tile, float* HWY_RESTRICT probs, const KeyBlock& k,
                              const KeyBlock& v, int64_t block_row, int64_t begin, int64_t end, const BlockAhead& ahead,
                              Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const size_t v_dim = static_cast<size_t>(task.v_dim);

  // 1. Scores, reference maxima, probs, row sums.
  fetcher.Begin(ahead.scores);
  const bool edge = tile.all_begin > block_row + begin || tile.all_end < block_row + end;
  V max[kVectors], sum[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    max[i] = hn::Set(d, kNoMax);
    sum[i] = hn::Zero(d);
  }
  VisibleInterval<V> visible[kVectors];
  Strips<kVectors> strips;
  if (edge) {
    strips = CutStrips<kVectors>(tile, block_row, begin, end);
    EdgeProbs<kVectors>(task, tile, probs, k, block_row, strips, visible, max, sum, fetcher);
  } else {
    ScoreKeys<kVectors, kVectors * N, true>(tile.q, k.data, k.stride, task.qk_dim, begin, end, probs, max, fetcher);
    ProbKeys<kVectors, kVectors * N>(probs, begin, end, max, sum);
  }

  // 2. Merge into the span: maxima and sums now, acc with the values.
  MergeFactors<V> factors[kVectors];
  MergeIntoSpan(tile, max, sum, factors);

  fetcher.Begin(ahead.values);

  // 3. Values. A hidden key's prob is 0, which hides its value unless that is NaN or infinite: then take the masked
  // path.
  if (HWY_LIKELY(!edge)) {
    AddValues<kVectors>(probs, v.data, v.stride, v_dim, KeyRange{begin, end}, factors, tile.span_acc, fetcher);
    return;
  }
  const int64_t full_begin = ClampTo(tile.all_begin - block_row, begin, end);
  const int64_t full_end = ClampTo(tile.all_end - block_row, full_begin, end);
  if (HWY_LIKELY(AllFinite(v, begin, full_begin, v_dim) && AllFinite(v, full_end, end, v_dim))) {
    AddValues<kVectors>(probs, v.data, v.stride, v_dim, strips, factors, tile.span_acc, fetcher);
  } else {
    AddVisibleValues<kVectors>(probs, v.data, v.stride, v_dim, strips, visible, factors, tile.span_acc);
  }
}

using AttendBlockFunction = void (*)(const Task&, const RowTile&, float*, const KeyBlock&, const KeyBlock&, int64_t,
                                     int64_t, int64_t, const BlockAhead&, Fetcher&);

HWY_INLINE AttendBlockFunction AttendBlockFor(size_t vectors) {
  static constexpr AttendBlockFunction kFunctions[] = {&AttendBlock<1>, &AttendBlock<2>, &AttendBlock<3>,
                                                       &AttendBlock<kMaxVectors>};
  return kFunctions[vectors - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
