// Register loops of keys-in-lanes on float32 storage.

#include <cstddef>
#include <cstdint>

#include "src/kernels/kernel_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/few_loops_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "src/kernels/few_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

FewLoops FewLoopsF32() { return FewLoopsOf<float>(); }

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
