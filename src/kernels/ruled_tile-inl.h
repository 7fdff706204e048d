// One tile of rows against one block under rules that plain_tile-inl.h does not know: scores that change (softcap,
// ALiBi, bias) and keys hidden one by one (masks, biases, a prefix beside a window, q_positions).
//
// A tile takes a block's keys in runs, in which those of its vectors take part that have a row which sees a key of a
// group of eight. Keys outside runs are not touched. Runs whose keys all rows see, and whose scores do not change, run
// no rule code. The arithmetic is that of the plain path.

#if defined(LANEWISE_RULED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_RULED_TILE_INL_H_
#undef LANEWISE_RULED_TILE_INL_H_
#else
#define LANEWISE_RULED_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/fetch_ahead-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/register_tiles-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/strips-inl.h"
#include "src/kernels/tile_shapes-inl.h"
#include "src/kernels/visible_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sets up what does not change from block to block.
static inline HWY_NOINLINE void StartRules(const Task& task, RowTile& tile) {
  TileRules& rules = tile.rules;
  const size_t lanes = tile.vectors * hn::Lanes(hn::ScalableTag<float>());
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t row = tile.row_begin + HWY_MIN(static_cast<int64_t>(r), tile.rows - 1);
    rules.position[r] = position_of(task, row);
    if (task.slopes != nullptr) rules.minus_slope[r] = MinusSlope(task.slopes[row % task.group_size]);
    if (task.bias.data != nullptr) rules.bias[r] = BiasRow(task, row);
  }
}

// Keys [block_row, block_row + n) against the tile's rows.
static inline HWY_NOINLINE void SeeBlock(const Task& task, RowTile& tile, int64_t block_row, int64_t n) {
  const size_t N = hn::Lanes(hn::ScalableTag<float>());
  const size_t lanes = tile.vectors * N;
  TileRules& rules = tile.rules;
  rules.any = KeyBits();
  SharedRowBits shared;
  KeyBits row;
  for (size_t i = 0; i < tile.vectors; ++i) {
    KeyBits& of_vector = rules.of_vector[i];
    of_vector = KeyBits();
    KeyBits& all = rules.all_of[i];
    for (int64_t w = 0; w < kBlockWords; ++w) all.word[w] = ~uint32_t{0};
    for (size_t r = i * N; r < i * N + N; ++r) {
      if (static_cast<int64_t>(r) < tile.rows) {
        const Reach reach = {tile.visible_prefix[r], tile.visible_begin[r], tile.visible_end[r]};
        RowBits(task, tile.row_begin + static_cast<int64_t>(r), reach, block_row, n, shared, row);
        Add(of_vector, row);
        Keep(all, row);
      }
      for (int64_t w = 0; w < kBlockWords; ++w) rules.bits[static_cast<size_t>(w) * lanes + r] = row.word[w];
    }
    Add(rules.any, of_vector);
  }
}

// The same without a look at each row, where every row sees every key of [begin, end) and no other.
HWY_INLINE void SeeAll(RowTile& tile, int64_t begin, int64_t end) {
  TileRules& rules = tile.rules;
  rules.any = KeyBits();
  AddRange(rules.any, begin, end);
  for (size_t i = 0; i < tile.vectors; ++i) rules.of_vector[i] = rules.all_of[i] = rules.any;
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

// Bit g: some key of group g is set.
HWY_INLINE uint32_t GroupsOf(const KeyBits& bits) {
  static_assert(KeyRuns::kGroup == 8 && kBlockKeys / KeyRuns::kGroup == 32, "a byte a group, a word a block");
  uint32_t groups = 0;
  for (int64_t g = 0; g < 32; ++g) groups |= uint32_t{(bits.word[g / 4] >> (g % 4 * 8) & 0xff) != 0} << g;
  return groups;
}

static inline HWY_NOINLINE void FindRuns(const TileRules& rules, size_t vectors, KeyRuns& runs) {
  uint32_t groups[kMaxVectors];
  for (size_t i = 0; i < vectors; ++i) groups[i] = GroupsOf(rules.of_vector[i]);
  const int64_t first_key = NextBit(rules.any, 0, true), end_key = EndOfBits(rules.any);
  runs.count = 0;
  for (int64_t g = 0; g < 32; ++g) {
    size_t first = vectors, end = 0;
    for (size_t i = 0; i < vectors; ++i) {
      if ((groups[i] >> g & 1) == 0) continue;
      first = HWY_MIN(first, i);
      end = i + 1;
    }
    if (end == 0) continue;
    if (end < vectors) first = 0;  // register loops exist for the first vectors and for the last
    const int64_t begin = HWY_MAX(first_key, g * KeyRuns::kGroup), last = HWY_MIN(end_key, (g + 1) * KeyRuns::kGroup);
    KeyRuns::Run* before = runs.count > 0 ? &runs.run[runs.count - 1] : nullptr;
    if (before != nullptr && before->end == begin && before->first == first && before->vectors == end - first) {
      before->end = last;
    } else {
      runs.run[runs.count++] = {begin, last, first, end - first};
    }
  }
}

// All lanes of the run's vectors see all its keys.
HWY_INLINE bool IsFull(const TileRules& rules, const KeyRuns::Run& run) {
  for (size_t i = run.first; i < run.first + run.vectors; ++i) {
    if (NextBit(rules.all_of[i], run.begin, false) < run.end) return false;
  }
  return true;
}

// ---- Rules ----------------------------------------------------------------------------------------------------------

// The biases of `count` <= 4 keys from a column on, for a vector of rows: out[u] = the lanes' biases of key column + u.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void LoadBias(D d, const QueryTensor& bias, const char* const* rows, int64_t column, int64_t count,
                         V (&out)[4]) {
  constexpr size_t N = hn::MaxLanes(D());
  if (bias.dim_stride == 1 && count == 4) {
    const size_t c = static_cast<size_t>(column);
    return WithElement(bias.type, [&](auto element) HWY_ATTR {
      LoadTransposed(d, reinterpret_cast<const decltype(element)* const*>(rows), c, out);
    });
  }
  HWY_ALIGN float gathered[4 * N] = {};
  for (size_t lane = 0; lane < N; ++lane) {
    for (int64_t u = 0; u < count; ++u)
      gathered[static_cast<size_t>(u) * N + lane] = BiasValue(bias, rows[lane], column + u);
  }
  for (size_t u = 0; u < 4; ++u) out[u] = hn::Load(d, gathered + u * N);
}

// One vector of a tile against keys [begin, end) of a block: scores after the dot product become scores after all
// rules, hidden ones kHidden; max takes them in.
template <bool kCap, bool kAlibi, bool kBias, class V>
HWY_NOINLINE void ApplyRules(const Task& task, const TileRules& rules, size_t lanes, size_t first_lane,
                             int64_t block_row, int64_t begin, int64_t end, float* HWY_RESTRICT s,
                             V* HWY_RESTRICT max_io) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const Rules& r = *task.rules;
  const V minus_slope = kAlibi ? hn::Load(d, rules.minus_slope + first_lane) : hn::Zero(d);
  // Positions relative to the block: floats where those are exact.
  HWY_ALIGN float relative[N];
  bool exact = true;
  if (kAlibi) {
    for (size_t lane = 0; lane < N; ++lane) {
      const int64_t from = rules.position[first_lane + lane] - (task.kv_start + block_row);
      exact = exact && from > -(kExactDistance - kBlockKeys) && from < kExactDistance;
      relative[lane] = static_cast<float>(from);
    }
  }
  const V position = kAlibi ? hn::Load(d, relative) : hn::Zero(d);
  V max = *max_io;
  for (int64_t j = begin; j < end;) {
    const int64_t count = HWY_MIN(int64_t{4}, end - j);
    V bias[4];
    if constexpr (kBias) LoadBias(d, task.bias, rules.bias + first_lane, block_row + j, count, bias);
    for (int64_t u = 0; u < count; ++u, ++j) {
      float* at = s + static_cast<size_t>(j) * lanes;
      V score = hn::Load(d, at);
      if (kCap) score = SoftCap(d, score, r.cap, r.cap_inverse);
      if (kAlibi) {
        V distance = hn::Abs(hn::Sub(position, hn::Set(d, static_cast<float>(j))));
        if (HWY_UNLIKELY(!exact)) {
          HWY_ALIGN float far[N];
          for (size_t lane = 0; lane < N; ++lane)
            far[lane] = DistanceOf(rules.position[first_lane + lane], task.kv_start + block_row + j);
          distance = hn::Load(d, far);
        }
        score = AddAlibi(d, score, minus_slope, distance);
      }
      if constexpr (kBias) score = AddBias(d, score, bias[u]);
      const auto bits = hn::Load(du, rules.bits + static_cast<size_t>(j / 32) * lanes + first_lane);
      const auto visible = hn::RebindMask(d, hn::TestBit(bits, hn::Set(du, uint32_t{1} << (j % 32))));
      score = hn::IfThenElse(visible, score, hn::Set(d, kHidden));
      max = hn::Max(max, score);
      hn::Store(score, d, at);
    }
  }
  *max_io = max;
}

template <class V>
using ApplyRulesFunction = void (*)(const Task&, const TileRules&, size_t, size_t, int64_t, int64_t, int64_t, float*,
                                    V*);
template <class V>
HWY_INLINE ApplyRulesFunction<V> ApplyRulesFor(const Task& task) {
  static constexpr ApplyRulesFunction<V> kFunctions[8] = {
      &ApplyRules<false, false, false, V>, &ApplyRules<true, false, false, V>, &ApplyRules<false, true, false, V>,
      &ApplyRules<true, true, false, V>,   &ApplyRules<false, false, true, V>, &ApplyRules<true, false, true, V>,
      &ApplyRules<false, true, true, V>,   &ApplyRules<true, true, true, V>};
  return kFunctions[(task.rules->cap != 0 ? 1 : 0) + (task.slopes != nullptr ? 2 : 0) +
                    (task.bias.data != nullptr ? 4 : 0)];
}

// ---- Values ---------------------------------------------------------------------------------------------------------

// AddValues where v may be NaN or infinite at hidden keys: each lane takes its visible keys alone. Same bits, slower.
template <class V>
HWY_NOINLINE void AddSeenValues(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, int64_t stride, size_t v_dim,
                                size_t vectors, const uint32_t* HWY_RESTRICT bits, const KeyRuns& runs,
                                const MergeFactors<V>* factors, float* HWY_RESTRICT span_acc) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const size_t lanes = vectors * N;
  for (size_t x = 0; x < v_dim; ++x) {
    for (size_t i = 0; i < vectors; ++i) {
      V acc = hn::Zero(d);
      for (int64_t n = 0; n < runs.count; ++n) {
        const KeyRuns::Run& run = runs.run[n];
        if (i < run.first || i >= run.first + run.vectors) continue;
        for (int64_t j = run.begin; j < run.end; ++j) {
          const auto word = hn::Load(du, bits + static_cast<size_t>(j / 32) * lanes + i * N);
          const auto seen = hn::RebindMask(d, hn::TestBit(word, hn::Set(du, uint32_t{1} << (j % 32))));
          const V pj = hn::Load(d, p + static_cast<size_t>(j) * lanes + i * N);
          const V sum = hn::MulAdd(pj, hn::Set(d, v[j * stride + static_cast<int64_t>(x)]), acc);
          acc = hn::IfThenElse(seen, sum, acc);
        }
      }
      float* at = span_acc + x * lanes + i * N;
      hn::Store(Merge(factors[i], hn::Load(d, at), acc), d, at);
    }
  }
}

// ---- One tile, one block --------------------------------------------------------------------------------------------

// K or V of a block whose first key row is block_row, where it is or, of the keys that are seen, copied into `packed`.
// The other keys of their groups, which tiles compute and hide, become 0 there.
static inline HWY_NOINLINE KeyBlock RunsOf(const KeyTensor& t, int64_t dim, bool pack, float* packed, int64_t block_row,
                                           const KeyBits& any) {
  if (!pack) return {static_cast<const float*>(t.data) + block_row * t.len_stride, t.len_stride};
  const int64_t stride = PackedStride(dim);
  const int64_t end = EndOfBits(any);
  for (int64_t at = 0; at < end;) {
    if (HasBit(any, at)) {
      const int64_t last = NextBit(any, at, false);
      PackKeys(t, dim, block_row + at, block_row + last, packed + at * stride, stride);
      at = last;
      continue;
    }
    const int64_t next = NextBit(any, at, true);
    const int64_t group_end = (at / KeyRuns::kGroup + 1) * KeyRuns::kGroup;
    if (at % KeyRuns::kGroup == 0 && next >= group_end) {  // nobody takes part
      at = next / KeyRuns::kGroup * KeyRuns::kGroup;
      continue;
    }
    const int64_t last = HWY_MIN(next, group_end);
    for (int64_t i = at * stride; i < last * stride; ++i) packed[i] = 0.0f;
    at = last;
  }
  return {packed, stride};
}

template <size_t kVectors, class V>
struct RunScores {
  const Task& task;
  const RowTile& tile;
  const KeyBlock& k;
  int64_t block_row;
  ApplyRulesFunction<V> apply;
  bool full;
  float* HWY_RESTRICT scores;
  V* max;
  Fetcher& fetcher;

  template <size_t kFirst, size_t kCount>
  HWY_INLINE void operator()(int64_t begin, int64_t end) const {
    constexpr size_t N = hn::MaxLanes(hn::DFromV<V>());
    constexpr size_t kRows = kVectors * N;
    const float* q = tile.q + kFirst * N;
    float* const s = scores + kFirst * N;
    if (full && !task.rules->change_scores) {
      ScoreKeys<kCount, kRows, true>(q, k.data, k.stride, task.qk_dim, begin, end, s, max + kFirst, fetcher);
      return;
    }
    ScoreKeys<kCount, kRows, false>(q, k.data, k.stride, task.qk_dim, begin, end, s, max + kFirst, fetcher);
    for (size_t i = kFirst; i < kFirst + kCount; ++i)
      apply(task, tile.rules, kRows, i * N, block_row, begin, end, scores + i * N, max + i);
  }
};

template <size_t kVectors, class V>
struct RunProbs {
  float* HWY_RESTRICT probs;
  V* max;
  V* sum;

  template <size_t kFirst, size_t kCount>
  HWY_INLINE void operator()(int64_t begin, int64_t end) const {
    constexpr size_t N = hn::MaxLanes(hn::DFromV<V>());
    ProbKeys<kCount, kVectors * N>(probs + kFirst * N, begin, end, max + kFirst, sum + kFirst);
  }
};

// Keys of a block that the tile's rows see.
template <size_t kVectors>
HWY_NOINLINE void AttendRuns(const Task& task, const RowTile& tile, float* HWY_RESTRICT probs, const KeyBlock& k,
                             const KeyBlock& v, int64_t block_row, Fetcher& fetcher) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  const TileRules& rules = tile.rules;
  KeyRuns runs;
  FindRuns(rules, kVectors, runs);

  // 1. Scores, rules, reference maxima, probs, row sums.
  V max[kVectors], sum[kVectors];
  for (size_t i = 0; i < kVectors; ++i) {
    max[i] = hn::Set(d, kNoMax);
    sum[i] = hn::Zero(d);
  }
  RunScores<kVectors, V> score = {task, tile, k, block_row, ApplyRulesFor<V>(task), true, probs, max, fetcher};
  bool finite = true;  // values of hidden keys
  for (int64_t n = 0; n < runs.count; ++n) {
    const KeyRuns::Run& run = runs.run[n];
    score.full = IsFull(rules, run);
    finite = finite && (score.full || AllFinite(v, run.begin, run.end, v_dim));
    TakeRun<kVectors>(run, score);
  }
  ForEachPart<kVectors>(runs, RunProbs<kVectors, V>{probs, max, sum});

  // 2. Merge into the span: maxima and sums now, acc with the values.
  MergeFactors<V> factors[kVectors];
  MergeIntoSpan(tile, max, sum, factors);

  // 3. Values: see AttendBlock.
  if (HWY_UNLIKELY(!finite)) {
    AddSeenValues(probs, v.data, v.stride, v_dim, kVectors, rules.bits, runs, factors, tile.span_acc);
  } else if (runs.count == 1 && runs.run[0].vectors == kVectors) {
    AddValues<kVectors>(probs, v.data, v.stride, v_dim, KeyRange{runs.run[0].begin, runs.run[0].end}, factors,
                        tile.span_acc, fetcher);
  } else {
    AddValues<kVectors>(probs, v.data, v.stride, v_dim, runs, factors, tile.span_acc, fetcher);
  }
}

using AttendRunsFunction = void (*)(const Task&, const RowTile&, float*, const KeyBlock&, const KeyBlock&, int64_t,
                                    Fetcher&);

HWY_INLINE AttendRunsFunction AttendRunsFor(size_t vectors) {
  static constexpr AttendRunsFunction kFunctions[] = {&AttendRuns<1>, &AttendRuns<2>, &AttendRuns<3>,
                                                      &AttendRuns<kMaxVectors>};
  return kFunctions[vectors - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
