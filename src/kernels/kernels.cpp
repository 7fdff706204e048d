// The kernels of each target as one table.

#include <cstddef>
#include <cstdint>

#include "src/kernels/kernel_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "src/kernels/convert_arrays-inl.h"
#include "src/kernels/few_tail-inl.h"
#include "src/kernels/keys_in_lanes-inl.h"
#include "src/kernels/merge_partials-inl.h"
#include "src/kernels/rows_in_lanes-inl.h"
#include "src/kernels/weight_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

#if HWY_NATIVE_DOT_BF16
void NativeRowsInLanes(const Task& task);  // kernels_native.cpp
#endif

KernelTable Table() {
  KernelTable table;
  table.lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  table.fma = HWY_NATIVE_FMA != 0;
  table.rows_max_vectors = static_cast<int64_t>(kMaxVectors);
  table.rows_tile_keys = static_cast<int64_t>(TileShape<kMaxVectors>::kKeys);
  table.few_rows = kFewRows;
  table.rows_scratch_size = &RowsScratchSize;
  table.keys_scratch_size = &KeysScratchSize;
  table.rows_in_lanes = &RowsInLanes;
#if HWY_NATIVE_DOT_BF16
  table.native_rows_in_lanes = &NativeRowsInLanes;
#endif
  table.keys_in_lanes = &KeysInLanes;
  table.merge_pieces = &MergePieces;
  table.merge_partials = &MergePartials;
  table.weights = &Weights;
  table.convert = &Convert;
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lanewise {
HWY_EXPORT(Table);

KernelTable kernels_for(int64_t target) {
#if HWY_TARGETS & (HWY_TARGETS - 1)
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Table)[chosen.GetIndex()]();
#else
  (void)target;  // the only one
  return HWY_STATIC_DISPATCH(Table)();
#endif
}

int64_t compiled_targets() { return HWY_TARGETS; }
}  // namespace lanewise
#endif  // HWY_ONCE
