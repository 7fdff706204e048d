// A tile of query rows as rows-in-lanes works on it, and a block of keys as its register tiles read it.

#if defined(LANEWISE_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_ROW_TILE_INL_H_
#undef LANEWISE_ROW_TILE_INL_H_
#else
#define LANEWISE_ROW_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/register_tiles-inl.h"
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

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
