// Addresses of key and value rows, as the register loops of keys-in-lanes take them: dense, strided and paged alike;
// and whether what lies there is finite.

#if defined(LANEWISE_FEW_ADDRESSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_ADDRESSES_INL_H_
#undef LANEWISE_FEW_ADDRESSES_INL_H_
#else
#define LANEWISE_FEW_ADDRESSES_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[i] = address of key row begin + i, i < end - begin.
static inline void FillAddresses(const KeyTensor& t, int64_t begin, int64_t end, const void** to) {
  const int64_t step = t.len_stride * storage_size(t.type);
  if (t.page_table == nullptr) {
    const char* row = KeyRowBytes(t, begin);
    for (int64_t j = begin; j < end; ++j, row += step) *to++ = row;
    return;
  }
  // Page by page; a division a row would take 6 % of the time where pages are small.
  int64_t page = begin / t.page_size;
  int64_t in_page = begin % t.page_size;
  for (int64_t j = begin; j < end; ++page, in_page = 0) {
    const int64_t page_end = HWY_MIN(end, j + t.page_size - in_page);
    const char* row = PagedRowBytes(t, page, in_page);
    for (; j < page_end; ++j, row += step) *to++ = row;
  }
}

// Rows whose dims are strided are copied, and widened, first.
HWY_INLINE bool IsPacked(const KeyTensor& t) { return t.dim_stride != 1; }
HWY_INLINE int32_t TypeAsRead(const Task& task, const KeyTensor& t) {
  return IsPacked(t) && !task.native_bf16 ? int32_t{LW_TYPE_F32} : t.type;
}
HWY_INLINE size_t LinesOf(int32_t type, int64_t dim) {
  return static_cast<size_t>((dim * storage_size(type) + 63) / 64);
}

// Addresses of rows begin ... end - 1, where they are or copied into `packed`: widened, or as they are for pairs.
static inline void RowsOf(const Task& task, const KeyTensor& t, int64_t dim, float* packed, int64_t begin, int64_t end,
                          const void** to) {
  if (!IsPacked(t)) return FillAddresses(t, begin, end, to);
  const int64_t stride = PackedStride(dim);
  if (task.native_bf16) {
    for (int64_t j = begin; j < end; ++j) {
      const Bf16* from = KeyRow<Bf16>(t, j);
      Bf16* row = reinterpret_cast<Bf16*>(packed + (j - begin) * stride);
      for (int64_t c = 0; c < dim; ++c) row[c] = from[c * t.dim_stride];
    }
  } else {
    PackKeys(t, dim, begin, end, packed, stride);
  }
  for (int64_t j = 0; j < end - begin; ++j) to[j] = packed + j * stride;
}

// The list behind n values, of which `ahead` addresses are there, repeats its last one as far as loops over n keys look.
static inline void RepeatLast(int64_t n, int64_t ahead, const void** next) {
  for (int64_t i = ahead; i < n + kAddressSlack; ++i) next[i] = next[ahead - 1];
}

// Addresses of the keys that a hint names; returns how many.
static inline int64_t FillNextKeys(const NextKeys& next, const void** to) {
  if (next.begin >= next.end) return 0;
  FillAddresses(next.k, next.begin, next.end, to);
  return next.end - next.begin;
}

// Addresses of one block's keys, values behind them, and `next` keys that are read after this block behind those.
struct BlockAddresses {
  const void** k;
  const void** v;
  int64_t next;
};

// Addresses run on from keys to values to the next block's keys (of the next task behind the last), so that prefetch
// looks ahead in the order of reading. Keys are filled up to whole vectors with the last one; the end of the list
// repeats. lead, trail: zero rows before and behind the keys and values, which make pairs whole.
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
  const NextKeys in_task = {task.k, next_begin, next_end};
  const int64_t ahead = IsPacked(task.k) ? 0 : FillNextKeys(next_begin < next_end ? in_task : task.next_keys, next);
  RepeatLast(n, ahead, next);
  return {at, v, ahead};
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
  return WithElement(type,
                     [&](auto element) HWY_ATTR { return AllFiniteRowsOf<decltype(element)>(v, offset, n, v_dim); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
