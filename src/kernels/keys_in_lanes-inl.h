// Keys-in-lanes, the decode kernel: keys in the SIMD lanes for scores, dims in the lanes for values; at most
// kMaxFewRows rows, which share each load of K and V. Memory-bound: the whole cache of a head is read once, in address
// order, with two-level prefetch.
//
// For each 256-key block, in the canonical arithmetic of docs/NUMERICS.md:
//   scores   s[r][j] = sum over c of q'[r][c] * k[j][c]         K is transposed in registers
//   probs    p[r][j] = 2^(s[r][j] - m[r])
//   values   acc[r][x] = sum over j of p[r][j] * v[j][x]         row_sum[r] = sum over j of p[r][j]
// the same chains, in the same order, as rows_in_lanes-inl.h: same bits.
//
// Reads exactly the key rows that some row may see, through an array of row addresses: dense, strided and paged alike.
// Not here: which pieces a sequence is cut into (schedule.cpp).

#if defined(LANEWISE_KEYS_IN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_KEYS_IN_LANES_INL_H_
#undef LANEWISE_KEYS_IN_LANES_INL_H_
#else
#define LANEWISE_KEYS_IN_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/few_addresses-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/pair_dot-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/ruled_few-inl.h"
#include "src/kernels/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What each row may see of the task's keys: the same for all its kv heads, and one interval where rules are plain.
struct FewVisible {
  int64_t begin[kMaxFewRows], end[kMaxFewRows];  // key rows
  int64_t any_begin, any_end;
};

static inline FewVisible VisibleOf(const Task& task) {
  FewVisible visible;
  visible.any_begin = task.key_end;
  visible.any_end = task.key_begin;
  for (int64_t r = 0; r < task.row_end - task.row_begin; ++r) {
    const Reach reach = row_reach(task, task.row_begin + r);
    visible.begin[r] = ClampTo(reach.begin, task.key_begin, task.key_end);
    visible.end[r] = ClampTo(reach.end, visible.begin[r], task.key_end);
    if (reach.prefix > task.key_begin) {
      visible.any_begin = task.key_begin;
      visible.any_end = HWY_MAX(visible.any_end, HWY_MIN(reach.prefix, task.key_end));
    }
    if (visible.begin[r] < visible.end[r]) {
      visible.any_begin = HWY_MIN(visible.any_begin, visible.begin[r]);
      visible.any_end = HWY_MAX(visible.any_end, visible.end[r]);
    }
  }
  visible.any_begin = HWY_MIN(visible.any_begin, visible.any_end);
  return visible;
}

// Values at these addresses are all finite.
template <class T>
HWY_NOINLINE bool AllFiniteRowsOf(const void* const* v, size_t offset, int64_t n, size_t v_dim) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  auto bad = hn::Zero(d);  // x * 0 is NaN for NaN and infinities, and stays
  for (int64_t j = 0; j < n; ++j) {
    const T* row = reinterpret_cast<const T*>(static_cast<const char*>(v[j]) + offset);
    size_t x = 0;
    for (; x + N <= v_dim; x += N) bad = hn::MulAdd(LoadWide(d, row + x), hn::Zero(d), bad);
    if (x < v_dim) bad = hn::MulAdd(LoadWideN(d, row + x, v_dim - x), hn::Zero(d), bad);
  }
  return hn::AllFalse(d, hn::IsNaN(bad));
}
static HWY_INLINE bool AllFiniteRows(int32_t type, const void* const* v, size_t offset, int64_t n, size_t v_dim) {
  switch (type) {
    case LW_TYPE_BF16:
      return AllFiniteRowsOf<Bf16>(v, offset, n, v_dim);
    case LW_TYPE_F16:
      return AllFiniteRowsOf<F16>(v, offset, n, v_dim);
    default:
      return AllFiniteRowsOf<float>(v, offset, n, v_dim);
  }
}

// Hides scores of a row at keys outside [begin, end) of the block; the row's maximum over visible ones; then probs in
// place.
static inline HWY_NOINLINE float ProbsOfRow(float* HWY_RESTRICT s, int64_t n, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const VisibleInterval<V> visible = {hn::Set(d, static_cast<float>(begin)), hn::Set(d, static_cast<float>(end))};
  V max = hn::Set(d, kNoMax);
  for (int64_t j = 0; j < n; j += N) {
    V score = hn::Load(d, s + j);
    if (j < begin || j + N > end) {
      const V key = hn::Iota(d, static_cast<float>(j));
      score = hn::IfThenElse(hn::And(hn::Le(visible.begin, key), hn::Lt(key, visible.end)), score, hn::Set(d, kHidden));
      hn::Store(score, d, s + j);
    }
    max = hn::Max(max, score);
  }
  max = hn::Ceil(hn::MaxOfLanes(d, max));
  for (int64_t j = 0; j < n; j += N) hn::Store(Prob(d, hn::Load(d, s + j), max), d, s + j);
  return hn::GetLane(max);
}

// Addresses of one block's keys, values behind them, and the next block's keys behind those.
struct BlockAddresses {
  const void** k;
  const void** v;
};

// Elements of a row of q in scratch.
HWY_INLINE int64_t RowOfQ(const Task& task) { return task.native_bf16 ? PairsOf(task.qk_dim) : task.qk_dim; }

HWY_INLINE FewLoops LoopsFor(const Task& task, int32_t type) {
#if HWY_NATIVE_DOT_BF16
  if (task.native_bf16) return FewLoopsNative();
#endif
  (void)task;
  return FewLoopsFor(type);
}

// Dots of native_bf16 come without factor.
static inline HWY_NOINLINE void ScaleScores(float factor, int64_t n, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < n; j += N) hn::Store(hn::Mul(hn::Load(d, s + j), hn::Set(d, factor)), d, s + j);
}

// n probs, rounded to bf16, become pairs: p[i] holds keys 2i and 2i + 1.
static inline HWY_NOINLINE void PairProbs(int64_t n, float* HWY_RESTRICT p) {
#if HWY_NATIVE_DOT_BF16
  const hn::ScalableTag<float> d;
  const hn::Repartition<hwy::bfloat16_t, decltype(d)> d16;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < n; j += 2 * N) {
    const auto first = hn::Load(d, p + j), second = hn::Load(d, p + j + N);
    hn::Store(hn::BitCast(d, hn::OrderedDemote2To(d16, first, second)), d, p + j / 2);
  }
#else
  (void)n;
  (void)p;
#endif
}

// One block of n keys, and how its K and V are read.
struct FewBlock {
  const Task& task;
  const FewVisible& visible;
  int64_t first_key, n;
  BlockAddresses addresses;
  int64_t next;  // addresses of the next block's keys, behind the values
  int64_t rows;  // of a kv head
  int64_t passes;
  int64_t chunk;  // keys that all kv heads and passes take, one after the other
  bool in_cache;  // nothing to fetch

  int64_t PassBegin(int64_t pass) const { return rows * pass / passes; }
};

// K or V of a block: its rows, and what is read after them.
struct FewRows {
  const KeyTensor& tensor;
  const void* const* at;
  const KeyTensor& then_tensor;
  const void* const* then;
  int64_t then_count;  // at least kChunkKeys of them are read, if any
  size_t lines, then_lines;
  size_t HeadBytes() const { return static_cast<size_t>(tensor.head_stride * storage_size(tensor.type)); }
};

// Tokens of one head that follow one another in memory, up to a chunk, before those of the next head.
HWY_INLINE int64_t RunOfTokens(const KeyTensor& t) {
  const bool heads_inside = HWY_MAX(t.head_stride, -t.head_stride) < HWY_MAX(t.len_stride, -t.len_stride);
  return heads_inside ? 1 : t.page_table == nullptr ? kChunkKeys : HWY_MIN(kChunkKeys, t.page_size);
}

// Addresses of the rows of `count` tokens for all kv heads, in the order of memory.
static inline HWY_NOINLINE void FillAhead(const KeyTensor& t, const void* const* tokens, int64_t count, int64_t heads,
                                          const void** to) {
  const int64_t head_bytes = t.head_stride * storage_size(t.type);
  const int64_t run = RunOfTokens(t);
  int64_t first = 0, head = 0, token = 0;
  for (int64_t i = 0; i < kChunkKeys * heads; ++i) {
    to[i] = static_cast<const char*>(tokens[HWY_MIN(first + token, count - 1)]) + head * head_bytes;
    if (++token < run) continue;
    token = 0;
    if (++head < heads) continue;
    head = 0;
    first += run;
  }
}

// What is fetched while pass `pass` of kv head `head` works on the keys from j on.
HWY_INLINE PrefetchRows AheadOf(const FewBlock& block, const FewRows& rows, int64_t j, int64_t head, int64_t pass,
                                const void** ahead) {
  const int64_t heads = block.task.kv_heads;
  const int64_t after = j + block.chunk;
  if (pass > 0 || block.in_cache) return {rows.at + j, 0, rows.at + j, 0, 0};
  if (heads == 1) return {rows.then + j, rows.then_lines, rows.at + j + kNearRows, 0, rows.lines};
  const bool is_last = after >= block.n;
  if (head == 0) {
    if (!is_last) FillAhead(rows.tensor, rows.at + after, block.n - after, heads, ahead);
    if (is_last && rows.then_count > 0) FillAhead(rows.then_tensor, rows.then, rows.then_count, heads, ahead);
  }
  const size_t far_lines = is_last ? (rows.then_count > 0 ? rows.then_lines : 0) : rows.lines;
  // Rows far apart share few sets of the first cache: what is fetched into it is gone before it is used.
  if (RunOfTokens(rows.tensor) < kChunkKeys) {
    return {ahead + head * kChunkKeys, far_lines, rows.at + j, static_cast<size_t>(head) * rows.HeadBytes(), 0};
  }
  const bool is_last_head = head + 1 == heads;
  const void* const* near = !is_last_head ? rows.at + j : is_last ? rows.then : rows.at + after;
  const size_t near_offset = is_last_head ? 0 : static_cast<size_t>(head + 1) * rows.HeadBytes();
  return {ahead + head * kChunkKeys, far_lines, near, near_offset, rows.lines};
}

static inline HWY_NOINLINE void FewScores(const FewBlock& block, const FewRows& k, FewScratch& s) {
  const Task& task = block.task;
  const FewLoops loops = LoopsFor(task, TypeAsRead(task, task.k));
  const size_t qk_dim = static_cast<size_t>(task.qk_dim);
  for (int64_t j = 0; j < block.n; j += block.chunk) {
    const size_t count = static_cast<size_t>(HWY_MIN(block.chunk, block.n - j));
    for (int64_t head = 0; head < task.kv_heads; ++head) {
      for (int64_t pass = 0; pass < block.passes; ++pass) {
        const int64_t begin = block.PassBegin(pass);
        const int64_t row = head * block.rows + begin;
        loops.score[block.PassBegin(pass + 1) - begin](
            s.q + row * RowOfQ(task), qk_dim, k.at + j, static_cast<size_t>(head) * k.HeadBytes(), count,
            AheadOf(block, k, j, head, pass, s.ahead), s.probs + row * kBlockKeys + j);
      }
    }
  }
}

// Adds a kv head's values of keys [from, to) where V may be NaN or infinite at keys that some row does not see: a hidden
// key's prob is 0, which does not hide those, so each row takes its visible keys alone.
static inline HWY_NOINLINE void AddVisibleOnly(const FewBlock& block, const FewLoops& loops, const FewRows& v,
                                               int64_t head, int64_t from, int64_t to, FewScratch& s) {
  const Task& task = block.task;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t begin = ClampTo(block.visible.begin[r] - block.first_key, from, to);
    const int64_t end = ClampTo(block.visible.end[r] - block.first_key, begin, to);
    const int64_t row = head * block.rows + r;
    if (task.native_bf16) {  // pairs stay whole: a hidden partner is zero
      for (int64_t j = 0; j < block.n + static_cast<int64_t>(kNearRows); ++j)
        s.seen[j] = begin <= j && j < end ? v.at[j] : s.zero_row;
      loops.value[1](s.probs + row * kBlockKeys, s.seen, 0, static_cast<size_t>(task.v_dim), 0,
                     static_cast<size_t>(block.n), {s.seen, 0, s.seen + kNearRows, 0, 0},
                     s.block_acc + row * task.v_dim, s.block_sum + row);
      continue;
    }
    const PrefetchRows nothing = {v.at + begin, 0, v.at + begin, 0, 0};
    loops.value[1](s.probs + row * kBlockKeys, v.at, static_cast<size_t>(head) * v.HeadBytes(),
                   static_cast<size_t>(task.v_dim), static_cast<size_t>(begin), static_cast<size_t>(end), nothing,
                   s.block_acc + row * task.v_dim, s.block_sum + row);
  }
}

static inline HWY_NOINLINE void FewValues(const FewBlock& block, const FewRows& v, bool edge, FewScratch& s) {
  const Task& task = block.task;
  const int32_t type = TypeAsRead(task, task.v);
  const FewLoops loops = LoopsFor(task, type);
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  bool together[kMaxTogetherRows];
  for (int64_t head = 0; head < task.kv_heads; ++head) {
    together[head] = !edge || AllFiniteRows(type, v.at, static_cast<size_t>(head) * v.HeadBytes(), block.n, v_dim);
  }
  for (int64_t j = 0; j < block.n; j += block.chunk) {
    const int64_t to = HWY_MIN(j + block.chunk, block.n);
    for (int64_t head = 0; head < task.kv_heads; ++head) {
      if (!together[head]) {
        AddVisibleOnly(block, loops, v, head, j, to, s);
        continue;
      }
      for (int64_t pass = 0; pass < block.passes; ++pass) {
        const int64_t begin = block.PassBegin(pass);
        const int64_t row = head * block.rows + begin;
        loops.value[block.PassBegin(pass + 1) - begin](
            s.probs + row * kBlockKeys, v.at, static_cast<size_t>(head) * v.HeadBytes(), v_dim, static_cast<size_t>(j),
            static_cast<size_t>(to), AheadOf(block, v, j, head, pass, s.ahead), s.block_acc + row * task.v_dim,
            s.block_sum + row);
      }
    }
  }
}

// The state of one block for all rows of the task, into block_max, block_sum, block_acc.
static inline HWY_NOINLINE void FewBlockState(const FewBlock& block, FewScratch& s) {
  const Task& task = block.task;
  const int64_t n = block.n;
  const size_t k_lines = LinesOf(TypeAsRead(task, task.k), task.qk_dim);
  const size_t v_lines = LinesOf(TypeAsRead(task, task.v), task.v_dim);
  const FewRows k = {task.k, block.addresses.k, task.v, block.addresses.v, n, k_lines, v_lines};
  const FewRows v = {task.v, block.addresses.v, task.k, block.addresses.v + n, block.next, v_lines, k_lines};
  FewScores(block, k, s);
  EmptyStates(static_cast<size_t>(task_rows(task)), static_cast<size_t>(task.v_dim), s.block_max, s.block_sum,
              s.block_acc);
  bool edge = false;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t begin = ClampTo(block.visible.begin[r] - block.first_key, 0, n);
    const int64_t end = ClampTo(block.visible.end[r] - block.first_key, begin, n);
    edge = edge || begin > 0 || end < n;
    for (int64_t row = r; row < task_rows(task); row += block.rows) {
      float* const scores = s.probs + row * kBlockKeys;
      if (task.native_bf16) ScaleScores(task.rules->factor, n, scores);
      s.block_max[row] = ProbsOfRow(scores, n, begin, end);
      if (task.native_bf16) PairProbs(n, scores);
    }
  }
  FewValues(block, v, edge, s);
}

// Addresses run on from keys to values to the next block's keys, so that prefetch looks ahead in the order of reading.
// Keys are filled up to whole vectors with the last one; the end of the list repeats. lead, trail: zero rows before and
// behind the keys and values, which make pairs whole.
static inline BlockAddresses AddressesOf(const Task& task, const FewScratch& s, int64_t begin, int64_t end,
                                         int64_t next_begin, int64_t next_end, int64_t lead, int64_t trail) {
  constexpr int64_t kWhole = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const int64_t n = lead + end - begin + trail;
  const int64_t whole = (n + kWhole - 1) / kWhole * kWhole;
  const void** at = s.addresses;
  const auto fill = [&](const KeyTensor& t, int64_t dim, float* packed, const void** to) {
    if (lead > 0) to[0] = s.zero_row;
    RowsOf(task, t, dim, packed, begin, end, to + lead);
    if (trail > 0) to[n - 1] = s.zero_row;
  };
  fill(task.k, task.qk_dim, s.packed_k, at);
  for (int64_t i = n; i < whole; ++i) at[i] = at[n - 1];
  const void** v = at + whole;
  fill(task.v, task.v_dim, s.packed_v, v);
  const void** next = v + n;
  const int64_t ahead = IsPacked(task.k) ? 0 : HWY_MAX(int64_t{0}, next_end - next_begin);
  if (ahead > 0) FillAddresses(task.k, next_begin, next_end, next);
  for (int64_t i = 0; i < kAddressSlack; ++i) next[ahead + i] = next[ahead - 1];
  return {at, v};
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
  const int64_t ahead = IsPacked(task.k) ? 0 : next_sight.keys;
  if (ahead > 0) AddressesOfSight(task, task.k, task.qk_dim, nullptr, next_sight, s.zero_row, next);
  for (int64_t i = 0; i < kAddressSlack; ++i) next[ahead + i] = next[ahead - 1];
  return {at, v};
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
  const int64_t passes = (rows + static_cast<int64_t>(kMaxPassRows) - 1) / static_cast<int64_t>(kMaxPassRows);
  EmptyStates(static_cast<size_t>(rows), v_dim, s.block_max, s.block_sum, s.block_acc);
  const bool together = !sight.edge || AllFiniteRows(v_type, v, 0, sight.keys, v_dim);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t row = rows * pass / passes;
    const int64_t count = rows * (pass + 1) / passes - row;
    float* const probs = s.probs + row * kBlockKeys;
    k_loops.score[count](s.q + row * RowOfQ(task), static_cast<size_t>(task.qk_dim), k, 0, keys, prefetch_k, probs);
    for (int64_t r = row; r < row + count; ++r) {
      float* const scores = s.probs + r * kBlockKeys;
      if (task.native_bf16) ScaleScores(task.rules->factor, sight.keys, scores);
      s.block_max[r] = RuledProbsOfRow(task, rules, sight, r, n, scores);
      if (task.native_bf16) PairProbs(sight.keys, scores);
    }
    if (together) {
      v_loops.value[count](probs, v, 0, v_dim, 0, keys, prefetch_v, s.block_acc + row * task.v_dim, s.block_sum + row);
      continue;
    }
    for (int64_t r = row; r < row + count; ++r) {
      float* const row_probs = s.probs + r * kBlockKeys;
      const size_t seen = SeenOfRow(task, sight, r, row_probs, v, s.zero_row, s.seen);
      v_loops.value[1](row_probs, s.seen, 0, v_dim, 0, seen, prefetch_seen, s.block_acc + r * task.v_dim,
                       s.block_sum + r);
    }
  }
}

// q[r][c] = factor * query element c of the task's row r.
template <class T>
HWY_INLINE void LoadFewQueriesOf(const Task& task, float* HWY_RESTRICT q) {
  for (int64_t row = 0; row < task_rows(task); ++row, q += task.qk_dim) {
    const T* from = static_cast<const T*>(task.q.data) + FewRowOffset(task.q, task, row);
    for (int64_t c = 0; c < task.qk_dim; ++c) q[c] = Widen(from[c * task.q.dim_stride]) * task.rules->factor;
  }
}
// Pairs of dims as they are, for native_bf16.
static inline HWY_NOINLINE void LoadFewQueryPairs(const Task& task, float* HWY_RESTRICT q) {
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    const Bf16* from = static_cast<const Bf16*>(task.q.data) + RowOffset(task.q, row, task.group_size);
    for (int64_t c = 0; c < task.qk_dim; c += 2) {
      const Bf16 odd = c + 1 < task.qk_dim ? from[(c + 1) * task.q.dim_stride] : Bf16{0};
      *q++ = PairOf(from[c * task.q.dim_stride], odd);
    }
  }
}
static inline HWY_NOINLINE void LoadFewQueries(const Task& task, float* HWY_RESTRICT q) {
  if (task.native_bf16) return LoadFewQueryPairs(task, q);
  switch (task.q.type) {
    case LW_TYPE_BF16:
      return LoadFewQueriesOf<Bf16>(task, q);
    case LW_TYPE_F16:
      return LoadFewQueriesOf<F16>(task, q);
    default:
      return LoadFewQueriesOf<float>(task, q);
  }
}

HWY_INLINE int64_t PassesOf(int64_t rows) {
  return (rows + static_cast<int64_t>(kMaxPassRows) - 1) / static_cast<int64_t>(kMaxPassRows);
}

void KeysInLanes(const Task& task) {
  const int64_t rows = task_rows(task);
  const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task.v_dim);
  FewScratch s = CarveFewScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, rows);
  const FewVisible visible = VisibleOf(task);
  LoadFewQueries(task, s.q);
  if (task.native_bf16)
    std::memset(s.zero_row, 0, static_cast<size_t>(HWY_MAX(task.qk_dim, task.v_dim)) * sizeof(Bf16));
  const bool delivers = task.deliver != Deliver::kResults;
  if (!delivers) StartRowStates(task, s);
  EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);

  const bool plain = task.rules->plain();
  FewRules rules;
  FewSight sight, next_sight;
  if (!plain) StartFewRules(task, rules);

  const int64_t head_rows = task.row_end - task.row_begin;
  const int64_t passes = PassesOf(head_rows);
  const bool whole_blocks = task.native_bf16 || (task.kv_heads == 1 && passes == 1);
  const int64_t chunk = whole_blocks ? kBlockKeys : kChunkKeys;
  float* state = task.states;
  // Blocks at absolute positions. Without delivery, blocks that no row sees are stepped over.
  const int64_t first = delivers ? task.key_begin : visible.any_begin;
  const int64_t last = delivers ? task.key_end : visible.any_end;
  const auto block_end_of = [&](int64_t key) {
    return HWY_MIN(last, (task.kv_start + key) / kBlockKeys * kBlockKeys + kBlockKeys - task.kv_start);
  };
  const auto see = [&](int64_t key, FewSight& to) HWY_ATTR {
    if (to.block_row == BlockRow(task, key)) return;
    SeeFew(task, rules, BlockRow(task, key), HWY_MIN(block_end_of(key), visible.any_end), to);
  };
  for (int64_t key = first; key < last;) {
    const int64_t block_end = block_end_of(key);
    const int64_t begin = HWY_MAX(key, visible.any_begin);
    const int64_t end = HWY_MIN(block_end, visible.any_end);
    bool any = begin < end;
    if (any && !plain) {
      sight = next_sight;
      see(key, sight);
      any = sight.keys > 0;
      next_sight = FewSight();
      if (block_end < HWY_MIN(last, visible.any_end)) see(block_end, next_sight);
      if (any)
        RuledFewBlock(task, rules, sight, end - sight.block_row, AddressesInSight(task, s, sight, next_sight), s);
    } else if (any) {
      const int64_t next_end = block_end < last ? HWY_MIN(block_end_of(block_end), visible.any_end) : block_end;
      // Pairs are keys (2i, 2i + 1) of the key axis.
      const int64_t lead = task.native_bf16 ? (task.kv_start + begin) % 2 : 0;
      const int64_t trail = task.native_bf16 ? (task.kv_start + end) % 2 : 0;
      const BlockAddresses addresses = AddressesOf(task, s, begin, end, block_end, next_end, lead, trail);
      const int64_t next = IsPacked(task.k) ? 0 : HWY_MAX(int64_t{0}, next_end - block_end);
      FewBlockState(
          {task, visible, begin - lead, lead + end - begin + trail, addresses, next, head_rows, passes, chunk, false},
          s);
    }
    if (!any) EmptyStates(few, v_dim, s.block_max, s.block_sum, s.block_acc);
    key = block_end;
    if (task.deliver == Deliver::kBlocks) {
      DeliverStates(few, v_dim, s.block_max, s.block_sum, s.block_acc, state);
      state += piece_state_size(rows, task.v_dim);
      continue;
    }
    if (any) MergeStates(few, v_dim, s.span_max, s.span_sum, s.span_acc, s.block_max, s.block_sum, s.block_acc);
    if (key < last && (task.kv_start + key) % kSpanKeys != 0) continue;
    if (delivers) {
      DeliverStates(few, v_dim, s.span_max, s.span_sum, s.span_acc, state);
      state += piece_state_size(rows, task.v_dim);
    } else {
      MergeStates(few, v_dim, s.row_max, s.row_sum, s.row_acc, s.span_max, s.span_sum, s.span_acc);
    }
    EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);
  }
  if (!delivers) StoreFewResults(task, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
