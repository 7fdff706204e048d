// Keys-in-lanes under rules that are not plain: the counterpart of ruled_tile-inl.h, with the elementwise steps of
// rules-inl.h. Same bits.
//
// A block's keys are looked through in groups of kGroup; groups that no row sees are left out of the lists of
// addresses, and a hidden key within a group is read at the address of a seen one.

#if defined(LANEWISE_RULED_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_RULED_FEW_INL_H_
#undef LANEWISE_RULED_FEW_INL_H_
#else
#define LANEWISE_RULED_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/few_addresses-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/few_probs-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/prob-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/visible_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A whole number of vectors on every target.
inline constexpr int64_t kGroup = 16;

// What does not change from block to block.
struct FewRules {
  int64_t position[kMaxFewRows];  // on the key axis
  float minus_slope[kMaxFewRows];
  const char* bias[kMaxFewRows];  // the row's column 0
  Reach reach[kMaxFewRows];       // within the task's keys
};

// The keys of one block that the rows see.
struct FewSight {
  int64_t block_row = -2;  // key row of bit 0, from -1 on; -2: nothing looked at
  int64_t groups = 0;      // with a key that some row sees
  int64_t keys = 0;        // of these groups
  int64_t group[kBlockKeys / kGroup];
  KeyBits any;
  KeyBits row[kMaxFewRows];
  bool edge = false;  // some row does not see some key of the groups
};

static inline HWY_NOINLINE void StartFewRules(const Task& task, FewRules& rules) {
  for (int64_t r = 0; r < task.row_end - task.row_begin; ++r) {
    const int64_t row = task.row_begin + r;
    rules.position[r] = position_of(task, row);
    if (task.slopes != nullptr) rules.minus_slope[r] = MinusSlope(task.slopes[row % task.group_size]);
    if (task.bias.data != nullptr) rules.bias[r] = BiasRow(task, row);
    Reach reach = row_reach(task, row);
    reach.prefix = HWY_MIN(reach.prefix, task.key_end);
    reach.begin = HWY_MAX(reach.begin, task.key_begin);
    reach.end = HWY_MIN(reach.end, task.key_end);
    rules.reach[r] = reach;
  }
}

// Keys [block_row, block_end) against the task's rows.
static inline HWY_NOINLINE void SeeFew(const Task& task, const FewRules& rules, int64_t block_row, int64_t block_end,
                                       FewSight& sight) {
  sight = FewSight();
  sight.block_row = block_row;
  const int64_t n = block_end - block_row;
  SharedRowBits shared;
  const int64_t rows = task.row_end - task.row_begin;
  for (int64_t r = 0; r < rows; ++r) {
    RowBits(task, task.row_begin + r, rules.reach[r], block_row, n, shared, sight.row[r]);
    Add(sight.any, sight.row[r]);
  }
  for (int64_t at = NextBit(sight.any, 0, true); at < kBlockKeys;) {
    const int64_t first = at / kGroup * kGroup;
    int64_t end = HWY_MIN(n, first + kGroup);
    if (task.native_bf16) end += end % 2;  // whole pairs
    sight.group[sight.groups++] = first;
    sight.keys += end - first;
    for (int64_t r = 0; r < rows && !sight.edge; ++r) sight.edge = NextBit(sight.row[r], first, false) < end;
    at = end < kBlockKeys ? NextBit(sight.any, end, true) : kBlockKeys;
  }
}

// Addresses of the sight's keys, where they are or copied into `packed`. Keys that no row sees get a seen one's, or, in
// pairs, zero_row.
static inline void AddressesOfSight(const Task& task, const KeyTensor& t, int64_t dim, float* packed,
                                    const FewSight& sight, const float* zero_row, const void** to) {
  const int64_t stride = PackedStride(dim);
  int64_t left = sight.keys;
  for (int64_t g = 0; g < sight.groups; ++g) {
    const int64_t count = HWY_MIN(kGroup, left);
    left -= count;
    const int64_t first = sight.group[g];
    const void* seen = task.native_bf16 ? zero_row : nullptr;  // the last key seen, or the first
    for (int64_t i = 0; i < count; ++i, ++to, packed += IsPacked(t) ? stride : 0) {
      if (!HasBit(sight.any, first + i)) {
        *to = seen;
        continue;
      }
      const int64_t row = sight.block_row + first + i;
      RowsOf(task, t, dim, packed, row, row + 1, to);
      if (task.native_bf16) continue;
      for (int64_t back = 1; seen == nullptr && back <= i; ++back) to[-back] = *to;
      seen = *to;
    }
  }
}

// The biases of a row's keys first + j ... : up to the block's end, 0 behind it.
template <class D>
HWY_INLINE hn::Vec<D> RowBias(D d, const QueryTensor& bias, const char* row, int64_t column, int64_t left) {
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(D()));
  if (bias.dim_stride == 1 && left >= N && column >= 0) return LoadBiases(d, bias, row, column);
  HWY_ALIGN float gathered[N] = {};
  for (int64_t i = HWY_MAX(int64_t{0}, -column); i < HWY_MIN(N, left); ++i)
    gathered[i] = BiasValue(bias, row, column + i);
  return hn::Load(d, gathered);
}

// Scores of row r of the task become scores after all rules, hidden ones kHidden; the row's maximum over visible ones;
// then probs in place. n: keys of the block.
static inline HWY_NOINLINE float RuledProbsOfRow(const Task& task, const FewRules& rules, const FewSight& sight,
                                                 int64_t r, int64_t n, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(decltype(d)()));
  const auto lane_bit = hn::Shl(hn::Set(du, 1u), hn::Iota(du, 0));
  const bool alibi = task.slopes != nullptr, bias = task.bias.data != nullptr;
  const V minus_slope = hn::Set(d, alibi ? rules.minus_slope[r] : 0.0f);
  const int64_t relative = rules.position[r] - (task.kv_start + sight.block_row);
  const bool exact = relative > -(kExactDistance - kBlockKeys) && relative < kExactDistance;
  const V position = hn::Set(d, static_cast<float>(relative));
  V max = hn::Set(d, kNoMax);
  for (int64_t i = 0; i < sight.keys; i += N) {
    const int64_t j = sight.group[i / kGroup] + i % kGroup;
    V score = hn::Load(d, s + i);
    if (task.rules->cap != 0) score = SoftCap(d, score, task.rules->cap, task.rules->cap_inverse);
    if (alibi) {
      V distance = hn::Abs(hn::Sub(position, hn::Iota(d, static_cast<float>(j))));
      if (HWY_UNLIKELY(!exact)) {
        HWY_ALIGN float far[N];
        for (int64_t lane = 0; lane < N; ++lane)
          far[lane] = DistanceOf(rules.position[r], task.kv_start + sight.block_row + j + lane);
        distance = hn::Load(d, far);
      }
      score = AddAlibi(d, score, minus_slope, distance);
    }
    if (bias) score = AddBias(d, score, RowBias(d, task.bias, rules.bias[r], sight.block_row + j, n - j));
    const auto word = hn::Set(du, sight.row[r].word[j / 32] >> (j % 32));
    score = hn::IfThenElse(hn::RebindMask(d, hn::TestBit(word, lane_bit)), score, hn::Set(d, kHidden));
    max = hn::Max(max, score);
    hn::Store(score, d, s + i);
  }
  max = hn::Ceil(hn::MaxOfLanes(d, max));
  for (int64_t i = 0; i < sight.keys; i += N) hn::Store(Prob(d, hn::Load(d, s + i), max), d, s + i);
  return hn::GetLane(max);
}

// The probs and value addresses of the keys that one row sees, moved together. `list`: room for them and what prefetch
// looks at.
static inline HWY_NOINLINE size_t SeenOfRow(const Task& task, const FewSight& sight, int64_t r,
                                            float* HWY_RESTRICT probs, const void* const* v, const float* zero_row,
                                            const void** list) {
  size_t count = 0;
  if (task.native_bf16) {  // pairs stay together
    for (; count < static_cast<size_t>(sight.keys); ++count) {
      const int64_t i = static_cast<int64_t>(count);
      list[count] = HasBit(sight.row[r], sight.group[i / kGroup] + i % kGroup) ? v[i] : zero_row;
    }
    for (size_t i = count; i < static_cast<size_t>(kBlockKeys + kAddressSlack); ++i) list[i] = zero_row;
    return count;
  }
  for (int64_t i = 0; i < sight.keys; ++i) {
    if (!HasBit(sight.row[r], sight.group[i / kGroup] + i % kGroup)) continue;
    probs[count] = probs[i];
    list[count++] = v[i];
  }
  for (size_t i = count; i < static_cast<size_t>(kBlockKeys + kAddressSlack); ++i) list[i] = v[0];
  return count;
}

// Addresses as AddressesOf lists them, of the keys in sight.
static inline BlockAddresses AddressesInSight(const Task& task, const FewScratch& s, const FewSight& sight,
                                              const FewSight& next_sight) {
  constexpr int64_t kWhole = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const int64_t n = sight.keys;
  const int64_t whole = (n + kWhole - 1) / kWhole * kWhole;
  const void** at = s.addresses;
  AddressesOfSight(task, task.k, task.qk_dim, s.packed_k, sight, s.zero_row, at);
  for (int64_t i = n; i < whole; ++i) at[i] = at[n - 1];
  const void** v = at + whole;
  AddressesOfSight(task, task.v, task.v_dim, s.packed_v, sight, s.zero_row, v);
  const void** next = v + n;
  int64_t ahead = IsPacked(task.k) ? 0 : next_sight.keys;
  if (ahead > 0) {
    AddressesOfSight(task, task.k, task.qk_dim, nullptr, next_sight, s.zero_row, next);
  } else if (!IsPacked(task.k)) {
    ahead = FillNextKeys(task.next_keys, next);
  }
  RepeatLast(n, ahead, next);
  return {at, v, ahead};
}

// FewBlockState for the keys in sight of a block of n keys; rows of one kv head.
static inline HWY_NOINLINE void RuledFewBlock(const Task& task, const FewRules& rules, const FewSight& sight, int64_t n,
                                              const BlockAddresses& addresses, FewScratch& s) {
  const void* const* const k = addresses.k;
  const void* const* const v = addresses.v;
  const int32_t k_type = TypeAsRead(task, task.k), v_type = TypeAsRead(task, task.v);
  const size_t k_lines = LinesOf(k_type, task.qk_dim);
  const size_t v_lines = LinesOf(v_type, task.v_dim);
  const FewLoops k_loops = LoopsFor(task, k_type), v_loops = LoopsFor(task, v_type);
  const size_t keys = static_cast<size_t>(sight.keys), v_dim = static_cast<size_t>(task.v_dim);
  const PrefetchRows prefetch_k = {v, v_lines, k + kNearRows, 0, k_lines};
  const PrefetchRows prefetch_v = {v + keys, k_lines, v + kNearRows, 0, v_lines};
  const PrefetchRows prefetch_seen = {s.seen, 0, s.seen + kNearRows, 0, v_lines};
  const int64_t rows = task.row_end - task.row_begin;
  const Passes passes(rows);
  EmptyStates(static_cast<size_t>(rows), v_dim, s.block_max, s.block_sum, s.block_acc);
  for (int64_t pass = 0; pass < passes.count; ++pass) {
    const int64_t row = passes.Begin(pass);
    k_loops.score[passes.Rows(pass)](s.q + row * RowOfQ(task), static_cast<size_t>(task.qk_dim), k, 0, keys, prefetch_k,
                                     s.probs + row * kBlockKeys);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* const scores = s.probs + r * kBlockKeys;
    if (task.native_bf16) ScaleScores(task.rules->factor, sight.keys, scores);
    s.block_max[r] = RuledProbsOfRow(task, rules, sight, r, n, scores);
    if (task.native_bf16) PairProbs(sight.keys, scores);
  }
  if (!sight.edge || AllFiniteRows(v_type, v, 0, sight.keys, v_dim)) {
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t row = passes.Begin(pass);
      const float* p = ProbsByKey(s.probs + row * kBlockKeys, passes.Rows(pass),
                                  task.native_bf16 ? sight.keys / 2 : sight.keys, s.by_key);
      v_loops.value[passes.Rows(pass)](p, v, 0, v_dim, 0, keys, prefetch_v, s.block_acc + row * task.v_dim,
                                       s.block_sum + row);
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* const row_probs = s.probs + r * kBlockKeys;
    const size_t seen = SeenOfRow(task, sight, r, row_probs, v, s.zero_row, s.seen);
    v_loops.value[1](row_probs, s.seen, 0, v_dim, 0, seen, prefetch_seen, s.block_acc + r * task.v_dim,
                     s.block_sum + r);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
