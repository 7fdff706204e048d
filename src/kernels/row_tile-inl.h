// A tile of query rows as rows-in-lanes works on it: its scratch, what its rows may see, its state of a span from start
// to delivery; and a block of keys as register tiles read it.

#if defined(LANEWISE_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_ROW_TILE_INL_H_
#undef LANEWISE_ROW_TILE_INL_H_
#else
#define LANEWISE_ROW_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/tile_shapes-inl.h"
#include "src/kernels/visible_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What rules that are not plain need to know of a tile's rows, and of the block at hand.
struct TileRules {
  float* minus_slope;              // [lanes of the tile], as the following
  int64_t* position;               // on the key axis
  const char** bias;               // the row's column 0
  uint32_t* bits;                  // [kBlockWords][lanes of the tile]: keys of the block that each lane sees
  KeyBits any;                     // ... that some lane sees
  KeyBits of_vector[kMaxVectors];  // ... that some lane of a vector sees
  KeyBits all_of[kMaxVectors];     // ... that all lanes of a vector see
};

// One row tile: its rows, its scratch, what its rows may see.
struct RowTile {
  int64_t row_begin, rows;  // rows of the task; lanes past `rows` repeat the last row
  size_t vectors;
  float* q;         // [qk_dim][lanes of the tile], times factor
  float* span_acc;  // [v_dim][lanes of the tile]
  float* row_acc;   // the same; used from the second span on
  float* span_max;  // [lanes of the tile], as the following
  float* span_sum;
  float* row_max;
  float* row_sum;
  int64_t* visible_begin;  // key rows [begin, end) that lane r may see
  int64_t* visible_end;
  int64_t* visible_prefix;     // and [0, prefix)
  int64_t any_begin, any_end;  // key rows that some lane may see
  int64_t all_begin, all_end;  // key rows that all lanes see (empty if end <= begin)
  TileRules rules;             // where the task's rules are not plain
};

// Block of keys as the register tiles read it: key j, dim c at data[j * stride + c].
struct KeyBlock {
  const float* data;
  int64_t stride;
};

// Rows of v in [begin, end) hold only finite values.
static inline HWY_NOINLINE bool AllFinite(const KeyBlock& v, int64_t begin, int64_t end, size_t v_dim) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  auto bad = hn::Zero(d);  // x * 0 is NaN for NaN and infinities, and stays
  float bad_tail = 0;
  for (int64_t j = begin; j < end; ++j) {
    const float* row = v.data + j * v.stride;
    size_t x = 0;
    for (; x + N <= v_dim; x += N) bad = hn::MulAdd(hn::LoadU(d, row + x), hn::Zero(d), bad);
    for (; x < v_dim; ++x) bad_tail += row[x] * 0.0f;
  }
  return hn::AllFalse(d, hn::IsNaN(bad)) && bad_tail == 0.0f;
}

// Merges a block's maxima and sums into the span's; what its acc is to be merged with comes back in `factors`.
template <size_t kVectors, class V>
HWY_INLINE void MergeIntoSpan(const RowTile& tile, const V (&max)[kVectors], const V (&sum)[kVectors],
                              MergeFactors<V> (&factors)[kVectors]) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  for (size_t i = 0; i < kVectors; ++i) {
    factors[i] = FactorsOf(d, hn::Load(d, tile.span_max + i * N), max[i]);
    hn::Store(factors[i].max, d, tile.span_max + i * N);
    hn::Store(Merge(factors[i], hn::Load(d, tile.span_sum + i * N), sum[i]), d, tile.span_sum + i * N);
  }
}

// Scratch of a task, carved in this order. Also tells its size (base = nullptr).
struct RowsScratch {
  float* probs;  // [256][lanes of the tile]: scores, then probs
  float* packed_k;
  float* packed_v;
  size_t size;
};

// Row tiles of `rows` rows.
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

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
