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

#include "src/kernels/few_states-inl.h"
#include "src/kernels/few_tiles-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[i] = address of key row begin + i, i < end - begin.
static void FillAddresses(const KeyTensor& t, int64_t begin, int64_t end, const float** to) {
  if (t.page_table == nullptr) {
    const float* row = static_cast<const float*>(t.data) + begin * t.len_stride;
    for (int64_t j = begin; j < end; ++j, row += t.len_stride) *to++ = row;
    return;
  }
  for (int64_t j = begin; j < end;) {  // page by page
    const int64_t page_end = HWY_MIN(end, (j / t.page_size + 1) * t.page_size);
    const float* row = KeyRow(t, j);
    for (; j < page_end; ++j, row += t.len_stride) *to++ = row;
  }
}

// What each row may see of the task's keys.
struct FewVisible {
  int64_t begin[kMaxFewRows], end[kMaxFewRows];  // key rows
  int64_t any_begin, any_end;
};

static FewVisible VisibleOf(const Task& task) {
  FewVisible visible;
  visible.any_begin = task.key_end;
  visible.any_end = task.key_begin;
  for (int64_t r = 0; r < task.row_end - task.row_begin; ++r) {
    row_visible(task, task.row_begin + r, visible.begin[r], visible.end[r]);
    visible.begin[r] = ClampTo(visible.begin[r], task.key_begin, task.key_end);
    visible.end[r] = ClampTo(visible.end[r], visible.begin[r], task.key_end);
    if (visible.begin[r] < visible.end[r]) {
      visible.any_begin = HWY_MIN(visible.any_begin, visible.begin[r]);
      visible.any_end = HWY_MAX(visible.any_end, visible.end[r]);
    }
  }
  visible.any_begin = HWY_MIN(visible.any_begin, visible.any_end);
  return visible;
}

// Values at these addresses are all finite.
static HWY_NOINLINE bool AllFiniteRows(const float* const* v, int64_t n, size_t v_dim) {
  for (int64_t j = 0; j < n; ++j) {
    if (!AllFinite({v[j], 0}, 0, 1, v_dim)) return false;
  }
  return true;
}

// Hides scores of a row at keys outside [begin, end) of the block; the row's maximum over visible ones; then probs in
// place.
static HWY_NOINLINE float ProbsOfRow(float* HWY_RESTRICT s, int64_t n, int64_t begin, int64_t end) {
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
  const float** k;
  const float** v;
};

// The state of one block of n keys for all rows of the task, into block_max, block_sum, block_acc.
static HWY_NOINLINE void FewBlock(const Task& task, const FewVisible& visible, int64_t first_key, int64_t n,
                                  const BlockAddresses& addresses, FewScratch& s) {
  const float* const* const k = addresses.k;
  const float* const* const v = addresses.v;
  const size_t k_lines = static_cast<size_t>((task.qk_dim + 15) / 16);
  const size_t v_lines = static_cast<size_t>((task.v_dim + 15) / 16);
  const PrefetchRows prefetch_k = {v, v_lines, k_lines};
  const PrefetchRows prefetch_v = {v + n, k_lines, v_lines};
  const int64_t rows = task.row_end - task.row_begin;
  const int64_t passes = (rows + static_cast<int64_t>(kMaxPassRows) - 1) / static_cast<int64_t>(kMaxPassRows);
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t row = rows * pass / passes;
    const int64_t count = rows * (pass + 1) / passes - row;
    const FewFunctions functions = FewFunctionsFor<kMaxPassRows>(static_cast<size_t>(count));
    float* const probs = s.probs + row * kBlockKeys;
    functions.score(s.q + row * task.qk_dim, static_cast<size_t>(task.qk_dim), k, static_cast<size_t>(n), prefetch_k,
                    probs);
    bool edge = false;
    for (int64_t r = row; r < row + count; ++r) {
      const int64_t begin = ClampTo(visible.begin[r] - first_key, 0, n);
      const int64_t end = ClampTo(visible.end[r] - first_key, begin, n);
      edge = edge || begin > 0 || end < n;
      s.block_max[r] = ProbsOfRow(s.probs + r * kBlockKeys, n, begin, end);
    }
    // A hidden key's prob is 0, which hides its value unless that is NaN or infinite: then each row takes its visible
    // keys alone.
    const bool together = !edge || AllFiniteRows(v, n, v_dim);
    if (together) {
      functions.value(probs, v, v_dim, 0, static_cast<size_t>(n), prefetch_v, s.block_acc + row * task.v_dim,
                      s.block_sum + row);
    } else {
      for (int64_t r = row; r < row + count; ++r) {
        const int64_t begin = ClampTo(visible.begin[r] - first_key, 0, n);
        const int64_t end = ClampTo(visible.end[r] - first_key, begin, n);
        ValueFew<1>(s.probs + r * kBlockKeys, v, v_dim, static_cast<size_t>(begin), static_cast<size_t>(end),
                    prefetch_v, s.block_acc + r * task.v_dim, s.block_sum + r);
      }
    }
  }
}

// Addresses of rows begin ... end - 1, where they are or copied into `packed`.
HWY_INLINE void RowsOf(const KeyTensor& t, int64_t dim, float* packed, int64_t begin, int64_t end, const float** to) {
  if (t.dim_stride == 1) return FillAddresses(t, begin, end, to);
  const int64_t stride = PackedStride(dim);
  PackKeys(t, dim, begin, end, packed, stride);
  for (int64_t j = 0; j < end - begin; ++j) to[j] = packed + j * stride;
}

// Addresses run on from keys to values to the next block's keys, so that prefetch looks ahead in the order of reading.
// Keys are filled up to whole vectors with the last one; the end of the list repeats.
static BlockAddresses AddressesOf(const Task& task, const FewScratch& s, int64_t begin, int64_t end, int64_t next_begin,
                                  int64_t next_end) {
  constexpr int64_t kWhole = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const int64_t n = end - begin;
  const int64_t whole = (n + kWhole - 1) / kWhole * kWhole;
  const float** at = s.addresses;
  RowsOf(task.k, task.qk_dim, s.packed_k, begin, end, at);
  for (int64_t i = n; i < whole; ++i) at[i] = at[n - 1];
  const float** v = at + whole;
  RowsOf(task.v, task.v_dim, s.packed_v, begin, end, v);
  const float** next = v + n;
  const int64_t ahead = task.k.dim_stride == 1 ? HWY_MAX(int64_t{0}, next_end - next_begin) : 0;
  if (ahead > 0) FillAddresses(task.k, next_begin, next_end, next);
  for (int64_t i = 0; i < kAddressSlack; ++i) next[ahead + i] = next[ahead - 1];
  return {at, v};
}

void KeysInLanes(const Task& task) {
  const int64_t rows = task.row_end - task.row_begin;
  const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task.v_dim);
  FewScratch s = CarveFewScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, rows);
  const FewVisible visible = VisibleOf(task);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = static_cast<const float*>(task.q.data) + RowOffset(task.q, task.row_begin + r, task.group_size);
    for (int64_t c = 0; c < task.qk_dim; ++c)
      s.q[r * task.qk_dim + c] = from[c * task.q.dim_stride] * task.rules->factor;
  }
  const bool delivers = task.deliver != Deliver::kResults;
  if (!delivers) StartRowStates(task, s);
  EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);

  float* state = task.states;
  // Blocks at absolute positions. Without delivery, blocks that no row sees are stepped over.
  const int64_t first = delivers ? task.key_begin : visible.any_begin;
  const int64_t last = delivers ? task.key_end : visible.any_end;
  const auto block_end_of = [&](int64_t key) {
    return HWY_MIN(last, (task.kv_start + key) / kBlockKeys * kBlockKeys + kBlockKeys - task.kv_start);
  };
  for (int64_t key = first; key < last;) {
    const int64_t block_end = block_end_of(key);
    const int64_t begin = HWY_MAX(key, visible.any_begin);
    const int64_t end = HWY_MIN(block_end, visible.any_end);
    if (begin < end) {
      const int64_t next_end = block_end < last ? HWY_MIN(block_end_of(block_end), visible.any_end) : block_end;
      const BlockAddresses addresses = AddressesOf(task, s, begin, end, block_end, next_end);
      FewBlock(task, visible, begin, end - begin, addresses, s);
    } else {
      EmptyStates(few, v_dim, s.block_max, s.block_sum, s.block_acc);
    }
    key = block_end;
    if (task.deliver == Deliver::kBlocks) {
      DeliverStates(few, v_dim, s.block_max, s.block_sum, s.block_acc, state);
      state += piece_state_size(rows, task.v_dim);
      continue;
    }
    if (begin < end) MergeStates(few, v_dim, s.span_max, s.span_sum, s.span_acc, s.block_max, s.block_sum, s.block_acc);
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
