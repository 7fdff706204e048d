// Attention weights of rows whose log-sum-exp is known, and what is made of them: a second pass over scores, without
// values and without states (docs/NUMERICS.md, "Statistics of weights").
//
//   weights      w[r][j] = 2^(s[r][j] - lse[r] * log2(e)), at most 1; hidden keys 0
//   column sums  sum[h][j] += w[r][j] over the rows r of head h, ascending
//   rows         max over j of w[r][j]; entropy[r] = -ln(2) * sum over j of w * log2(w), block by block
// Scores are those of rows-in-lanes: the same tiles of rows, blocks and runs of keys, register loops and rules. Row
// statistics are vertical; for column sums a tile's weights are transposed, so that keys are in the lanes and each
// column is one chain over the rows.
//
// Reads exactly the elements of its rows and of keys that some row of a tile may see; never values. Not here: which
// tasks there are (src/statistics.cpp), scores and rules (register_tiles-inl.h, ruled_tile-inl.h).

#if defined(LANEWISE_WEIGHT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_WEIGHT_TILES_INL_H_
#undef LANEWISE_WEIGHT_TILES_INL_H_
#else
#define LANEWISE_WEIGHT_TILES_INL_H_
#endif

#include <cmath>
#include <limits>

#include <hwy/highway.h>

#include "src/kernels/fetch_ahead-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/prob-inl.h"
#include "src/kernels/register_tiles-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/ruled_tile-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/strips-inl.h"
#include "src/kernels/tile_shapes-inl.h"
#include "src/kernels/transpose-inl.h"
#include "src/kernels/visible_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Row tiles that share each block of K: as in a panel of rows-in-lanes.
inline constexpr int64_t kWeightTiles = 4;

// What is known of a tile's rows, [lanes of the tile] each, where other passes keep their states.
struct RowStatistics {
  explicit RowStatistics(const RowTile& tile)
      : lse(tile.span_max), max(tile.row_max), block_entropy(tile.span_sum), entropy(tile.row_sum) {}
  float* lse;
  float* max;            // of the weights so far
  float* block_entropy;  // in bits, of the block at hand
  float* entropy;        // ... of the blocks before
};

HWY_INLINE bool WantsRowStatistics(const WeightTask& weights) {
  return weights.row_max.data != nullptr || weights.row_entropy.data != nullptr;
}

// ---- Weights --------------------------------------------------------------------------------------------------------

// Scores of keys [begin, end) of a block become weights, for the vector of rows from first_lane on. kBits: keys that
// the tile's bits hide weigh 0.
template <bool kBits, bool kRowStatistics>
HWY_NOINLINE void WeightKeys(const RowTile& tile, size_t first_lane, int64_t begin, int64_t end,
                             float* HWY_RESTRICT w) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = tile.vectors * hn::Lanes(d);
  const RowStatistics rows(tile);
  const V zero = hn::Zero(d), minus_log2e = hn::Set(d, -1.44269504f);
  const V lse = hn::Load(d, rows.lse + first_lane);
  // A row that sees nothing, whatever its scores are. (Not by Ne: whether NaN is unequal differs between targets.)
  const auto empty = hn::Eq(lse, hn::Neg(hn::Inf(d)));
  V max = kRowStatistics ? hn::Load(d, rows.max + first_lane) : zero;
  V entropy = kRowStatistics ? hn::Load(d, rows.block_entropy + first_lane) : zero;
  for (int64_t j = begin; j < end; ++j) {
    float* at = w + static_cast<size_t>(j) * lanes + first_lane;
    // A weight above 1 is rounding of lse. The comparison is false for NaN, which so passes through.
    V log2_weight = hn::MulAdd(lse, minus_log2e, hn::Load(d, at));
    log2_weight = hn::IfThenElse(hn::Gt(log2_weight, zero), zero, log2_weight);
    V weight = hn::IfThenZeroElse(empty, CanonicalNaN(d, Prob(d, log2_weight, zero)));
    if constexpr (kBits) {
      const auto bits = hn::Load(du, tile.rules.bits + static_cast<size_t>(j / 32) * lanes + first_lane);
      const auto visible = hn::RebindMask(d, hn::TestBit(bits, hn::Set(du, uint32_t{1} << (j % 32))));
      weight = hn::IfThenElseZero(visible, weight);
    }
    if constexpr (kRowStatistics) {
      max = hn::Max(max, weight);  // loses NaN; the entropy keeps it
      const V finite_log = hn::IfThenZeroElse(hn::Eq(weight, zero), log2_weight);
      entropy = hn::NegMulAdd(weight, finite_log, entropy);
    }
    hn::Store(weight, d, at);
  }
  if constexpr (kRowStatistics) {
    hn::Store(max, d, rows.max + first_lane);
    hn::Store(entropy, d, rows.block_entropy + first_lane);
  }
}

using WeightKeysFunction = void (*)(const RowTile&, size_t, int64_t, int64_t, float*);

// ---- Column sums ----------------------------------------------------------------------------------------------------

// Sums of `n` neighbouring keys of a head, up to a vector of them.
struct ColumnSums {
  const ResultTensor& to;
  int64_t key_row;
  int64_t n;

  HWY_INLINE float* At(int64_t head) const {
    return static_cast<float*>(to.data) + head * to.head_stride + key_row * to.len_stride;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, int64_t head) const {
    const float* from = At(head);
    if (HWY_LIKELY(to.len_stride == 1 && n == static_cast<int64_t>(hn::Lanes(d)))) return hn::LoadU(d, from);
    HWY_ALIGN float sums[hn::MaxLanes(D())] = {};
    for (int64_t i = 0; i < n; ++i) sums[i] = from[i * to.len_stride];
    return hn::Load(d, sums);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> v, int64_t head) const {
    float* sums = At(head);
    if (HWY_LIKELY(to.len_stride == 1 && n == static_cast<int64_t>(hn::Lanes(d)))) return hn::StoreU(v, d, sums);
    HWY_ALIGN float from[hn::MaxLanes(D())];
    hn::Store(v, d, from);
    for (int64_t i = 0; i < n; ++i) sums[i * to.len_stride] = from[i];
  }
};

// lane j of row[u] = key[j][r + u].
template <class D, class V>
HWY_INLINE void RowsOfKeys(D d, const float* const* key, size_t r, V (&row)[kWideDims]) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    V x[1][4], y[1][4];
    LoadWideRows(d, key, r, x, y);
    TransposeWide(d, x[0], y[0], row);
  } else {
    LoadTransposed(d, key, r, row);
  }
}

// Adds the weights of keys [begin, end) of a block to their columns, of the tile's rows [first, last): rows in lanes
// become keys in lanes, row by row.
static inline HWY_NOINLINE void AddColumns(const WeightTask& weights, const RowTile& tile, int64_t block_row,
                                           int64_t begin, int64_t end, int64_t first, int64_t last,
                                           const float* HWY_RESTRICT w) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const int64_t group_size = weights.rows.group_size;
  const size_t lanes = tile.vectors * N;
  for (int64_t j = begin; j < end; j += static_cast<int64_t>(N)) {
    const ColumnSums sums = {weights.column_sums, block_row + j, HWY_MIN(static_cast<int64_t>(N), end - j)};
    const float* key[N];  // [rows]; the last key fills up
    for (size_t i = 0; i < N; ++i)
      key[i] = w + static_cast<size_t>(HWY_MIN(j + static_cast<int64_t>(i), end - 1)) * lanes;
    V sum = group_size == 1 ? sums.Load(d, 0) : hn::Zero(d);
    int64_t head = (tile.row_begin + first) % group_size;
    for (int64_t r = first; r < last; r += static_cast<int64_t>(kWideDims)) {
      V row[kWideDims];
      RowsOfKeys(d, key, static_cast<size_t>(r), row);
      const size_t count = static_cast<size_t>(HWY_MIN(static_cast<int64_t>(kWideDims), last - r));
      if (group_size == 1) {
        for (size_t u = 0; u < count; ++u) sum = hn::Add(sum, row[u]);
        continue;
      }
      for (size_t u = 0; u < count; ++u) {
        sums.Store(d, hn::Add(sums.Load(d, head), row[u]), head);
        if (++head == group_size) head = 0;
      }
    }
    if (group_size == 1) sums.Store(d, sum, 0);
  }
}

// Columns start at 0, or at what they hold.
static inline HWY_NOINLINE void StartColumns(const WeightTask& weights) {
  const ResultTensor& sums = weights.column_sums;
  for (int64_t head = 0; head < weights.rows.group_size; ++head) {
    float* at = static_cast<float*>(sums.data) + head * sums.head_stride;
    for (int64_t j = weights.rows.key_begin; j < weights.rows.key_end; ++j) {
      float& sum = at[j * sums.len_stride];
      sum = !weights.accumulate ? 0.0f : std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : sum + 0.0f;
    }
  }
}

// ---- One tile, one block --------------------------------------------------------------------------------------------

template <size_t kVectors, class V>
struct WeighRun {
  const Task& task;
  const RowTile& tile;
  const KeyBlock& k;
  int64_t block_row;
  ApplyRulesFunction<V> apply;
  WeightKeysFunction weigh;
  float* HWY_RESTRICT w;
  Fetcher& fetcher;

  template <size_t kFirst, size_t kCount>
  HWY_INLINE void operator()(int64_t begin, int64_t end) const {
    constexpr size_t N = hn::MaxLanes(hn::DFromV<V>());
    V max[kCount];  // of scores: not wanted
    for (size_t i = 0; i < kCount; ++i) max[i] = hn::Zero(hn::DFromV<V>());
    ScoreKeys<kCount, kVectors * N, false>(tile.q + kFirst * N, k.data, k.stride, task.qk_dim, begin, end,
                                           w + kFirst * N, max, fetcher);
    for (size_t i = 0; i < kCount; ++i) {
      const size_t lane = (kFirst + i) * N;
      if (task.rules->change_scores)
        apply(task, tile.rules, kVectors * N, lane, block_row, begin, end, w + lane, max + i);
      weigh(tile, lane, begin, end, w);
    }
  }
};

// The weights of a block's keys [0, n), whose first is key row block_row, of one tile that has looked at it.
template <size_t kVectors>
HWY_NOINLINE void WeighBlock(const WeightTask& weights, const RowTile& tile, const KeyBlock& k, int64_t block_row,
                             int64_t n, float* HWY_RESTRICT w, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  const Task& task = weights.rows;
  const bool row_statistics = WantsRowStatistics(weights);
  const RowStatistics rows(tile);
  KeyRuns runs;
  FindRuns(tile.rules, kVectors, runs);
  const bool whole =
      runs.count == 1 && runs.run[0].begin == 0 && runs.run[0].end == n && runs.run[0].vectors == kVectors;
  if (weights.weights.data != nullptr && !whole) {
    for (size_t i = 0; i < static_cast<size_t>(n) * kRows; i += N) hn::Store(hn::Zero(d), d, w + i);
  }
  if (row_statistics) {
    for (size_t r = 0; r < kRows; ++r) rows.block_entropy[r] = 0.0f;
  }

  static constexpr WeightKeysFunction kWeigh[4] = {&WeightKeys<false, false>, &WeightKeys<true, false>,
                                                   &WeightKeys<false, true>, &WeightKeys<true, true>};
  WeighRun<kVectors, V> weigh = {task, tile, k, block_row, ApplyRulesFor<V>(task), nullptr, w, fetcher};
  for (int64_t i = 0; i < runs.count; ++i) {
    const KeyRuns::Run& run = runs.run[i];
    weigh.weigh = kWeigh[(IsFull(tile.rules, run) ? 0 : 1) + (row_statistics ? 2 : 0)];
    TakeRun<kVectors>(run, weigh);
    if (weights.column_sums.data == nullptr) continue;
    const int64_t first = static_cast<int64_t>(run.first * N);
    const int64_t last = HWY_MIN(tile.rows, first + static_cast<int64_t>(run.vectors * N));
    AddColumns(weights, tile, block_row, run.begin, run.end, first, last, w);
  }

  if (row_statistics) {
    for (size_t r = 0; r < kRows; ++r) rows.entropy[r] += rows.block_entropy[r];
  }
  if (weights.weights.data != nullptr) {
    ResultTensor to = weights.weights;
    to.data = static_cast<float*>(to.data) + block_row * to.dim_stride;
    StoreRows(to, tile.row_begin, tile.rows, task.group_size, kVectors, static_cast<size_t>(n), w);
  }
}

using WeighBlockFunction = void (*)(const WeightTask&, const RowTile&, const KeyBlock&, int64_t, int64_t, float*,
                                    Fetcher&);

HWY_INLINE WeighBlockFunction WeighBlockFor(size_t vectors) {
  static constexpr WeighBlockFunction kFunctions[] = {&WeighBlock<1>, &WeighBlock<2>, &WeighBlock<3>,
                                                      &WeighBlock<kMaxVectors>};
  return kFunctions[vectors - 1];
}

// What the tile's rows see of key rows [block_row + begin, block_row + end) of a block.
static inline HWY_NOINLINE void SeeKeys(const Task& task, RowTile& tile, int64_t block_row, int64_t begin,
                                        int64_t end) {
  const bool none = tile.any_end <= block_row + begin || tile.any_begin >= block_row + end;
  const bool all = task.rules->plain() && tile.all_begin <= block_row + begin && tile.all_end >= block_row + end;
  if (!none && !all) return SeeBlock(task, tile, block_row, end);
  SeeAll(tile, begin, none ? begin : end);
}

// ---- Panels ---------------------------------------------------------------------------------------------------------

// lse of a tile's rows; nothing found yet.
static inline HWY_NOINLINE void StartRows(const WeightTask& weights, const RowTile& tile) {
  const RowStatistics rows(tile);
  const size_t lanes = tile.vectors * hn::Lanes(hn::ScalableTag<float>());
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t row = tile.row_begin + HWY_MIN(static_cast<int64_t>(r), tile.rows - 1);
    rows.lse[r] = static_cast<const float*>(weights.lse.data)[RowOffset(weights.lse, row, weights.rows.group_size)];
    rows.max[r] = rows.entropy[r] = 0.0f;
  }
}

static inline HWY_NOINLINE void StoreRowStatistics(const WeightTask& weights, const RowTile& tile) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  const RowStatistics rows(tile);
  for (size_t r = 0; r < tile.vectors * N; r += N) {
    const auto entropy = CanonicalNaN(d, hn::Mul(hn::Load(d, rows.entropy + r), hn::Set(d, 0.693147180559945f)));
    hn::Store(entropy, d, rows.entropy + r);
    hn::Store(hn::IfThenElse(hn::IsNaN(entropy), entropy, hn::Load(d, rows.max + r)), d, rows.max + r);
  }
  const int64_t group_size = weights.rows.group_size;
  if (weights.row_max.data != nullptr)
    StoreRows(weights.row_max, tile.row_begin, tile.rows, group_size, tile.vectors, 1, rows.max);
  if (weights.row_entropy.data != nullptr)
    StoreRows(weights.row_entropy, tile.row_begin, tile.rows, group_size, tile.vectors, 1, rows.entropy);
}

// `rows` rows of the task from row_begin on, at most kWeightTiles tiles, against all its keys.
static inline HWY_NOINLINE void WeighPanel(const WeightTask& weights, int64_t row_begin, int64_t rows) {
  Task task = weights.rows;
  task.row_begin = row_begin;
  const int64_t tiles = TilesOf(rows);

  // 1. Tiles: rows, what they may see, queries, lse.
  RowTile tile[kWeightTiles];
  const RowsScratch scratch =
      CarveRowsScratch(static_cast<char*>(task.scratch), task.qk_dim, 0, tiles, task.pack_k, false, tile);
  KeyRange any = {task.key_end, task.key_begin};
  PlaceRows(task, rows, tile, tiles, any);
  for (int64_t t = 0; t < tiles; ++t) {
    const RowTile& to = tile[t];
    StartRows(weights, to);
    if (to.any_begin < to.any_end) LoadQueries(task, to.row_begin, to.rows, to.vectors, to.q);
  }
  // One panel reads each key that it sees once, from memory if there are many.
  const bool streams = task.rules->plain() && weights.rows.row_end - weights.rows.row_begin <= rows;
  const KeyRange ahead = any;
  if (weights.weights.data != nullptr) any = {task.key_begin, task.key_end};  // hidden keys too have a place there

  // 2. Blocks, at absolute positions: the first and the last may be partial.
  AheadList next_keys;
  Fetcher fetcher;
  for (int64_t row = any.begin; row < any.end;) {
    const int64_t block_row = BlockRow(task, row);
    const int64_t block_end = HWY_MIN(any.end, BlockBegin(task, row) + kBlockKeys);
    KeyBits seen = KeyBits();
    for (int64_t t = 0; t < tiles; ++t) {
      SeeKeys(task, tile[t], block_row, row - block_row, block_end - block_row);
      Add(seen, tile[t].rules.any);
    }
    const KeyBlock k = RunsOf(task.k, task.qk_dim, task.pack_k, scratch.packed_k, block_row, seen);
    if (streams) {  // the next block's keys come in while the first tile goes over this one's
      const int64_t steps = FetchStepsOf(tile[0].vectors, block_end - row, task.qk_dim);
      fetcher.Begin(next_keys.Fill(task.k, task.qk_dim, HWY_MAX(ahead.begin, block_end),
                                   HWY_MIN(ahead.end, block_end + kBlockKeys), steps));
    }
    for (int64_t t = 0; t < tiles; ++t) {
      if (weights.weights.data == nullptr && NextBit(tile[t].rules.any, 0, true) == kBlockKeys) continue;
      WeighBlockFor(tile[t].vectors)(weights, tile[t], k, block_row, block_end - block_row, scratch.probs, fetcher);
    }
    row = block_end;
  }

  // 3. What came of the rows.
  if (!WantsRowStatistics(weights)) return;
  for (int64_t t = 0; t < tiles; ++t) StoreRowStatistics(weights, tile[t]);
}

static inline void Weights(const WeightTask& weights) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t panel_rows = kWeightTiles * static_cast<int64_t>(kMaxVectors) * lanes;
  if (weights.column_sums.data != nullptr) StartColumns(weights);
  for (int64_t row = weights.rows.row_begin; row < weights.rows.row_end; row += panel_rows)
    WeighPanel(weights, row, HWY_MIN(panel_rows, weights.rows.row_end - row));
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
