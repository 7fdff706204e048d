// Addresses of key and value rows, as the register loops of keys-in-lanes take them: dense, strided and paged alike.

#if defined(LANEWISE_FEW_ADDRESSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_ADDRESSES_INL_H_
#undef LANEWISE_FEW_ADDRESSES_INL_H_
#else
#define LANEWISE_FEW_ADDRESSES_INL_H_
#endif

#include <hwy/highway.h>

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

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
