// Register loops of keys-in-lanes on bfloat16 storage.

#include <cstddef>
#include <cstdint>

#include "src/kernels/kernel_table.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/kernels/few_loops_bf16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "src/kernels/few_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

FewLoops FewLoopsBf16() { return FewLoopsOf<Bf16>(); }

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();
