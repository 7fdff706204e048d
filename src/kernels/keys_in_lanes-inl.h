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
// Here: a task's way through its blocks. Not here: one block (few_block-inl.h, ruled_few-inl.h), register loops
// (few_tiles-inl.h), which pieces a sequence is cut into (src/task_cursor.cpp).

#if defined(LANEWISE_KEYS_IN_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_KEYS_IN_LANES_INL_H_
#undef LANEWISE_KEYS_IN_LANES_INL_H_
#else
#define LANEWISE_KEYS_IN_LANES_INL_H_
#endif

#include <utility>

#include <hwy/highway.h>

#include "src/kernels/few_addresses-inl.h"
#include "src/kernels/few_block-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/ruled_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
  bool row_is_empty = !task.state_in.given();
  EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);

  const bool plain = task.rules->plain();
  FewRules rules;
  FewSight sight, next_sight;
  if (!plain) StartFewRules(task, rules);

  const int64_t head_rows = task.row_end - task.row_begin;
  const bool one_pass = head_rows <= static_cast<int64_t>(kMaxPassRows);
  const bool whole_blocks = task.native_bf16 || (task.kv_heads == 1 && one_pass);
  const int64_t chunk = whole_blocks ? kBlockKeys : kChunkKeys;
  float* state = task.states;
  // Blocks at absolute positions. Without delivery, blocks that no row sees are stepped over.
  const int64_t first = delivers ? task.key_begin : visible.any_begin;
  const int64_t last = delivers ? task.key_end : visible.any_end;
  const auto block_end_of = [&](int64_t key) HWY_ATTR { return HWY_MIN(last, BlockBegin(task, key) + kBlockKeys); };
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
      FewBlockState({task, visible, begin - lead, lead + end - begin + trail, addresses, head_rows, chunk, false}, s);
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
    } else if (row_is_empty) {  // merged, only a zero could lose its sign, which no result keeps
      std::swap(s.row_max, s.span_max);
      std::swap(s.row_sum, s.span_sum);
      std::swap(s.row_acc, s.span_acc);
      row_is_empty = false;
      continue;
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
