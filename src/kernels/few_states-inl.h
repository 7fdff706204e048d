// Scratch, queries, states and results of a few rows, [row][dim]: the row-major counterpart of rows_io-inl.h. Merging,
// delivering and finishing are the same operations on the same values: same bits.

#if defined(LANEWISE_FEW_STATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_STATES_INL_H_
#undef LANEWISE_FEW_STATES_INL_H_
#else
#define LANEWISE_FEW_STATES_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/pair_dot-inl.h"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/softmax_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Offset in elements of row `row` of all the task's rows, those of its kv heads one after the other.
template <class Tensor>
HWY_INLINE int64_t FewRowOffset(const Tensor& t, const Task& task, int64_t row) {
  const int64_t rows = task.row_end - task.row_begin;
  return row / rows * task.group_size * t.head_stride + RowOffset(t, task.row_begin + row % rows, task.group_size);
}

// Query head of that row, counted from the first one of the task.
HWY_INLINE int64_t FewHead(const Task& task, int64_t row) {
  const int64_t rows = task.row_end - task.row_begin;
  return row / rows * task.group_size + (task.row_begin + row % rows) % task.group_size;
}

// Scratch of a task of `rows` rows, of all its kv heads.
struct FewScratch {
  float* q;          // [qk_dim][rows of the pass], pass after pass, times factor
  float* probs;      // [rows][256]: scores, then probs
  float* by_key;     // [256][ProbStride] of each pass of several rows
  float* block_acc;  // [rows][v_dim]
  float* span_acc;
  float* row_acc;
  float* block_sum;  // [rows], as the following
  float* block_max;
  float* span_sum;
  float* span_max;
  float* row_sum;
  float* row_max;
  const void** addresses;  // of rows in reading order: keys, values, the next block's keys, kAddressSlack more
  const void** seen;       // addresses of the values that one row sees, kAddressSlack more
  float* zero_row;         // [qk_dim or v_dim]: the partner of a bf16 pair that is not there
  const void** ahead;      // of the rows to fetch during a chunk of kChunkKeys keys of all kv heads
  float* packed_k;
  float* packed_v;
  size_t size;
};

// Keys of a chunk: what several kv heads, or several passes over rows, do together.
inline constexpr int64_t kChunkKeys = 16;

// ProbStride(rows) is at most so many times `rows`.
inline constexpr int64_t kMostLanesARow = 2;
static_assert(ProbStride(2) <= 2 * kMostLanesARow && ProbStride(5) <= 5 * kMostLanesARow &&
                  ProbStride(9) <= 9 * kMostLanesARow,
              "the least rows of each stride");

// Addresses past a block's that loops may look at: whole vectors, and prefetch ahead of them.
inline constexpr int64_t kAddressSlack = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()) + kNearRows);

static inline FewScratch CarveFewScratch(char* base, int64_t qk_dim, int64_t v_dim, int64_t rows, bool packs = true) {
  FewScratch s = {};
  s.q = Carve(base, s.size, rows * qk_dim);
  s.probs = Carve(base, s.size, rows * kBlockKeys);
  s.by_key = Carve(base, s.size, kMostLanesARow * HWY_MIN(rows, kMaxTogetherRows) * kBlockKeys);
  s.block_acc = Carve(base, s.size, rows * v_dim);
  s.span_acc = Carve(base, s.size, rows * v_dim);
  s.row_acc = Carve(base, s.size, rows * v_dim);
  for (float** at : {&s.block_sum, &s.block_max, &s.span_sum, &s.span_max, &s.row_sum, &s.row_max})
    *at = Carve(base, s.size, rows);
  s.addresses = reinterpret_cast<const void**>(Carve(base, s.size, 2 * (3 * kBlockKeys + kAddressSlack)));
  s.seen = reinterpret_cast<const void**>(Carve(base, s.size, 2 * (kBlockKeys + kAddressSlack)));
  s.zero_row = Carve(base, s.size, HWY_MAX(qk_dim, v_dim));
  s.ahead = reinterpret_cast<const void**>(Carve(base, s.size, 2 * kChunkKeys * kMaxTogetherRows));
  if (!packs) return s;
  // Only strided dims are packed, but which strides come is known only when the plan runs.
  s.packed_k = Carve(base, s.size, kBlockKeys * PackedStride(qk_dim));
  s.packed_v = Carve(base, s.size, kBlockKeys * PackedStride(v_dim));
  return s;
}

size_t KeysScratchSize(int64_t qk_dim, int64_t v_dim, int64_t rows) {
  return CarveFewScratch(nullptr, qk_dim, v_dim, rows).size;
}

// Elements of a row of q in scratch.
HWY_INLINE int64_t RowOfQ(const Task& task) { return task.native_bf16 ? PairsOf(task.qk_dim) : task.qk_dim; }

// Calls put(row of the task, where its element 0 goes, elements of a row apart) for the rows of each pass: q of a pass is
// [elements][rows of the pass].
template <class Put>
HWY_INLINE void ForEachFewQuery(const Task& task, float* HWY_RESTRICT q, const Put& put) {
  const Passes passes(task.row_end - task.row_begin);
  int64_t row = 0;
  for (int64_t head = 0; head < task.kv_heads; ++head) {
    for (int64_t pass = 0; pass < passes.count; ++pass) {
      const int64_t count = passes.Rows(pass);
      for (int64_t r = 0; r < count; ++r) put(row + r, q + row * RowOfQ(task) + r, count);
      row += count;
    }
  }
}
// factor * query elements.
template <class T>
HWY_INLINE void LoadFewQueriesOf(const Task& task, float* HWY_RESTRICT q) {
  ForEachFewQuery(task, q, [&](int64_t row, float* to, int64_t stride) HWY_ATTR {
    const T* from = static_cast<const T*>(task.q.data) + FewRowOffset(task.q, task, row);
    for (int64_t c = 0; c < task.qk_dim; ++c) to[c * stride] = Widen(from[c * task.q.dim_stride]) * task.rules->factor;
  });
}
// Pairs of dims as they are, for native_bf16.
static inline HWY_NOINLINE void LoadFewQueryPairs(const Task& task, float* HWY_RESTRICT q) {
  ForEachFewQuery(task, q, [&](int64_t row, float* to, int64_t stride) HWY_ATTR {
    const Bf16* from = static_cast<const Bf16*>(task.q.data) + FewRowOffset(task.q, task, row);
    for (int64_t c = 0; c < task.qk_dim; c += 2) {
      const Bf16 odd = c + 1 < task.qk_dim ? from[(c + 1) * task.q.dim_stride] : Bf16{0};
      to[c / 2 * stride] = PairOf(from[c * task.q.dim_stride], odd);
    }
  });
}
static inline HWY_NOINLINE void LoadFewQueries(const Task& task, float* HWY_RESTRICT q) {
  if (task.native_bf16) return LoadFewQueryPairs(task, q);
  WithElement(task.q.type, [&](auto element) HWY_ATTR { LoadFewQueriesOf<decltype(element)>(task, q); });
}

// merge(a, b) of the states of `rows` rows: max, sum [rows], acc [rows][v_dim]. a takes the result.
static inline HWY_NOINLINE void MergeStates(size_t rows, size_t v_dim, float* HWY_RESTRICT max_a,
                                            float* HWY_RESTRICT sum_a, float* HWY_RESTRICT acc_a,
                                            const float* HWY_RESTRICT max_b, const float* HWY_RESTRICT sum_b,
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

static inline void EmptyStates(size_t rows, size_t v_dim, float* max, float* sum, float* acc) {
  for (size_t r = 0; r < rows; ++r) {
    max[r] = kNoMax;
    sum[r] = 0.0f;
  }
  for (size_t i = 0; i < rows * v_dim; ++i) acc[i] = 0.0f;
}

// Row states: empty, or an earlier run's.
static inline void StartRowStates(const Task& task, FewScratch& s) {
  const int64_t rows = task_rows(task);
  EmptyStates(static_cast<size_t>(rows), static_cast<size_t>(task.v_dim), s.row_max, s.row_sum, s.row_acc);
  if (!task.state_in.given()) return;
  const ConstStateTensors& in = task.state_in;
  for (int64_t r = 0; r < rows; ++r) {
    s.row_max[r] = static_cast<const float*>(in.max.data)[FewRowOffset(in.max, task, r)];
    s.row_sum[r] = static_cast<const float*>(in.sum.data)[FewRowOffset(in.sum, task, r)];
    const float* from = static_cast<const float*>(in.acc.data) + FewRowOffset(in.acc, task, r);
    for (int64_t x = 0; x < task.v_dim; ++x) s.row_acc[r * task.v_dim + x] = from[x * in.acc.dim_stride];
  }
}

template <class T, class Op>
HWY_INLINE void StoreRowOf(const ResultTensor& to, int64_t offset, int64_t v_dim, const float* HWY_RESTRICT from,
                           const Op& op) {
  const hn::ScalableTag<float> d;
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(decltype(d)()));
  T* out = static_cast<T*>(to.data) + offset;
  int64_t x = 0;
  if (to.dim_stride == 1) {
    for (; x + N <= v_dim; x += N) StoreRounded(op(hn::LoadU(d, from + x)), d, out + x);
  }
  for (; x < v_dim; x += N) {
    const int64_t count = HWY_MIN(N, v_dim - x);
    T rounded[N];
    StoreRounded(op(hn::LoadN(d, from + x, static_cast<size_t>(count))), d, rounded);
    for (int64_t i = 0; i < count; ++i) out[(x + i) * to.dim_stride] = rounded[i];
  }
}
template <class Op>
HWY_INLINE void StoreRow(const ResultTensor& to, int64_t offset, int64_t v_dim, const float* HWY_RESTRICT from,
                         const Op& op) {
  WithElement(to.type, [&](auto element) HWY_ATTR { StoreRowOf<decltype(element)>(to, offset, v_dim, from, op); });
}

// out, lse and state of the task's rows from their final states: the forms of rows_io-inl.h's StoreResults.
static inline HWY_NOINLINE void StoreFewResults(const Task& task, const FewScratch& s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V zero = hn::Zero(d);
  for (int64_t r = 0; r < task_rows(task); ++r) {
    V sum = hn::Set(d, s.row_sum[r]);
    V max = hn::Set(d, s.row_max[r]);
    const float* acc = s.row_acc + r * task.v_dim;
    const auto canonical = [&](V v) HWY_ATTR { return CanonicalNaN(d, hn::Add(v, zero)); };
    if (task.state_out.given()) {
      const V state_max = hn::IfThenElse(hn::IsNaN(sum), sum, max);
      float value = hn::GetLane(canonical(state_max));
      static_cast<float*>(task.state_out.max.data)[FewRowOffset(task.state_out.max, task, r)] = value;
      value = hn::GetLane(canonical(sum));
      static_cast<float*>(task.state_out.sum.data)[FewRowOffset(task.state_out.sum, task, r)] = value;
      StoreRow(task.state_out.acc, FewRowOffset(task.state_out.acc, task, r), task.v_dim, acc, canonical);
    }
    if (task.sinks != nullptr) {  // one more span, after the state is out
      const SinkState<V> sink = SinkOf(d, hn::Set(d, Sink2(task.sinks[FewHead(task, r)])));
      const MergeFactors<V> factors = FactorsOf(d, max, sink.max);
      max = factors.max;
      sum = Merge(factors, sum, sink.sum);
      float* sunk = s.row_acc + r * task.v_dim;
      for (int64_t x = 0; x < task.v_dim; ++x) sunk[x] = hn::GetLane(Merge(factors, hn::Set(d, sunk[x]), zero));
    }
    const bool empty = hn::GetLane(sum) == 0.0f;
    if (task.lse.data != nullptr) {
      const V lse = empty ? hn::Neg(hn::Inf(d)) : CanonicalNaN(d, LogSumExp(d, max, sum));
      static_cast<float*>(task.lse.data)[FewRowOffset(task.lse, task, r)] = hn::GetLane(lse);
    }
    if (task.out.data != nullptr) {
      const auto normalise = [&](V v)
                                 HWY_ATTR { return empty ? zero : CanonicalNaN(d, hn::Add(hn::Div(v, sum), zero)); };
      StoreRow(task.out, FewRowOffset(task.out, task, r), task.v_dim, acc, normalise);
    }
  }
}

HWY_INLINE void DeliverStates(size_t rows, size_t v_dim, const float* max, const float* sum, const float* acc,
                              float* state) {
  std::memcpy(state, max, rows * sizeof(float));
  std::memcpy(state + rows, sum, rows * sizeof(float));
  std::memcpy(state + 2 * rows, acc, rows * v_dim * sizeof(float));
}

void MergePieces(const Task& task, int64_t first, int64_t count) {
  const int64_t rows = task_rows(task);
  const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task.v_dim);
  FewScratch s = CarveFewScratch(static_cast<char*>(task.scratch), task.qk_dim, task.v_dim, rows);
  StartRowStates(task, s);
  EmptyStates(few, v_dim, s.span_max, s.span_sum, s.span_acc);
  constexpr int64_t kBlocksOfSpan = kSpanKeys / kBlockKeys;
  for (int64_t i = 0; i < count; ++i) {
    const float* state = task.states + i * piece_state_size(rows, task.v_dim);
    const bool blocks = task.deliver == Deliver::kBlocks;
    MergeStates(few, v_dim, blocks ? s.span_max : s.row_max, blocks ? s.span_sum : s.row_sum,
                blocks ? s.span_acc : s.row_acc, state, state + few, state + 2 * few);
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
