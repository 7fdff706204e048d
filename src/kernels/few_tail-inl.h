// The last rows of a rows-in-lanes task, where they would not fill a vector: keys-in-lanes takes them, on
// each block of keys that the tiles have just brought into the cache. Same bits, less work (docs/PERFORMANCE.md).

#if defined(LANEWISE_FEW_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_TAIL_INL_H_
#undef LANEWISE_FEW_TAIL_INL_H_
#else
#define LANEWISE_FEW_TAIL_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "src/kernels/few_block-inl.h"
#include "src/kernels/few_loops-inl.h"
#include "src/kernels/few_states-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

// Up to this many rows, one pass, cost less than a vector of rows. 8 lanes gain little and 4 nothing.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline constexpr int64_t kMaxTailRows = kFewRows;
#else
inline constexpr int64_t kMaxTailRows = 0;
#endif

HWY_INLINE int64_t TailRowsOf(const Task& task) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t rows = task.row_end - task.row_begin;
  const int64_t tail = rows % lanes;
  return rows > lanes && tail <= kMaxTailRows && task.rules->plain() ? tail : 0;
}

class FewTail {
 public:
  FewTail(const Task& whole, int64_t tail_rows, char* scratch)
      : rows(tail_rows), all_rows_(whole.row_end - whole.row_begin), task_(whole) {
    task_.row_begin = whole.row_end - tail_rows;
    scratch_ = CarveFewScratch(scratch, task_.qk_dim, task_.v_dim, rows, false);
    visible_ = VisibleOf(task_);
    any_begin = visible_.any_begin;
    any_end = visible_.any_end;
    LoadFewQueries(task_, scratch_.q);
    StartRowStates(task_, scratch_);
    EmptySpan();
    // Blocks come as the tiles read them.
    task_.k.type = task_.v.type = LW_TYPE_F32;
    task_.k.dim_stride = task_.v.dim_stride = 1;
  }

  void Block(const KeyBlock& k, const KeyBlock& v, int64_t block_row, int64_t row, int64_t block_end) {
    const int64_t begin = HWY_MAX(row, any_begin), end = HWY_MIN(block_end, any_end);
    if (begin >= end) return;
    constexpr int64_t kWhole = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
    const int64_t n = end - begin;
    const int64_t whole = (n + kWhole - 1) / kWhole * kWhole;
    const void** const keys = scratch_.addresses;
    const void** const values = keys + whole;
    for (int64_t j = 0; j < n; ++j) keys[j] = k.data + (begin - block_row + j) * k.stride;
    for (int64_t j = n; j < whole; ++j) keys[j] = keys[n - 1];
    for (int64_t j = 0; j < n; ++j) values[j] = v.data + (begin - block_row + j) * v.stride;
    FewBlockState({task_, visible_, begin, n, {keys, values, 0}, rows, kBlockKeys, true}, scratch_);
    MergeStates(static_cast<size_t>(rows), static_cast<size_t>(task_.v_dim), scratch_.span_max, scratch_.span_sum,
                scratch_.span_acc, scratch_.block_max, scratch_.block_sum, scratch_.block_acc);
  }

  // state: of all the task's rows, to be delivered; nullptr: the row state takes the span's.
  void FinishSpan(float* state) {
    const size_t few = static_cast<size_t>(rows), v_dim = static_cast<size_t>(task_.v_dim);
    if (state == nullptr) {
      MergeStates(few, v_dim, scratch_.row_max, scratch_.row_sum, scratch_.row_acc, scratch_.span_max,
                  scratch_.span_sum, scratch_.span_acc);
    } else {
      const size_t all = static_cast<size_t>(all_rows_);
      std::memcpy(state + all - few, scratch_.span_max, few * sizeof(float));
      std::memcpy(state + 2 * all - few, scratch_.span_sum, few * sizeof(float));
      std::memcpy(state + 2 * all + (all - few) * v_dim, scratch_.span_acc, few * v_dim * sizeof(float));
    }
    EmptySpan();
  }

  void StoreResults() { StoreFewResults(task_, scratch_); }

  const int64_t rows;
  int64_t any_begin, any_end;  // key rows that some row of the tail may see

 private:
  void EmptySpan() {
    EmptyStates(static_cast<size_t>(rows), static_cast<size_t>(task_.v_dim), scratch_.span_max, scratch_.span_sum,
                scratch_.span_acc);
  }

  const int64_t all_rows_;
  Task task_;
  FewVisible visible_;
  FewScratch scratch_;
};

size_t RowsScratchSize(int64_t qk_dim, int64_t v_dim, int64_t tiles, bool pack_k, bool pack_v) {
  return CarveRowsScratch(nullptr, qk_dim, v_dim, tiles, pack_k, pack_v, nullptr).size +
         (kMaxTailRows > 0 ? CarveFewScratch(nullptr, qk_dim, v_dim, kMaxTailRows, false).size : 0);
}

void RowsInLanes(const Task& task) {
  const int64_t tail_rows = TailRowsOf(task);
  if (tail_rows == 0) {
    NoTail none;
    AttendRows<CanonicalTiles>(task, none);
    return;
  }
  const int64_t tiles = TilesOf(task.row_end - task.row_begin - tail_rows);
  const size_t used = CarveRowsScratch(nullptr, task.qk_dim, task.v_dim, tiles, task.pack_k, task.pack_v, nullptr).size;
  FewTail tail(task, tail_rows, static_cast<char*>(task.scratch) + used);
  AttendRows<CanonicalTiles>(task, tail);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
