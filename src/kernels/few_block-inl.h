// One block of keys for a few rows under plain rules: scores, probs, values, and what is fetched meanwhile.
// ruled_few-inl.h is the counterpart for all other rules.

#if defined(LANEWISE_FEW_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_BLOCK_INL_H_
#undef LANEWISE_FEW_BLOCK_INL_H_
#else
#define LANEWISE_FEW_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/few_addresses-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/few_probs-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_io-inl.h"

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

// One block of n keys, and how its K and V are read.
struct FewBlock {
  const Task& task;
  const FewVisible& visible;
  int64_t first_key, n;
  BlockAddresses addresses;
  int64_t rows;   // of a kv head
  int64_t chunk;  // keys that all kv heads and passes take, one after the other
  bool in_cache;  // nothing to fetch
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
  const Passes passes(block.rows);
  const size_t qk_dim = static_cast<size_t>(task.qk_dim);
  for (int64_t j = 0; j < block.n; j += block.chunk) {
    const size_t count = static_cast<size_t>(HWY_MIN(block.chunk, block.n - j));
    for (int64_t head = 0; head < task.kv_heads; ++head) {
      for (int64_t pass = 0; pass < passes.count; ++pass) {
        const int64_t row = head * block.rows + passes.Begin(pass);
        loops.score[passes.Rows(pass)](s.q + row * RowOfQ(task), qk_dim, k.at + j,
                                       static_cast<size_t>(head) * k.HeadBytes(), count,
                                       AheadOf(block, k, j, head, pass, s.ahead), s.probs + row * kBlockKeys + j);
      }
    }
  }
}

// Adds a kv head's values of keys [from, to) where V may be NaN or infinite at keys that some row does not see: a
// hidden key's prob is 0, which does not hide those, so each row takes its visible keys alone.
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
  const Passes passes(block.rows);
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  bool together[kMaxTogetherRows];
  for (int64_t head = 0; head < task.kv_heads; ++head) {
    together[head] = !edge || AllFiniteRows(type, v.at, static_cast<size_t>(head) * v.HeadBytes(), block.n, v_dim);
  }
  const float* probs[kMaxTogetherRows];  // of each pass
  for (int64_t head = 0; head < task.kv_heads; ++head) {
    if (!together[head]) continue;
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t row = head * block.rows + passes.Begin(pass);
      probs[head * passes.count + pass] =
          ProbsByKey(s.probs + row * kBlockKeys, passes.Rows(pass), task.native_bf16 ? block.n / 2 : block.n,
                     s.by_key + kMostLanesARow * row * kBlockKeys);
    }
  }
  for (int64_t j = 0; j < block.n; j += block.chunk) {
    const int64_t to = HWY_MIN(j + block.chunk, block.n);
    for (int64_t head = 0; head < task.kv_heads; ++head) {
      if (!together[head]) {
        AddVisibleOnly(block, loops, v, head, j, to, s);
        continue;
      }
      for (int64_t pass = 0; pass < passes.count; ++pass) {
        const int64_t row = head * block.rows + passes.Begin(pass);
        loops.value[passes.Rows(pass)](probs[head * passes.count + pass], v.at,
                                       static_cast<size_t>(head) * v.HeadBytes(), v_dim, static_cast<size_t>(j),
                                       static_cast<size_t>(to), AheadOf(block, v, j, head, pass, s.ahead),
                                       s.block_acc + row * task.v_dim, s.block_sum + row);
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
  const FewRows v = {task.v, block.addresses.v, task.k, block.addresses.v + n, block.addresses.next, v_lines, k_lines};
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

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
