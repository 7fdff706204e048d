// Shapes of the register tiles of rows-in-lanes on each target: accumulators (vectors x keys) fill the register file
// less the vectors of one operand and a broadcast.

#if defined(LANEWISE_TILE_SHAPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_TILE_SHAPES_INL_H_
#undef LANEWISE_TILE_SHAPES_INL_H_
#else
#define LANEWISE_TILE_SHAPES_INL_H_
#endif

#include <hwy/highway.h>

// No HWY_BEFORE_NAMESPACE: clang refuses a region without functions.
namespace lanewise {
namespace HWY_NAMESPACE {

// Keys of a score tile, and dims of a value tile, of 1, 2, ... vectors.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// 32 registers of 16 lanes. 3 x 8 for long rows, 2 x 12 where 3 vectors would be padding (docs/PERFORMANCE.md).
#if HWY_COMPILER_CLANG
inline constexpr size_t kTileKeys[] = {16, 8, 8};  // clang spills 2 x 12
#else
inline constexpr size_t kTileKeys[] = {16, 12, 8};
#endif
#elif HWY_ARCH_ARM_A64
// 32 registers of 4 lanes.
inline constexpr size_t kTileKeys[] = {16, 12, 8, 6};
#elif !HWY_NATIVE_FMA
// 16 registers, of which a product takes one more where multiply and add are two instructions.
inline constexpr size_t kTileKeys[] = {8, 5, 3};
#else
// 16 registers.
inline constexpr size_t kTileKeys[] = {8, 6, 4};
#endif

// Vectors of a full tile.
inline constexpr size_t kMaxVectors = sizeof(kTileKeys) / sizeof(kTileKeys[0]);
static_assert(kMaxVectors == 3 || kMaxVectors == 4, "functions of 1, 2, 3 and kMaxVectors vectors are compiled");

template <size_t kVectors>
struct TileShape {
  static constexpr size_t kKeys = kTileKeys[kVectors - 1];
};

}  // namespace HWY_NAMESPACE
}  // namespace lanewise

#endif  // per-target guard
