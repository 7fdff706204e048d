// Rows-in-lanes in native_bf16 arithmetic: the tensors' way into the register tiles of native_tiles-inl.h, and one tile
// against one block.
//
// Pairs of keys are (2i, 2i + 1) on the key axis: key 0 of a block here is the block's own, or one before the first key
// row where that is odd. A missing partner is zero in both operands.

#if defined(LANEWISE_NATIVE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_NATIVE_ROWS_INL_H_
#undef LANEWISE_NATIVE_ROWS_INL_H_
#else
#define LANEWISE_NATIVE_ROWS_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/native_tiles-inl.h"
#include "src/kernels/pair_dot-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/ruled_tile-inl.h"

// clang refuses a region for a target in which nothing is declared.
#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Tensors --------------------------------------------------------------------------------------------------------

// q[i][r] = pair i of dims of row row_begin + r; lanes past `rows` repeat the last row.
static inline HWY_NOINLINE void LoadQueryPairs(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                               float* HWY_RESTRICT q) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t N = hn::Lanes(d);
  const size_t lanes = vectors * N;
  const Bf16* row[kMaxLanes];
  const float* pairs[kMaxLanes];
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t at = row_begin + HWY_MIN(static_cast<int64_t>(r), rows - 1);
    row[r] = static_cast<const Bf16*>(task.q.data) + RowOffset(task.q, at, task.group_size);
    pairs[r] = reinterpret_cast<const float*>(row[r]);
  }
  int64_t c = 0;  // dim
  if (task.q.dim_stride == 1) {
    for (; c + 8 <= task.qk_dim; c += 8) {
      for (size_t i = 0; i < vectors; ++i) {
        V v[4];
        LoadTransposed(d, pairs + i * N, static_cast<size_t>(c / 2), v);
        HWY_UNROLL(4)
        for (size_t u = 0; u < 4; ++u) hn::Store(v[u], d, q + (static_cast<size_t>(c / 2) + u) * lanes + i * N);
      }
    }
  }
  const Bf16 zero = {0};
  for (; c < task.qk_dim; c += 2) {
    for (size_t r = 0; r < lanes; ++r) {
      const Bf16 odd = c + 1 < task.qk_dim ? row[r][(c + 1) * task.q.dim_stride] : zero;
      q[static_cast<size_t>(c / 2) * lanes + r] = PairOf(row[r][c * task.q.dim_stride], odd);
    }
  }
}

// Keys are relative to key row block_row from here on; a run is whole pairs of them.

// Address of a key that `any` lists; nullptr: a row of zeros in its place.
HWY_INLINE const Bf16* ListedRow(const KeyTensor& t, int64_t block_row, const KeyBits& any, int64_t key) {
  return HasBit(any, key) ? KeyRow<Bf16>(t, block_row + key) : nullptr;
}

// packed[j * stride + i] = pair i of dims of key j.
static inline HWY_NOINLINE void PackKeyPairs(const KeyTensor& t, int64_t dim, int64_t block_row, const KeyBits& any,
                                             const PairRuns& runs, float* HWY_RESTRICT packed, int64_t stride) {
  const Bf16 zero = {0};
  for (int64_t n = 0; n < runs.count; ++n) {
    for (int64_t j = runs.begin[n]; j < runs.end[n]; ++j) {
      float* to = packed + j * stride;
      const Bf16* from = ListedRow(t, block_row, any, j);
      int64_t c = 0;
      if (from == nullptr) {
        std::memset(to, 0, static_cast<size_t>(PairsOf(dim)) * sizeof(float));
        continue;
      }
      if (t.dim_stride == 1) {
        c = dim / 2 * 2;
        std::memcpy(to, from, static_cast<size_t>(c) * sizeof(Bf16));
      }
      for (; c < dim; c += 2)
        to[c / 2] = PairOf(from[c * t.dim_stride], c + 1 < dim ? from[(c + 1) * t.dim_stride] : zero);
    }
  }
}

// packed[i * stride + x] = dim x of keys 2i and 2i + 1.
static inline HWY_NOINLINE void PackValuePairs(const KeyTensor& t, int64_t dim, int64_t block_row, const KeyBits& any,
                                               const PairRuns& runs, float* HWY_RESTRICT packed, int64_t stride) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const Bf16 zero = {0};
  for (int64_t n = 0; n < runs.count; ++n) {
    for (int64_t j = runs.begin[n]; j < runs.end[n]; j += 2) {
      float* to = packed + j / 2 * stride;
      const Bf16* even = ListedRow(t, block_row, any, j);
      const Bf16* odd = ListedRow(t, block_row, any, j + 1);
      int64_t x = 0;
      if (even != nullptr && odd != nullptr && t.dim_stride == 1) {
        for (; x + N <= dim; x += N) {
          const auto low = hn::PromoteTo(du, hn::LoadU(d16, &even[x].bits));
          const auto high = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, &odd[x].bits)));
          hn::Store(hn::BitCast(d, hn::Or(low, high)), d, to + x);
        }
      }
      for (; x < dim; ++x) {
        to[x] = PairOf(even != nullptr ? even[x * t.dim_stride] : zero, odd != nullptr ? odd[x * t.dim_stride] : zero);
      }
    }
  }
}

// Value pairs of a run hold only finite values.
static inline HWY_NOINLINE bool AllFinitePairs(const KeyBlock& v, int64_t begin, int64_t end, size_t v_dim) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  auto bad = hn::Zero(d);  // x * 0 is NaN for NaN and infinities, and stays
  for (int64_t j = begin / 2; j < end / 2; ++j) {
    for (size_t x = 0; x < v_dim; x += N) {
      const auto pairs = hn::LoadN(d, v.data + j * v.stride + static_cast<int64_t>(x), HWY_MIN(N, v_dim - x));
      bad = hn::MulAdd(EvenOf(d, pairs), hn::Zero(d), hn::MulAdd(OddOf(d, pairs), hn::Zero(d), bad));
    }
  }
  return hn::AllFalse(d, hn::IsNaN(bad));
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

// Runs around the listed keys.
static inline HWY_NOINLINE void FindPairRuns(const KeyBits& any, PairRuns& runs) {
  KeyBits whole;
  for (int64_t w = 0; w < kBlockWords; ++w) {
    const uint32_t word = any.word[w];
    whole.word[w] = word | (word & 0x55555555u) << 1 | (word & 0xaaaaaaaau) >> 1;
  }
  runs.count = 0;
  for (int64_t at = NextBit(whole, 0, true); at < kBlockKeys;) {
    const int64_t end = NextBit(whole, at, false);
    if (runs.count > 0 && at - runs.end[runs.count - 1] < kSmallGap) {
      runs.end[runs.count - 1] = end;
    } else {
      runs.begin[runs.count] = at;
      runs.end[runs.count++] = end;
    }
    at = end < kBlockKeys ? NextBit(whole, end, true) : kBlockKeys;
  }
}

// The first key of [begin, end) that some row does not see, or end.
HWY_INLINE int64_t AllSeeUntil(const TileRules& rules, size_t vectors, int64_t begin, int64_t end) {
  for (size_t i = 0; i < vectors; ++i) end = HWY_MIN(end, NextBit(rules.all_of[i], begin, false));
  return end;
}

// Rules on the scores of a run for one vector; keys that are none of the sequence's are hidden without a look at their
// bias.
template <class V>
HWY_INLINE void ApplyPairRules(const Task& task, const TileRules& rules, ApplyRulesFunction<V> apply, size_t lanes,
                               size_t first_lane, int64_t block_row, int64_t begin, int64_t end, float* HWY_RESTRICT s,
                               V* max) {
  const hn::ScalableTag<float> d;
  const int64_t first = HWY_MAX(begin, -block_row), last = HWY_MIN(end, task.kv_len - block_row);
  for (int64_t j = begin; j < first; ++j) hn::Store(hn::Set(d, kHidden), d, s + static_cast<size_t>(j) * lanes);
  for (int64_t j = last; j < end; ++j) hn::Store(hn::Set(d, kHidden), d, s + static_cast<size_t>(j) * lanes);
  apply(task, rules, lanes, first_lane, block_row, first, last, s, max);
}

// One tile against the keys of a block that its rows see: tile.rules says which.
template <size_t kVectors>
HWY_NOINLINE void AttendPairRuns(const Task& task, const RowTile& tile, float* HWY_RESTRICT probs, const KeyBlock& k,
                                 const KeyBlock& v, int64_t block_row, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  constexpr size_t kRows = kVectors * N;
  const TileRules& rules = tile.rules;
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  const int64_t pairs = PairsOf(task.qk_dim);
  const float factor = task.rules->factor;
  PairRuns runs;
  FindPairRuns(rules.any, runs);
  V max[kVectors], sum[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    max[i] = hn::Set(d, kNoMax);
    sum[i] = hn::Zero(d);
  }
  // 1. Scores, rules, reference maxima, probs, row sums.
  const ApplyRulesFunction<V> apply = ApplyRulesFor<V>(task);
  bool finite = true;
  for (int64_t n = 0; n < runs.count; ++n) {
    const int64_t end = runs.end[n];
    int64_t begin = runs.begin[n];
    if (!task.rules->change_scores) {
      // Keys that all rows see need no rules: all of the run, or its part before a diagonal.
      const int64_t full_end = AllSeeUntil(rules, kVectors, begin, end) / 2 * 2;
      PairScoreKeys<kVectors, true>(tile.q, k.data, k.stride, pairs, factor, begin, full_end, probs, max, fetcher);
      begin = full_end;
      if (begin == end) continue;
    }
    PairScoreKeys<kVectors, false>(tile.q, k.data, k.stride, pairs, factor, begin, end, probs, max, fetcher);
    for (size_t i = 0; i < kVectors; ++i)
      ApplyPairRules(task, rules, apply, kRows, i * N, block_row, begin, end, probs + i * N, max + i);
    finite = finite && (AllSeeUntil(rules, kVectors, begin, end) == end || AllFinitePairs(v, begin, end, v_dim));
  }
  for (int64_t n = 0; n < runs.count; ++n) PairProbKeys<kVectors>(probs, runs.begin[n], runs.end[n], max, sum);

  // 2. Merge into the span; values. A hidden key's prob is 0, which hides its value unless that is NaN or infinite.
  MergeFactors<V> factors[kVectors];
  MergeIntoSpan(tile, max, sum, factors);
  if (HWY_LIKELY(finite)) {
    AddPairValues<kVectors>(probs, v.data, v.stride, v_dim, runs, factors, tile.span_acc);
  } else {
    AddSeenPairValues(probs, v.data, v.stride, v_dim, kVectors, rules.bits, runs, factors, tile.span_acc);
  }
}

HWY_INLINE AttendRunsFunction AttendPairRunsFor(size_t vectors) {
  static constexpr AttendRunsFunction kFunctions[] = {&AttendPairRuns<1>, &AttendPairRuns<2>, &AttendPairRuns<3>,
                                                      &AttendPairRuns<kMaxVectors>};
  return kFunctions[vectors - 1];
}

// Rows of keys can be read where they are.
HWY_INLINE bool KeysLieInPairs(const Task& task) {
  const KeyTensor& k = task.k;
  return !task.pack_k && task.qk_dim % 2 == 0 && k.len_stride % 2 == 0 &&
         reinterpret_cast<uintptr_t>(k.data) % sizeof(float) == 0;
}

// How AttendRows works on native_bf16. All blocks go by the keys that rows see, since pairs at the ends of what
// a row sees need it.
struct NativeTiles {
  static HWY_INLINE void Load(const Task& task, const RowTile& tile) {
    LoadQueryPairs(task, tile.row_begin, tile.rows, tile.vectors, tile.q);
  }
  static HWY_INLINE void Attend(const Task& task, RowTile* tile, int64_t tiles, const RowsScratch& scratch,
                                const BlockRange& block, NoTail&, Fetcher& fetcher) {
    KeyBits any = KeyBits();
    const int64_t begin = block.begin - block.block_row, end = block.end - block.block_row;
    const bool may_be_full = task.rules->plain() && begin % 2 == 0 && end % 2 == 0;
    bool full = true;
    for (int64_t t = 0; t < tiles; ++t) {
      if (may_be_full && tile[t].all_begin <= block.begin && block.end <= tile[t].all_end) {
        SeeAll(tile[t], begin, end);
      } else {
        SeeBlock(task, tile[t], block.block_row, end);
        full = false;
      }
      Add(any, tile[t].rules.any);
    }
    PairRuns runs;
    FindPairRuns(any, runs);
    KeyBlock k = {scratch.packed_k, PackedStride(PairsOf(task.qk_dim))};
    const KeyBlock v = {scratch.packed_v, PackedStride(task.v_dim)};
    if (full && KeysLieInPairs(task)) {
      k.stride = task.k.len_stride / 2;
      k.data = static_cast<const float*>(task.k.data) + block.block_row * k.stride;
    } else {
      PackKeyPairs(task.k, task.qk_dim, block.block_row, any, runs, scratch.packed_k, k.stride);
    }
    PackValuePairs(task.v, task.v_dim, block.block_row, any, runs, scratch.packed_v, v.stride);
    for (int64_t t = 0; t < tiles; ++t) {
      if (NextBit(tile[t].rules.any, 0, true) == kBlockKeys) continue;
      AttendPairRunsFor(tile[t].vectors)(task, tile[t], scratch.probs, k, v, block.block_row, fetcher);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // per-target guard
