// The register loops of keys-in-lanes as function pointers: what the kernel sees of few_tiles-inl.h, which is
// compiled in one small file a storage type.

#if defined(LANEWISE_FEW_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FEW_LOOPS_INL_H_
#undef LANEWISE_FEW_LOOPS_INL_H_
#else
#define LANEWISE_FEW_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

// Rows of one pass of the register loops. More rows, which only a plan that was changed brings (benches and tests),
// take several passes over a block, which is then in cache; each transposes keys again, as much work as five rows'
// products.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline constexpr size_t kMaxPassRows = 14;
#elif HWY_ARCH_ARM_A64
inline constexpr size_t kMaxPassRows = 8;
#else
inline constexpr size_t kMaxPassRows = 4;
#endif

// Up to this many rows keys-in-lanes is the faster kernel, in and out of cache (docs/PERFORMANCE.md; not measured on
// Arm).
inline constexpr int64_t kFewRows = static_cast<int64_t>(kMaxPassRows);
static_assert(kFewRows <= kMaxFewRows, "a plan may choose keys-in-lanes for as many");

// Memory and arithmetic overlap only by prefetch, spread evenly over the work: while a block's keys are scored its
// values are fetched into the second cache, and while its values are added up the next block's keys are
// (docs/PERFORMANCE.md). A few rows ahead of use, rows are fetched into the first.
inline constexpr size_t kNearRows = 16;

// What a loop fetches while it works on its own rows.
struct PrefetchRows {
  const void* const* far;   // what comes later, as many rows as the loop has keys
  size_t far_lines;         // cache lines of one of them; 0: nothing
  const void* const* near;  // what comes next, as many rows, near_offset bytes into each
  size_t near_offset;
  size_t near_lines;
};

// Floats from one key's probs to the next key's: those of a pass's rows lie together, filled up to whole vectors.
constexpr size_t ProbStride(size_t rows) { return rows == 1 ? 1 : rows <= 4 ? 4 : rows <= 8 ? 8 : 16; }

// Scores of n keys for `rows` rows, q [elements][rows]; values and row sums of keys [begin, end), probs
// [keys][ProbStride(rows)], added. Indexed by rows, 1 ... kMaxPassRows. offset: bytes from the addresses in the list to
// this kv head's rows.
using ScoreFewFunction = void (*)(const float* q, size_t qk_dim, const void* const* keys, size_t offset, size_t n,
                                  const PrefetchRows& prefetch, float* scores);
using ValueFewFunction = void (*)(const float* probs, const void* const* values, size_t offset, size_t v_dim,
                                  size_t begin, size_t end, const PrefetchRows& prefetch, float* acc, float* sum);
// How rows of one kv head are cut into passes.
struct Passes {
  int64_t rows, count;

  explicit Passes(int64_t rows_)
      : rows(rows_), count((rows_ + static_cast<int64_t>(kMaxPassRows) - 1) / static_cast<int64_t>(kMaxPassRows)) {}
  int64_t Begin(int64_t pass) const { return rows * pass / count; }
  int64_t Rows(int64_t pass) const { return Begin(pass + 1) - Begin(pass); }
};

struct FewLoops {
  ScoreFewFunction score[kMaxPassRows + 1];
  ValueFewFunction value[kMaxPassRows + 1];
};

FewLoops FewLoopsF32();
FewLoops FewLoopsBf16();
FewLoops FewLoopsF16();
#if HWY_NATIVE_DOT_BF16
FewLoops FewLoopsNative();
#endif

HWY_INLINE FewLoops FewLoopsFor(int32_t type) {
  switch (type) {
    case LW_TYPE_BF16:
      return FewLoopsBf16();
    case LW_TYPE_F16:
      return FewLoopsF16();
    default:
      return FewLoopsF32();
  }
}

// Those of the task's arithmetic.
HWY_INLINE FewLoops LoopsFor(const Task& task, int32_t type) {
#if HWY_NATIVE_DOT_BF16
  if (task.native_bf16) return FewLoopsNative();
#endif
  (void)task;
  return FewLoopsFor(type);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
