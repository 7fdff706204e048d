// Edges of rows-in-lanes: caller's tensors <-> scratch. Queries in (transposed, times factor), blocks of K or V in
// (packed, widened), states in and out, results out (rounded). Any strides; unit dim strides take the vector path.

#if defined(LANEWISE_ROWS_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_ROWS_IO_INL_H_
#undef LANEWISE_ROWS_IO_INL_H_
#else
#define LANEWISE_ROWS_IO_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/softmax_state-inl.h"
#include "src/kernels/tile_shapes-inl.h"
#include "src/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr size_t kMaxLanes = kMaxVectors * hn::MaxLanes(hn::ScalableTag<float>());

HWY_INLINE int64_t ClampTo(int64_t x, int64_t low, int64_t high) { return HWY_MAX(low, HWY_MIN(high, x)); }

// The next part of scratch; base = nullptr only adds up the size.
HWY_INLINE float* Carve(char* base, size_t& size, int64_t floats) {
  float* at = base == nullptr ? nullptr : reinterpret_cast<float*>(base + size);
  size += (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64;
  return at;
}

// A packed row is a whole number of vectors long and not a multiple of 4 KiB: tiles read 8 rows at once.
HWY_INLINE int64_t PackedStride(int64_t dim) {
  const int64_t stride = (dim + 15) / 16 * 16;
  return stride % 1024 == 0 ? stride + 16 : stride;
}

// First key row of the block that key row `row` lies in, at an absolute position of the key axis: maybe before row 0.
HWY_INLINE int64_t BlockBegin(const Task& task, int64_t row) {
  return (task.kv_start + row) / kBlockKeys * kBlockKeys - task.kv_start;
}

// Key row of that block's key 0 as kernels count them: row 0 where the block begins before it, or for pairs, whose key 0 is
// even on the key axis, the one before.
HWY_INLINE int64_t BlockRow(const Task& task, int64_t row) {
  const int64_t first = BlockBegin(task, row);
  return first >= 0 ? first : task.native_bf16 ? -(task.kv_start % 2) : 0;
}

// Offset in elements of row `row` (query row / group_size of head row % group_size) in a query-side tensor.
template <class Tensor>
HWY_INLINE int64_t RowOffset(const Tensor& t, int64_t row, int64_t group_size) {
  return row % group_size * t.head_stride + row / group_size * t.len_stride;
}

// q[c][r] = factor * query element c of row row_begin + r; lanes past `rows` repeat the last row, so that padding never
// makes a NaN, a denormal or an edge that the rows themselves do not have.
template <class T>
HWY_NOINLINE void LoadQueriesOf(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                float* HWY_RESTRICT q) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t N = hn::Lanes(d);
  const size_t lanes = vectors * N;
  const V factor = hn::Set(d, task.rules->factor);
  const T* row[kMaxLanes];
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t at = row_begin + HWY_MIN(static_cast<int64_t>(r), rows - 1);
    row[r] = static_cast<const T*>(task.q.data) + RowOffset(task.q, at, task.group_size);
  }
  const size_t qk_dim = static_cast<size_t>(task.qk_dim);
  size_t c = 0;
  if (task.q.dim_stride == 1) {
    for (; c + 4 <= qk_dim; c += 4) {
      for (size_t i = 0; i < vectors; ++i) {
        V v[4];
        LoadTransposed(d, row + i * N, c, v);
        HWY_UNROLL(4)
        for (size_t u = 0; u < 4; ++u) hn::Store(hn::Mul(v[u], factor), d, q + (c + u) * lanes + i * N);
      }
    }
  }
  for (; c < qk_dim; ++c) {
    for (size_t r = 0; r < lanes; ++r)
      q[c * lanes + r] = Widen(row[r][static_cast<int64_t>(c) * task.q.dim_stride]) * task.rules->factor;
  }
}
static HWY_INLINE void LoadQueries(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                   float* HWY_RESTRICT q) {
  WithElement(task.q.type,
              [&](auto element) HWY_ATTR { LoadQueriesOf<decltype(element)>(task, row_begin, rows, vectors, q); });
}

// Address of token `in_page` of page number `page` of the sequence.
HWY_INLINE const char* PagedRowBytes(const KeyTensor& t, int64_t page, int64_t in_page) {
  const int64_t offset = t.page_table[page * t.page_table_stride] * t.page_stride + in_page * t.len_stride;
  return static_cast<const char*>(t.data) + offset * storage_size(t.type);
}

// Address of key row `row` of a K or V tensor.
HWY_INLINE const char* KeyRowBytes(const KeyTensor& t, int64_t row) {
  if (t.page_table != nullptr) return PagedRowBytes(t, row / t.page_size, row % t.page_size);
  return static_cast<const char*>(t.data) + row * t.len_stride * storage_size(t.type);
}
template <class T>
HWY_INLINE const T* KeyRow(const KeyTensor& t, int64_t row) {
  return reinterpret_cast<const T*>(KeyRowBytes(t, row));
}

// packed[(row - begin) * stride + c] = element c of key row `row`, widened, begin <= row < end.
template <class T>
HWY_NOINLINE void PackKeysOf(const KeyTensor& t, int64_t dim, int64_t begin, int64_t end, float* HWY_RESTRICT packed,
                             int64_t stride) {
  const hn::ScalableTag<float> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  if (t.dim_stride == 1) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = KeyRow<T>(t, row);
      float* to = packed + (row - begin) * stride;
      int64_t c = 0;
      for (; c + N <= dim; c += N) hn::Store(LoadWide(d, from + c), d, to + c);
      for (; c < dim; ++c) to[c] = Widen(from[c]);
    }
  } else {
    // Usually a transposed cache, [dim, len]: runs of keys lie together, so go along them.
    constexpr int64_t kRun = 16;
    for (int64_t row = begin; row < end; row += kRun) {
      const int64_t run = HWY_MIN(kRun, end - row);
      const T* from[kRun];
      for (int64_t r = 0; r < run; ++r) from[r] = KeyRow<T>(t, row + r);
      for (int64_t c = 0; c < dim; ++c) {
        for (int64_t r = 0; r < run; ++r) packed[(row - begin + r) * stride + c] = Widen(from[r][c * t.dim_stride]);
      }
    }
  }
}
static HWY_INLINE void PackKeys(const KeyTensor& t, int64_t dim, int64_t begin, int64_t end, float* HWY_RESTRICT packed,
                                int64_t stride) {
  WithElement(t.type,
              [&](auto element) HWY_ATTR { PackKeysOf<decltype(element)>(t, dim, begin, end, packed, stride); });
}

// Empty states.
static HWY_INLINE void StartStates(const Task& task, size_t vectors, float* HWY_RESTRICT max, float* HWY_RESTRICT sum,
                                   float* HWY_RESTRICT acc) {
  const size_t lanes = vectors * hn::Lanes(hn::ScalableTag<float>());
  for (size_t r = 0; r < lanes; ++r) {
    max[r] = kNoMax;
    sum[r] = 0.0f;
  }
  for (size_t i = 0; i < static_cast<size_t>(task.v_dim) * lanes; ++i) acc[i] = 0.0f;
}

// An earlier run's states.
static inline HWY_NOINLINE void LoadStates(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                           float* HWY_RESTRICT max, float* HWY_RESTRICT sum, float* HWY_RESTRICT acc) {
  const size_t lanes = vectors * hn::Lanes(hn::ScalableTag<float>());
  const ConstStateTensors& in = task.state_in;
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t row = row_begin + HWY_MIN(static_cast<int64_t>(r), rows - 1);
    max[r] = static_cast<const float*>(in.max.data)[RowOffset(in.max, row, task.group_size)];
    sum[r] = static_cast<const float*>(in.sum.data)[RowOffset(in.sum, row, task.group_size)];
    const float* from = static_cast<const float*>(in.acc.data) + RowOffset(in.acc, row, task.group_size);
    for (int64_t x = 0; x < task.v_dim; ++x) acc[static_cast<size_t>(x) * lanes + r] = from[x * in.acc.dim_stride];
  }
}

// What becomes of accumulators on their way out. Called with a vector of rows, of which the first is row `first`.
struct AsTheyAre {
  template <class D, class V>
  HWY_INLINE V operator()(D, V v, size_t) const {
    return v;
  }
};
// As one more empty block would leave them: -0 becomes +0. NaN has one form.
struct AsStates {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V v, size_t) const {
    return CanonicalNaN(d, hn::Add(v, hn::Zero(d)));
  }
};
struct OverRowSums {
  const float* HWY_RESTRICT row_sum;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V v, size_t first) const {
    const V sum = hn::Load(d, row_sum + first);
    const V out = CanonicalNaN(d, hn::Add(hn::Div(v, sum), hn::Zero(d)));
    return hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), out);
  }
};

// to[row][x + u] = from[x + u][row] for a vector of rows and kDimsStored dims; 16-bit types are transposed as pairs.
// Divisions belong in here: they overlap with the transposition.
template <class T>
inline constexpr size_t kDimsStored = 16 / sizeof(T);
template <class Finish>
HWY_INLINE void StoreTransposedDims(const float* HWY_RESTRICT from, size_t lanes, size_t first, const Finish& finish,
                                    float* const* row, size_t x) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> v[4];
  HWY_UNROLL(4)
  for (size_t u = 0; u < 4; ++u) v[u] = finish(d, hn::Load(d, from + (x + u) * lanes + first), first);
  StoreTransposed(d, v, row + first, x);
}
template <class Finish, class T>
HWY_INLINE void StoreTransposedDims(const float* HWY_RESTRICT from, size_t lanes, size_t first, const Finish& finish,
                                    T* const* row, size_t x) {
  const hn::ScalableTag<float> d;
  float* pairs[hn::MaxLanes(d)];
  for (size_t r = 0; r < hn::MaxLanes(d); ++r) pairs[r] = reinterpret_cast<float*>(row[first + r] + x);
  hn::Vec<decltype(d)> v[4];
  HWY_UNROLL(4)
  for (size_t u = 0; u < 4; ++u) {
    const float* at = from + (x + 2 * u) * lanes + first;
    v[u] = RoundedPairs(d, finish(d, hn::Load(d, at), first), finish(d, hn::Load(d, at + lanes), first), row[0]);
  }
  StoreTransposed(d, v, pairs, 0);
}

// to[row][x] = finish(from[x][row]) for x < v_dim, rounded: each vector of rows is transposed on its way, or scattered
// where dims are strided. Lanes past `rows` are dropped.
template <class T, class Finish>
HWY_NOINLINE void StoreRowsOf(const ResultTensor& to, int64_t row_begin, int64_t rows, int64_t group_size,
                              size_t vectors, size_t v_dim, const float* HWY_RESTRICT from, const Finish& finish) {
  const hn::ScalableTag<float> d;
  constexpr size_t N = hn::MaxLanes(decltype(d)());
  const size_t lanes = vectors * N;
  T* row[kMaxLanes];
  for (size_t r = 0; r < lanes; ++r) {
    row[r] =
        static_cast<T*>(to.data) + RowOffset(to, row_begin + HWY_MIN(static_cast<int64_t>(r), rows - 1), group_size);
  }
  const size_t whole = static_cast<size_t>(rows) / N * N;  // rows in full vectors
  T rounded[N];
  size_t x = 0;
  if (to.dim_stride == 1) {
    constexpr size_t kDims = kDimsStored<T>;
    for (; x + kDims <= v_dim; x += kDims) {
      for (size_t r = 0; r < whole; r += N) StoreTransposedDims(from, lanes, r, finish, row, x);
      if (whole == static_cast<size_t>(rows)) continue;
      for (size_t u = 0; u < kDims; ++u) {
        StoreRounded(finish(d, hn::Load(d, from + (x + u) * lanes + whole), whole), d, rounded);
        for (size_t r = whole; r < static_cast<size_t>(rows); ++r) row[r][x + u] = rounded[r - whole];
      }
    }
  }
  for (; x < v_dim; ++x) {
    for (size_t first = 0; first < static_cast<size_t>(rows); first += N) {
      StoreRounded(finish(d, hn::Load(d, from + x * lanes + first), first), d, rounded);
      for (size_t r = first; r < HWY_MIN(first + N, static_cast<size_t>(rows)); ++r)
        row[r][static_cast<int64_t>(x) * to.dim_stride] = rounded[r - first];
    }
  }
}
template <class Finish = AsTheyAre>
HWY_INLINE void StoreRows(const ResultTensor& to, int64_t row_begin, int64_t rows, int64_t group_size, size_t vectors,
                          size_t v_dim, const float* HWY_RESTRICT from, const Finish& finish = Finish()) {
  WithElement(to.type, [&](auto element) HWY_ATTR {
    StoreRowsOf<decltype(element)>(to, row_begin, rows, group_size, vectors, v_dim, from, finish);
  });
}

// Merges the rows' sinks into their final states. `spare`: scratch of `vectors` vectors.
static inline HWY_NOINLINE void AddSinks(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                         float* HWY_RESTRICT max, float* HWY_RESTRICT sum, float* HWY_RESTRICT acc,
                                         float* HWY_RESTRICT spare) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const size_t N = hn::Lanes(d);
  const size_t lanes = vectors * N;
  for (size_t r = 0; r < lanes; ++r) {
    const int64_t row = row_begin + HWY_MIN(static_cast<int64_t>(r), rows - 1);
    spare[r] = Sink2(task.sinks[row % task.group_size]);
  }
  for (size_t r = 0; r < lanes; r += N) {
    const SinkState<V> sink = SinkOf(d, hn::Load(d, spare + r));
    const MergeFactors<V> factors = FactorsOf(d, hn::Load(d, max + r), sink.max);
    hn::Store(factors.max, d, max + r);
    hn::Store(Merge(factors, hn::Load(d, sum + r), sink.sum), d, sum + r);
    for (int64_t x = 0; x < task.v_dim; ++x) {
      float* at = acc + static_cast<size_t>(x) * lanes + r;
      hn::Store(Merge(factors, hn::Load(d, at), hn::Zero(d)), d, at);
    }
  }
}

// out, lse and state of one tile from its final state. `spare`: scratch of at least 256 rows of lanes.
static inline HWY_NOINLINE void StoreResults(const Task& task, int64_t row_begin, int64_t rows, size_t vectors,
                                             float* HWY_RESTRICT max, float* HWY_RESTRICT sum, float* HWY_RESTRICT acc,
                                             float* HWY_RESTRICT spare) {
  const hn::ScalableTag<float> d;
  const size_t N = hn::Lanes(d);
  const size_t lanes = vectors * N;
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  const auto zero = hn::Zero(d);
  if (task.state_out.given()) {
    // A row that is NaN has one form: all NaN. -0 becomes +0, as one more empty block would make it.
    for (size_t r = 0; r < lanes; r += N) {
      const auto row_sum = hn::Load(d, sum + r);
      const auto row_max = hn::IfThenElse(hn::IsNaN(row_sum), row_sum, hn::Load(d, max + r));
      hn::Store(CanonicalNaN(d, hn::Add(row_max, zero)), d, spare + r);
      hn::Store(CanonicalNaN(d, hn::Add(row_sum, zero)), d, spare + lanes + r);
    }
    StoreRows(task.state_out.max, row_begin, rows, task.group_size, vectors, 1, spare);
    StoreRows(task.state_out.sum, row_begin, rows, task.group_size, vectors, 1, spare + lanes);
    StoreRows(task.state_out.acc, row_begin, rows, task.group_size, vectors, v_dim, acc, AsStates());
  }
  if (task.sinks != nullptr) AddSinks(task, row_begin, rows, vectors, max, sum, acc, spare);
  if (task.lse.data != nullptr) {
    for (size_t r = 0; r < lanes; r += N) {
      const auto row_sum = hn::Load(d, sum + r);
      const auto lse = CanonicalNaN(d, LogSumExp(d, hn::Load(d, max + r), row_sum));
      hn::Store(hn::IfThenElse(hn::Eq(row_sum, zero), hn::Neg(hn::Inf(d)), lse), d, spare + r);
    }
    StoreRows(task.lse, row_begin, rows, task.group_size, vectors, 1, spare);
  }
  if (task.out.data != nullptr)
    StoreRows(task.out, row_begin, rows, task.group_size, vectors, v_dim, acc, OverRowSums{sum});
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
