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
// share each block of K and V, which lets a block be copied once (pack) where strides would defeat the caches. Rows
// that would fill a small part of a vector may go through keys-in-lanes, block by block: few_tail-inl.h. Here: a task's
// way through its blocks. Not here: which tasks there are (src/task_cursor.cpp), one tile against one block
// (plain_tile-inl.h, ruled_tile-inl.h), register tiles (register_tiles-inl.h), addresses, pages and states
// (rows_io-inl.h).

#if defined(LANEWISE_ROWS_IN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_ROWS_IN_LANES_INL_H_
#undef LANEWISE_ROWS_IN_LANES_INL_H_
#else
#define LANEWISE_ROWS_IN_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/fetch_ahead-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/plain_tile-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/ruled_tile-inl.h"
#include "src/kernels/strips-inl.h"
#include "src/kernels/tile_shapes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// Starts the way of a tile's queries and output rows into the caches, in order of memory: both are touched 16 bytes of
// a row at a time later. Short sequences, where each row is used once, gain 2 %.
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

// Rows [begin, end) of K or V, to be fetched in `steps` steps of a tile's work.
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
  const int64_t at_once = static_cast<int64_t>(kTileKeys[vectors - 1]);
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

// Places `rows` rows in tiles and finds what they may see. any: key rows that others of the task may see; comes back
// with these rows' too.
static inline void PlaceRows(const Task& task, int64_t rows, RowTile* tile, int64_t tiles, KeyRange& any) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t vectors = (rows + lanes - 1) / lanes;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t first = tile_begin_vector(vectors, tiles, t);
    const int64_t last = tile_begin_vector(vectors, tiles, t + 1);
    tile[t].row_begin = task.row_begin + first * lanes;
    tile[t].rows = HWY_MIN(rows, last * lanes) - first * lanes;
    tile[t].vectors = static_cast<size_t>(last - first);
    SetVisible(task, tile[t]);
    if (!task.rules->plain()) StartRules(task, tile[t]);
    if (tile[t].any_begin < tile[t].any_end) {
      any.begin = HWY_MIN(any.begin, tile[t].any_begin);
      any.end = HWY_MAX(any.end, tile[t].any_end);
    }
  }
}

// Fetches what the next task reads, evenly over `steps` score tiles.
static inline void FetchNextTask(const Task& task, int64_t steps, Fetcher& fetcher) {
  int64_t lines = 0;
  for (size_t i = 0; i < 3; ++i) {
    fetcher.left[i] = task.ahead[i];
    lines += task.ahead[i].lines;
  }
  fetcher.lines_a_step = HWY_MIN(kMostLinesAStep, (lines + steps - 1) / steps);
}

// The task's rows but the tail's in tiles; Tail takes its rows of each block after the tiles (few_tail-inl.h).
template <class Tiles, class Tail>
HWY_NOINLINE void AttendRows(const Task& task, Tail& tail) {
  const int64_t all_rows = task.row_end - task.row_begin;
  const int64_t rows = all_rows - tail.rows;
  const int64_t tiles = TilesOf(rows);
  const bool delivers = task.deliver != Deliver::kResults;

  // 1. Tiles: rows and what they may see.
  RowTile tile[kMaxPanelTiles];
  const bool pack_k = task.pack_k || task.native_bf16, pack_v = task.pack_v || task.native_bf16;
  const RowsScratch scratch =
      CarveRowsScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, tiles, pack_k, pack_v, tile);
  KeyRange any = {task.key_end, task.key_begin};
  if (tail.any_begin < tail.any_end) any = {tail.any_begin, tail.any_end};
  PlaceRows(task, rows, tile, tiles, any);
  if (delivers) any = {task.key_begin, task.key_end};  // every block or span of the range, seen or not

  // 2. Queries and empty states (or the earlier run's). The row state is only needed where more than one span meets: a
  // single span's state is the row's.
  const bool one_span =
      !task.state_in.given() &&
      (any.begin >= any.end || (task.kv_start + any.begin) / kSpanKeys == (task.kv_start + any.end - 1) / kSpanKeys);
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

  Fetcher fetcher;
  FetchNextTask(task, tiles * ((any.end - any.begin) / int64_t{kTileKeys[kMaxVectors - 1]}) + 1, fetcher);

  // 3. Blocks, at absolute positions: the first and the last may be partial.
  const int64_t unit = task.deliver == Deliver::kBlocks ? kBlockKeys : kSpanKeys;
  float* state = task.states;
  for (int64_t row = any.begin; row < any.end;) {
    const int64_t block_row = BlockRow(task, row);
    const int64_t block_end = HWY_MIN(any.end, BlockBegin(task, row) + kBlockKeys);
    Tiles::Attend(task, tile, tiles, scratch, {block_row, row, block_end, any.end}, tail, fetcher);
    row = block_end;
    if (row < any.end && (task.kv_start + row) % unit != 0) continue;
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
