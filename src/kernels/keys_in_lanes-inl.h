// Keys-in-lanes, the decode kernel: keys in the SIMD lanes for scores, dims in the lanes for values; at most kMaxFewRows rows, which
// share each load of K and V. Memory-bound: the whole cache of a head is read once, in address order, with two-level prefetch.
//
// For each 256-key block, in the canonical arithmetic of docs/NUMERICS.md:
//   scores   s[r][j] = sum over c of q'[r][c] * k[j][c]     K is transposed in registers, 4 dims of a vector of keys at a time
//   probs    p[r][j] = 2^(s[r][j] - m[r])
//   values   acc[r][x] = sum over j of p[r][j] * v[j][x], row_sum[r] = sum over j of p[r][j]
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

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/rules-inl.h"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of one pass of the register loops; more rows take several passes over a block, which is then in cache.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 || HWY_ARCH_ARM_A64
inline constexpr size_t kMaxPassRows = 8;
inline constexpr size_t kValueRegisters = 24;  // accumulators of a value pass, of 32
#else
inline constexpr size_t kMaxPassRows = 4;
inline constexpr size_t kValueRegisters = 12;  // of 16
#endif

// Memory and arithmetic overlap only by prefetch, spread evenly over the work: while a block's keys are scored its values are fetched
// into the second cache, and while its values are added up the next block's keys are (docs/PERFORMANCE.md). A few rows ahead of use,
// rows are fetched into the first.
struct PrefetchRows {
  const float* const* far;  // rows of the next tensor, as many as the block has keys
  size_t far_lines;         // cache lines of one of them
  size_t near_lines;        // of a row of this tensor
};
inline constexpr size_t kNearRows = 16;

HWY_INLINE void PrefetchNear(const float* row, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(row + i * 16, 0, 3);
}
HWY_INLINE void PrefetchFar(const float* row, size_t lines) {
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(row + i * 16, 0, 2);
}

// Scores of a block's keys [0, n), a vector of keys at a time, for kRows rows: s[r][j], rows of s are kBlockKeys apart. q: [rows][qk_dim].
// k repeats the last key's address up to whole vectors. One vector in flight is enough: a row alone is one FMA chain, no longer than
// the transposition beside it; more vectors would touch more rows at once than the first cache holds (one row: 46 to 60 GB/s in cache).
template <size_t kRows>
HWY_NOINLINE void ScoreFew(const float* HWY_RESTRICT q, size_t qk_dim, const float* const* HWY_RESTRICT k, size_t n,
                           const PrefetchRows& prefetch, float* HWY_RESTRICT s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const float* const* far = prefetch.far;
  for (; n > 0; n -= HWY_MIN(n, N), k += N, far += N, s += N) {
    V acc[kRows];
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) acc[r] = hn::Zero(d);
    size_t c = 0, fetched = 0;
    for (; c + kWideDims <= qk_dim; c += kWideDims) {
      // By the last dims, as many rows are on their way as are worked on here.
      for (; fetched * qk_dim < N * (c + kWideDims); ++fetched) {
        PrefetchNear(k[fetched + kNearRows], prefetch.near_lines);
        PrefetchFar(far[fetched], prefetch.far_lines);
      }
      V kt[kWideDims];
      LoadTransposedWide(d, k, c, kt);
      HWY_UNROLL(8)
      for (size_t t = 0; t < kWideDims; ++t) {
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(hn::Set(d, q[r * qk_dim + c + t]), kt[t], acc[r]);
      }
    }
    for (; c < qk_dim; ++c) {
      HWY_ALIGN float gathered[N];
      for (size_t lane = 0; lane < N; ++lane) gathered[lane] = k[lane][c];
      const V kc = hn::Load(d, gathered);
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) acc[r] = hn::MulAdd(hn::Set(d, q[r * qk_dim + c]), kc, acc[r]);
    }
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) hn::Store(acc[r], d, s + r * kBlockKeys);
  }
}

// acc[r][x ...] over keys [begin, end) for kWidth vectors of dims. kFirst: row sums too. kPartial: `count` lanes of one vector.
template <size_t kRows, size_t kWidth, bool kFirst, bool kPartial>
HWY_INLINE void ValueVectors(const float* HWY_RESTRICT p, const float* const* HWY_RESTRICT v, size_t x, size_t count, size_t begin,
                             size_t end, const PrefetchRows& prefetch, float* HWY_RESTRICT acc_out, size_t v_dim,
                             float* HWY_RESTRICT sum) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  V acc[kRows][kWidth], row_sum[kRows];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    row_sum[r] = hn::Zero(d);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) acc[r][w] = hn::Zero(d);
  }
  // This pass's share of the far rows, evenly over its keys.
  const size_t passes = (v_dim + kWidth * N - 1) / (kWidth * N);
  const float* const* far = prefetch.far + (end - begin) * (x / (kWidth * N)) / passes;
  size_t wait = passes;
  for (size_t j = begin; j < end; ++j) {
    const float* row = v[j] + x;
    if (--wait == 0) {
      PrefetchFar(*far++, prefetch.far_lines);
      wait = passes;
    }
    const float* ahead = v[j + kNearRows] + x;
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      if (w * N % 16 == 0) __builtin_prefetch(ahead + w * N, 0, 3);
    }
    V vj[kWidth];
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) vj[w] = kPartial ? hn::LoadN(d, row + w * N, count) : hn::LoadU(d, row + w * N);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const V pj = hn::Set(d, p[r * kBlockKeys + j]);
      if (kFirst) row_sum[r] = hn::Add(row_sum[r], pj);
      HWY_UNROLL(8)
      for (size_t w = 0; w < kWidth; ++w) acc[r][w] = hn::MulAdd(vj[w], pj, acc[r][w]);
    }
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    if (kFirst) sum[r] = hn::GetLane(row_sum[r]);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWidth; ++w) {
      if (kPartial) {
        hn::StoreN(acc[r][w], d, acc_out + r * v_dim + x + w * N, count);
      } else {
        hn::StoreU(acc[r][w], d, acc_out + r * v_dim + x + w * N);
      }
    }
  }
}

// Values and row sums of a block's keys [begin, end) for kRows rows: acc [rows][v_dim], sum [rows].
template <size_t kRows>
HWY_NOINLINE void ValueFew(const float* HWY_RESTRICT p, const float* const* HWY_RESTRICT v, size_t v_dim, size_t begin, size_t end,
                           const PrefetchRows& prefetch, float* HWY_RESTRICT acc, float* HWY_RESTRICT sum) {
  constexpr size_t N = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr size_t kFit = HWY_MAX(size_t{1}, kValueRegisters / kRows);
  constexpr size_t kWidth = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  size_t x = 0;
  if (v_dim >= kWidth * N) {
    ValueVectors<kRows, kWidth, true, false>(p, v, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    for (x = kWidth * N; x + kWidth * N <= v_dim; x += kWidth * N) {
      ValueVectors<kRows, kWidth, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
    }
  } else if (v_dim >= N) {
    ValueVectors<kRows, 1, true, false>(p, v, 0, 0, begin, end, prefetch, acc, v_dim, sum);
    x = N;
  } else {
    ValueVectors<kRows, 1, true, true>(p, v, 0, v_dim, begin, end, prefetch, acc, v_dim, sum);
    return;
  }
  if constexpr (kWidth >= 4) {
    for (; x + 2 * N <= v_dim; x += 2 * N) ValueVectors<kRows, 2, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
  }
  for (; x + N <= v_dim; x += N) ValueVectors<kRows, 1, false, false>(p, v, x, 0, begin, end, prefetch, acc, v_dim, sum);
  if (x < v_dim) ValueVectors<kRows, 1, false, true>(p, v, x, v_dim - x, begin, end, prefetch, acc, v_dim, sum);
}

using ScoreFewFunction = void (*)(const float*, size_t, const float* const*, size_t, const PrefetchRows&, float*);
using ValueFewFunction = void (*)(const float*, const float* const*, size_t, size_t, size_t, const PrefetchRows&, float*, float*);
struct FewFunctions {
  ScoreFewFunction score;
  ValueFewFunction value;
};

template <size_t kRows>
HWY_INLINE FewFunctions FewFunctionsFor(size_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return FewFunctionsFor<kRows - 1>(rows);
  }
  return {&ScoreFew<kRows>, &ValueFew<kRows>};
}

// Scratch of a task of `rows` rows.
struct FewScratch {
  float* q;          // [rows][qk_dim], times factor
  float* probs;      // [rows][256]
  float* block_acc;  // [rows][v_dim]
  float* span_acc;
  float* row_acc;
  float* block_sum;  // [rows], as the following
  float* block_max;
  float* span_sum;
  float* span_max;
  float* row_sum;
  float* row_max;
  const float** addresses;  // of rows in the order of reading: keys, values, the next block's keys, and kAddressSlack more
  float* packed_k;
  float* packed_v;
  size_t size;
};

// Addresses past a block's that prefetch and whole vectors may look at.
inline constexpr int64_t kAddressSlack = kBlockKeys + 128;

static FewScratch CarveFewScratch(char* base, int64_t qk_dim, int64_t v_dim, int64_t rows) {
  FewScratch s = {};
  s.q = Carve(base, s.size, rows * qk_dim);
  s.probs = Carve(base, s.size, rows * kBlockKeys);
  s.block_acc = Carve(base, s.size, rows * v_dim);
  s.span_acc = Carve(base, s.size, rows * v_dim);
  s.row_acc = Carve(base, s.size, rows * v_dim);
  for (float** at : {&s.block_sum, &s.block_max, &s.span_sum, &s.span_max, &s.row_sum, &s.row_max}) *at = Carve(base, s.size, rows);
  s.addresses = reinterpret_cast<const float**>(Carve(base, s.size, 2 * (3 * kBlockKeys + kAddressSlack)));
  // Only strided dims are packed, but which strides come is known only when the plan runs.
  s.packed_k = Carve(base, s.size, kBlockKeys * PackedStride(qk_dim));
  s.packed_v = Carve(base, s.size, kBlockKeys * PackedStride(v_dim));
  return s;
}

size_t KeysScratchSize(int64_t qk_dim, int64_t v_dim, int64_t rows) { return CarveFewScratch(nullptr, qk_dim, v_dim, rows).size; }

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

// Hides scores of a row at keys outside [begin, end) of the block; the row's maximum over visible ones; then probs in place.
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

// merge(a, b) of the states of `rows` rows: max, sum [rows], acc [rows][v_dim]. a takes the result.
static HWY_NOINLINE void MergeStates(size_t rows, size_t v_dim, float* HWY_RESTRICT max_a, float* HWY_RESTRICT sum_a,
                                     float* HWY_RESTRICT acc_a, const float* HWY_RESTRICT max_b, const float* HWY_RESTRICT sum_b,
                                     const float* HWY_RESTRICT acc_b) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  for (size_t r = 0; r < rows; ++r) {
    const auto factors = FactorsOf(d, hn::Set(d, max_a[r]), hn::Set(d, max_b[r]));
    max_a[r] = hn::GetLane(factors.max);
    sum_a[r] = hn::GetLane(Merge(factors, hn::Set(d, sum_a[r]), hn::Set(d, sum_b[r])));
    float* a = acc_a + r * v_dim;
    const float* b = acc_b + r * v_dim;
    size_t x = 0;
    for (; x + N <= v_dim; x += N) hn::StoreU(Merge(factors, hn::LoadU(d, a + x), hn::LoadU(d, b + x)), d, a + x);
    for (; x < v_dim; ++x) a[x] = hn::GetLane(Merge(factors, hn::Set(d, a[x]), hn::Set(d, b[x])));
  }
}

static void EmptyStates(size_t rows, size_t v_dim, float* max, float* sum, float* acc) {
  for (size_t r = 0; r < rows; ++r) {
    max[r] = kNoMax;
    sum[r] = 0.0f;
  }
  for (size_t i = 0; i < rows * v_dim; ++i) acc[i] = 0.0f;
}

// Row states: empty, or an earlier run's.
static void StartRowStates(const Task& task, FewScratch& s) {
  const int64_t rows = task.row_end - task.row_begin;
  EmptyStates(static_cast<size_t>(rows), static_cast<size_t>(task.v_dim), s.row_max, s.row_sum, s.row_acc);
  if (!task.state_in.given()) return;
  const ConstStateTensors& in = task.state_in;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = task.row_begin + r;
    s.row_max[r] = static_cast<const float*>(in.max.data)[RowOffset(in.max, row, task.group_size)];
    s.row_sum[r] = static_cast<const float*>(in.sum.data)[RowOffset(in.sum, row, task.group_size)];
    const float* from = static_cast<const float*>(in.acc.data) + RowOffset(in.acc, row, task.group_size);
    for (int64_t x = 0; x < task.v_dim; ++x) s.row_acc[r * task.v_dim + x] = from[x * in.acc.dim_stride];
  }
}

template <class Op>
HWY_INLINE void StoreRow(const ResultTensor& to, int64_t row, int64_t group_size, int64_t v_dim, const float* HWY_RESTRICT from,
                         const Op& op) {
  const hn::ScalableTag<float> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  float* out = static_cast<float*>(to.data) + RowOffset(to, row, group_size);
  int64_t x = 0;
  if (to.dim_stride == 1) {
    for (; x + N <= v_dim; x += N) hn::StoreU(op(hn::LoadU(d, from + x)), d, out + x);
  }
  for (; x < v_dim; ++x) out[x * to.dim_stride] = hn::GetLane(op(hn::Set(d, from[x])));
}

// out, lse and state of the task's rows from their final states: the forms of rows_io-inl.h's StoreResults.
static HWY_NOINLINE void StoreFewResults(const Task& task, const FewScratch& s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V zero = hn::Zero(d);
  for (int64_t r = 0; r < task.row_end - task.row_begin; ++r) {
    const int64_t row = task.row_begin + r;
    const V sum = hn::Set(d, s.row_sum[r]);
    const V max = hn::Set(d, s.row_max[r]);
    const float* acc = s.row_acc + r * task.v_dim;
    const auto canonical = [&](V v) HWY_ATTR { return CanonicalNaN(d, hn::Add(v, zero)); };
    if (task.state_out.given()) {
      const V state_max = hn::IfThenElse(hn::IsNaN(sum), sum, max);
      float value = hn::GetLane(CanonicalNaN(d, state_max));
      static_cast<float*>(task.state_out.max.data)[RowOffset(task.state_out.max, row, task.group_size)] = value;
      value = hn::GetLane(canonical(sum));
      static_cast<float*>(task.state_out.sum.data)[RowOffset(task.state_out.sum, row, task.group_size)] = value;
      StoreRow(task.state_out.acc, row, task.group_size, task.v_dim, acc, canonical);
    }
    const bool empty = s.row_sum[r] == 0.0f;
    if (task.lse.data != nullptr) {
      const V lse = empty ? hn::Neg(hn::Inf(d)) : CanonicalNaN(d, LogSumExp(d, max, sum));
      static_cast<float*>(task.lse.data)[RowOffset(task.lse, row, task.group_size)] = hn::GetLane(lse);
    }
    if (task.out.data != nullptr) {
      const auto normalise = [&](V v) HWY_ATTR { return empty ? zero : CanonicalNaN(d, hn::Add(hn::Div(v, sum), zero)); };
      StoreRow(task.out, row, task.group_size, task.v_dim, acc, normalise);
    }
  }
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
    functions.score(s.q + row * task.qk_dim, static_cast<size_t>(task.qk_dim), k, static_cast<size_t>(n), prefetch_k, probs);
    bool edge = false;
    for (int64_t r = row; r < row + count; ++r) {
      const int64_t begin = ClampTo(visible.begin[r] - first_key, 0, n);
      const int64_t end = ClampTo(visible.end[r] - first_key, begin, n);
      edge = edge || begin > 0 || end < n;
      s.block_max[r] = ProbsOfRow(s.probs + r * kBlockKeys, n, begin, end);
    }
    // A hidden key's prob is 0, which hides its value unless that is NaN or infinite: then each row takes its visible keys alone.
    const bool together = !edge || AllFiniteRows(v, n, v_dim);
    if (together) {
      functions.value(probs, v, v_dim, 0, static_cast<size_t>(n), prefetch_v, s.block_acc + row * task.v_dim, s.block_sum + row);
    } else {
      for (int64_t r = row; r < row + count; ++r) {
        const int64_t begin = ClampTo(visible.begin[r] - first_key, 0, n);
        const int64_t end = ClampTo(visible.end[r] - first_key, begin, n);
        ValueFew<1>(s.probs + r * kBlockKeys, v, v_dim, static_cast<size_t>(begin), static_cast<size_t>(end), prefetch_v,
                    s.block_acc + r * task.v_dim, s.block_sum + r);
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

// Addresses run on from keys to values to the next block's keys, so that prefetch looks ahead in the order of reading. Keys are filled
// up to whole vectors with the last one; the end of the list repeats.
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

HWY_INLINE void DeliverStates(size_t rows, size_t v_dim, const float* max, const float* sum, const float* acc, float* state) {
  std::memcpy(state, max, rows * sizeof(float));
  std::memcpy(state + rows, sum, rows * sizeof(float));
  std::memcpy(state + 2 * rows, acc, rows * v_dim * sizeof(float));
}

void KeysInLanes(const Task& task) {
  const int64_t rows = task.row_end - task.row_begin;
  const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task.v_dim);
  FewScratch s = CarveFewScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, rows);
  const FewVisible visible = VisibleOf(task);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = static_cast<const float*>(task.q.data) + RowOffset(task.q, task.row_begin + r, task.group_size);
    for (int64_t c = 0; c < task.qk_dim; ++c) s.q[r * task.qk_dim + c] = from[c * task.q.dim_stride] * task.rules->factor;
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

void MergePieces(const Task& task, int64_t first, int64_t count) {
  const int64_t rows = task.row_end - task.row_begin;
  const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task.v_dim);
  FewScratch s = CarveFewScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, rows);
  StartRowStates(task, s);
  EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);
  constexpr int64_t kBlocksOfSpan = kSpanKeys / kBlockKeys;
  for (int64_t i = 0; i < count; ++i) {
    const float* state = task.states + i * piece_state_size(rows, task.v_dim);
    const bool blocks = task.deliver == Deliver::kBlocks;
    MergeStates(few, v_dim, blocks ? s.span_max : s.row_max, blocks ? s.span_sum : s.row_sum, blocks ? s.span_acc : s.row_acc, state,
                state + few, state + 2 * few);
    if (blocks && (i + 1 == count || (first + i + 1) % kBlocksOfSpan == 0)) {
      MergeStates(few, v_dim, s.row_max, s.row_sum, s.row_acc, s.span_max, s.span_sum, s.span_acc);
      EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);
    }
  }
  StoreFewResults(task, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
