// Rows-in-lanes, the prefill kernel: query rows in the SIMD lanes, K and V broadcast element by element.
//
// For each tile of rows and each 256-key block, in the canonical arithmetic of docs/NUMERICS.md:
//   scores   s[j][r] = sum over c of q'[c][r] * k[j][c]         register tile: vectors x keys
//   probs    p[j][r] = 2^(s[j][r] - m[r]), row_sum[r] = sum over j
//   values   acc[x][r] = sum over j of p[j][r] * v[j][x]        register tile: vectors x dims
// then merges block into span, span into row. All scratch is [key or dim][rows of the tile]: max and sum need no
// horizontal step.
//
// Reads exactly the elements of its rows and of keys that some row of the task may see. The tiles of a task (a panel)
// share each block of K and V, which lets a block be copied once (pack) where strides would defeat the caches.
// Rows that would fill a small part of a vector may go through keys-in-lanes, block by block: few_tail-inl.h.
// Not here: which tasks there are (schedule.cpp), register tiles and their shapes (register_tiles-inl.h), addresses,
// pages and states (rows_io-inl.h).

#if defined(LANEWISE_ROWS_IN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_ROWS_IN_LANES_INL_H_
#undef LANEWISE_ROWS_IN_LANES_INL_H_
#else
#define LANEWISE_ROWS_IN_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/register_tiles-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/ruled_tile-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Scratch of a task, carved in this order. Also tells its size (base = nullptr).
struct RowsScratch {
  float* probs;  // [256][lanes of the tile]: scores, then probs
  float* packed_k;
  float* packed_v;
  size_t size;
};

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
  static_assert(kMaxVectors <= 4, "one case for each number of vectors");
  switch (vectors) {
    case 1:
      return &AttendBlock<1>;
    case 2:
      return &AttendBlock<2>;
    case 3:
      return &AttendBlock<3>;
    default:
      return &AttendBlock<kMaxVectors>;
  }
}

// Merges the span's state into the row's.
static inline HWY_NOINLINE void FinishSpan(const Task& task, const RowTile& tile) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  const size_t rows = tile.vectors * N;
  for (size_t r = 0; r < rows; r += N) {
    const auto factors = FactorsOf(d, hn::Load(d, tile.row_max + r), hn::Load(d, tile.span_max + r));
    hn::Store(factors.max, d, tile.row_max + r);
    hn::Store(Merge(factors, hn::Load(d, tile.row_sum + r), hn::Load(d, tile.span_sum + r)), d, tile.row_sum + r);
    for (int64_t x = 0; x < task.v_dim; ++x) {
      float* row_acc = tile.row_acc + static_cast<size_t>(x) * rows + r;
      float* span_acc = tile.span_acc + static_cast<size_t>(x) * rows + r;
      hn::Store(Merge(factors, hn::Load(d, row_acc), hn::Load(d, span_acc)), d, row_acc);
    }
  }
}

// Delivers the span's state: rows of the tile within states of `rows` rows.
static inline HWY_NOINLINE void DeliverSpan(const Task& task, const RowTile& tile, int64_t rows, float* state) {
  const int64_t row = tile.row_begin - task.row_begin;
  ResultTensor to;
  to.data = state + row;
  to.len_stride = 1;
  StoreRows(to, 0, tile.rows, 1, tile.vectors, 1, tile.span_max);
  to.data = state + rows + row;
  StoreRows(to, 0, tile.rows, 1, tile.vectors, 1, tile.span_sum);
  to.data = state + 2 * rows + row * task.v_dim;
  to.len_stride = task.v_dim;
  to.dim_stride = 1;
  StoreRows(to, 0, tile.rows, 1, tile.vectors, static_cast<size_t>(task.v_dim), tile.span_acc);
}

// What each lane of the tile may see of the task's keys.
static inline void SetVisible(const Task& task, RowTile& tile) {
  const int64_t lanes = static_cast<int64_t>(tile.vectors * hn::Lanes(hn::ScalableTag<float>()));
  tile.any_begin = tile.all_end = task.key_end;
  tile.any_end = tile.all_begin = task.key_begin;
  Reach reach;
  for (int64_t r = 0; r < lanes; ++r) {
    if (r < tile.rows) {
      reach = row_reach(task, tile.row_begin + r);
      reach.prefix = ClampTo(reach.prefix, 0, task.key_end);
      reach.begin = ClampTo(reach.begin, task.key_begin, task.key_end);
      reach.end = ClampTo(reach.end, reach.begin, task.key_end);
      const int64_t first = reach.prefix > task.key_begin ? task.key_begin : reach.begin;
      const int64_t last = HWY_MAX(reach.end, reach.prefix);
      if (first < last) {
        tile.any_begin = HWY_MIN(tile.any_begin, first);
        tile.any_end = HWY_MAX(tile.any_end, last);
      }
      tile.all_begin = HWY_MAX(tile.all_begin, reach.begin);
      tile.all_end = HWY_MIN(tile.all_end, reach.end);
    }
    tile.visible_prefix[r] = reach.prefix;
    tile.visible_begin[r] = reach.begin;
    tile.visible_end[r] = reach.end;
  }
  tile.any_begin = HWY_MIN(tile.any_begin, tile.any_end);
}

// Tiles of a task of `rows` rows.
HWY_INLINE int64_t TilesOf(int64_t rows) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t vectors = (rows + lanes - 1) / lanes;
  return (vectors + int64_t{kMaxVectors} - 1) / int64_t{kMaxVectors};
}

static inline RowsScratch CarveRowsScratch(char* base, int64_t qk_dim, int64_t v_dim, int64_t tiles, bool pack_k,
                                           bool pack_v, RowTile* tile) {
  const int64_t lanes = static_cast<int64_t>(kMaxVectors * hn::Lanes(hn::ScalableTag<float>()));
  RowsScratch scratch = {};
  scratch.probs = Carve(base, scratch.size, kBlockKeys * lanes);
  if (pack_k) scratch.packed_k = Carve(base, scratch.size, kBlockKeys * PackedStride(qk_dim));
  if (pack_v) scratch.packed_v = Carve(base, scratch.size, kBlockKeys * PackedStride(v_dim));
  for (int64_t t = 0; t < tiles; ++t) {
    RowTile unused;
    RowTile& to = tile == nullptr ? unused : tile[t];
    to.q = Carve(base, scratch.size, qk_dim * lanes);
    to.span_acc = Carve(base, scratch.size, v_dim * lanes);
    to.row_acc = Carve(base, scratch.size, v_dim * lanes);
    to.span_max = Carve(base, scratch.size, lanes);
    to.span_sum = Carve(base, scratch.size, lanes);
    to.row_max = Carve(base, scratch.size, lanes);
    to.row_sum = Carve(base, scratch.size, lanes);
    to.visible_begin = reinterpret_cast<int64_t*>(Carve(base, scratch.size, 2 * lanes));
    to.visible_end = reinterpret_cast<int64_t*>(Carve(base, scratch.size, 2 * lanes));
    to.visible_prefix = reinterpret_cast<int64_t*>(Carve(base, scratch.size, 2 * lanes));
    to.rules.minus_slope = Carve(base, scratch.size, lanes);
    to.rules.position = reinterpret_cast<int64_t*>(Carve(base, scratch.size, 2 * lanes));
    to.rules.bias = reinterpret_cast<const char**>(Carve(base, scratch.size, 2 * lanes));
    to.rules.bits = reinterpret_cast<uint32_t*>(Carve(base, scratch.size, kBlockWords * lanes));
  }
  return scratch;
}

// Rows [begin, end) of K or V as a block whose first row is block_row, where they are or copied into `packed`.
HWY_INLINE KeyBlock BlockOf(const KeyTensor& t, int64_t dim, bool pack, float* packed, int64_t block_row, int64_t begin,
                            int64_t end) {
  if (!pack) return {static_cast<const float*>(t.data) + block_row * t.len_stride, t.len_stride};
  const int64_t stride = PackedStride(dim);
  PackKeys(t, dim, begin, end, packed + (begin - block_row) * stride, stride);
  return {packed, stride};
}

// One block under rules that are not plain: tiles look first, so that keys which none of them sees are neither read nor
// copied.
static inline HWY_NOINLINE void AttendRuledBlock(const Task& task, RowTile* tile, int64_t tiles,
                                                 const RowsScratch& scratch, int64_t block_row, int64_t block_end,
                                                 Fetcher& fetcher) {
  KeyBits any = KeyBits();
  for (int64_t t = 0; t < tiles; ++t) {
    SeeBlock(task, tile[t], block_row, block_end - block_row);
    Add(any, tile[t].rules.any);
  }
  const KeyBlock k = RunsOf(task.k, task.qk_dim, task.pack_k, scratch.packed_k, block_row, any);
  const KeyBlock v = RunsOf(task.v, task.v_dim, task.pack_v, scratch.packed_v, block_row, any);
  for (int64_t t = 0; t < tiles; ++t) {
    if (NextBit(tile[t].rules.any, 0, true) == kBlockKeys) continue;
    AttendRunsFor(tile[t].vectors)(task, tile[t], scratch.probs, k, v, block_row, fetcher);
  }
}

// Starts the way of a tile's queries and output rows into the caches, in order of memory: both are touched 16 bytes of a
// row at a time later. Short sequences, where each row is used once, gain 2 %.
static inline HWY_NOINLINE void FetchRows(const Task& task, const RowTile& tile) {
  const int64_t q_size = storage_size(task.q.type), out_size = storage_size(task.out.type);
  for (int64_t r = tile.row_begin; r < tile.row_begin + tile.rows; ++r) {
    const char* q = static_cast<const char*>(task.q.data) + RowOffset(task.q, r, task.group_size) * q_size;
    for (int64_t c = 0; c < task.qk_dim; c += 64 / q_size) __builtin_prefetch(q + c * task.q.dim_stride * q_size, 0, 3);
  }
  if (task.out.data == nullptr || task.out.dim_stride != 1) return;
  for (int64_t r = tile.row_begin; r < tile.row_begin + tile.rows; ++r) {
    const char* out = static_cast<const char*>(task.out.data) + RowOffset(task.out, r, task.group_size) * out_size;
    for (int64_t byte = 0; byte < task.v_dim * out_size; byte += 64) __builtin_prefetch(out + byte, 1, 2);
  }
}

// Rows [begin, end) of K or V, to be fetched while a tile of `vectors` vectors goes over `steps` elements of `width` rows
// or dims at once.
struct AheadList {
  const char* rows[kBlockKeys];

  RowsAhead Fill(const KeyTensor& t, int64_t dim, int64_t begin, int64_t end, int64_t steps) {
    RowsAhead ahead;
    if (begin >= end || t.dim_stride != 1) return ahead;
    for (int64_t j = begin; j < end; ++j) rows[j - begin] = KeyRowBytes(t, j);
    ahead.row = rows;
    ahead.end = rows + (end - begin);
    ahead.bytes = dim * storage_size(t.type);
    const int64_t lines = (end - begin) * ((ahead.bytes + 63) / 64);
    ahead.lines_a_step = (lines + steps - 1) / steps;
    return ahead;
  }
};

// Steps of fetching while a tile takes `keys` keys (or dims), kKeys at once, over `n` dims (or keys).
HWY_INLINE int64_t FetchStepsOf(size_t vectors, int64_t keys, int64_t n) {
  int64_t at_once = TileShape<kMaxVectors>::kKeys;
  if (vectors == 1) at_once = TileShape<1>::kKeys;
  if (vectors == 2) at_once = TileShape<2>::kKeys;
  if (vectors == 3) at_once = TileShape<3>::kKeys;
  return HWY_MAX(int64_t{1}, keys / at_once) * HWY_MAX(int64_t{1}, n / kFetchSteps);
}

// All rows in tiles.
struct NoTail {
  int64_t rows = 0, any_begin = 0, any_end = 0;
  void Block(const KeyBlock&, const KeyBlock&, int64_t, int64_t, int64_t) {}
  void FinishSpan(float*) {}
  void StoreResults() {}
};

// Key rows [begin, end) of one block, whose key 0 is key row block_row; the task's keys end at `last`.
struct BlockRange {
  int64_t block_row, begin, end, last;
};

// How AttendRows works in canonical arithmetic.
struct CanonicalTiles {
  static HWY_INLINE void Load(const Task& task, const RowTile& tile) {
    LoadQueries(task, tile.row_begin, tile.rows, tile.vectors, tile.q);
  }
  // Key row of key 0 of a block whose first position is that of key row `first`, maybe before row 0.
  static HWY_INLINE int64_t BlockRow(const Task&, int64_t first) { return HWY_MAX(int64_t{0}, first); }
  template <class Tail>
  static HWY_INLINE void Attend(const Task& task, RowTile* tile, int64_t tiles, const RowsScratch& scratch,
                                const BlockRange& block, Tail& tail, Fetcher& fetcher) {
    const int64_t block_row = block.block_row;
    if (!task.rules->plain()) return AttendRuledBlock(task, tile, tiles, scratch, block_row, block.end, fetcher);
    const KeyBlock k = BlockOf(task.k, task.qk_dim, task.pack_k, scratch.packed_k, block_row, block.begin, block.end);
    const KeyBlock v = BlockOf(task.v, task.v_dim, task.pack_v, scratch.packed_v, block_row, block.begin, block.end);
    AheadList score_list, value_list;
    BlockAhead ahead;
    if (task.streams) {
      // While a block is worked on, what follows comes in: its values and the next block's keys, or where blocks are
      // copied the next block's keys and values.
      const int64_t n = block.end - block.begin;
      const int64_t next_end = HWY_MIN(block.last, block.end + kBlockKeys);
      const int64_t score_steps = FetchStepsOf(tile[0].vectors, n, task.qk_dim);
      const int64_t value_steps = FetchStepsOf(tile[0].vectors, task.v_dim, n);
      ahead.scores = task.pack_v ? score_list.Fill(task.v, task.v_dim, block.end, next_end, score_steps)
                                 : score_list.Fill(task.v, task.v_dim, block.begin, block.end, score_steps);
      ahead.values = value_list.Fill(task.k, task.qk_dim, block.end, next_end, value_steps);
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = HWY_MAX(block.begin, tile[t].any_begin);
      const int64_t end = HWY_MIN(block.end, tile[t].any_end);
      if (begin >= end) continue;
      AttendBlockFor(tile[t].vectors)(task, tile[t], scratch.probs, k, v, block_row, begin - block_row, end - block_row,
                                      ahead, fetcher);
      ahead = BlockAhead();
    }
    fetcher.Begin(RowsAhead());
    tail.Block(k, v, block_row, block.begin, block.end);
  }
};

// The task's rows but the tail's in tiles; Tail takes its rows of each block after the tiles (few_tail-inl.h).
template <class Tiles, class Tail>
HWY_NOINLINE void AttendRows(const Task& task, Tail& tail) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t all_rows = task.row_end - task.row_begin;
  const int64_t rows = all_rows - tail.rows;
  const int64_t vectors = (rows + lanes - 1) / lanes;
  const int64_t tiles = TilesOf(rows);

  // 1. Tiles: rows and what they may see.
  RowTile tile[kMaxPanelTiles];
  const bool pack_k = task.pack_k || task.native_bf16, pack_v = task.pack_v || task.native_bf16;
  const RowsScratch scratch =
      CarveRowsScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, tiles, pack_k, pack_v, tile);
  int64_t any_begin = task.key_end, any_end = task.key_begin;
  if (tail.any_begin < tail.any_end) {
    any_begin = tail.any_begin;
    any_end = tail.any_end;
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = tile_begin_vector(vectors, tiles, t);
    const int64_t last = tile_begin_vector(vectors, tiles, t + 1);
    tile[t].row_begin = task.row_begin + first * lanes;
    tile[t].rows = HWY_MIN(rows, last * lanes) - first * lanes;
    tile[t].vectors = static_cast<size_t>(last - first);
    SetVisible(task, tile[t]);
    if (!task.rules->plain()) StartRules(task, tile[t]);
    if (tile[t].any_begin < tile[t].any_end) {
      any_begin = HWY_MIN(any_begin, tile[t].any_begin);
      any_end = HWY_MAX(any_end, tile[t].any_end);
    }
  }

  const bool delivers = task.deliver != Deliver::kResults;
  if (delivers) {  // every block or span of the range, seen or not
    any_begin = task.key_begin;
    any_end = task.key_end;
  }

  // 2. Queries and empty states (or the earlier run's). The row state is only needed where more than one span meets: a
  // single
  //    span's state is the row's.
  const bool one_span =
      !task.state_in.given() &&
      (any_begin >= any_end || (task.kv_start + any_begin) / kSpanKeys == (task.kv_start + any_end - 1) / kSpanKeys);
  const bool keeps_row_state = !one_span && !delivers;
  for (int64_t t = 0; t < tiles; ++t) {
    const RowTile& to = tile[t];
    FetchRows(task, to);
    if (to.any_begin < to.any_end) Tiles::Load(task, to);
    StartStates(task, to.vectors, to.span_max, to.span_sum, to.span_acc);
    if (!keeps_row_state) continue;
    StartStates(task, to.vectors, to.row_max, to.row_sum, to.row_acc);
    if (task.state_in.given()) LoadStates(task, to.row_begin, to.rows, to.vectors, to.row_max, to.row_sum, to.row_acc);
  }

  // What the next task reads comes in evenly, while this one's scores are computed.
  Fetcher fetcher;
  int64_t fetch_lines = 0;
  for (size_t i = 0; i < 3; ++i) {
    fetcher.left[i] = task.ahead[i];
    fetch_lines += task.ahead[i].lines;
  }
  const int64_t tile_keys = static_cast<int64_t>(TileShape<kMaxVectors>::kKeys);
  const int64_t steps = tiles * ((any_end - any_begin) / tile_keys) + 1;
  fetcher.lines_a_step = HWY_MIN(kMostLinesAStep, (fetch_lines + steps - 1) / steps);

  // 3. Blocks, at absolute positions: the first and the last may be partial.
  const int64_t unit = task.deliver == Deliver::kBlocks ? kBlockKeys : kSpanKeys;
  float* state = task.states;
  for (int64_t row = any_begin; row < any_end;) {
    const int64_t block_position = (task.kv_start + row) / kBlockKeys * kBlockKeys;
    const int64_t block_row = Tiles::BlockRow(task, block_position - task.kv_start);
    const int64_t block_end = HWY_MIN(any_end, block_position + kBlockKeys - task.kv_start);
    Tiles::Attend(task, tile, tiles, scratch, {block_row, row, block_end, any_end}, tail, fetcher);
    row = block_end;
    if (row < any_end && (task.kv_start + row) % unit != 0) continue;
    tail.FinishSpan(delivers ? state : nullptr);
    if (!delivers && !keeps_row_state) continue;
    for (int64_t t = 0; t < tiles; ++t) {
      const RowTile& to = tile[t];
      if (delivers) {
        DeliverSpan(task, to, all_rows, state);
      } else {
        FinishSpan(task, to);
      }
      StartStates(task, to.vectors, to.span_max, to.span_sum, to.span_acc);
    }
    if (delivers) state += piece_state_size(all_rows, task.v_dim);
  }
  if (delivers) return;

  // 4. Results.
  for (int64_t t = 0; t < tiles; ++t) {
    const RowTile& from = tile[t];
    StoreResults(task, from.row_begin, from.rows, from.vectors, one_span ? from.span_max : from.row_max,
                 one_span ? from.span_sum : from.row_sum, one_span ? from.span_acc : from.row_acc, scratch.probs);
  }
  tail.StoreResults();
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
