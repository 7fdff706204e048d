// Both kernels in native_bf16 arithmetic, on the targets that have the pair dot.

#include <cstddef>
#include <cstdint>

#include "src/kernels/kernel_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/kernels_native.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "src/kernels/native_few-inl.h"
#include "src/kernels/native_rows-inl.h"

// clang refuses a region for a target in which nothing is declared.
#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

void NativeRowsInLanes(const Task& task) {
  NoTail none;
  AttendRows<NativeTiles>(task, none);
}

FewLoops FewLoopsNative() {
  FewLoops loops = {};
  FillPairLoops(loops);
  return loops;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16
