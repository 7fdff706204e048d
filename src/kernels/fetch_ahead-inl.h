// What the register tiles of rows-in-lanes fetch while they compute.

#if defined(LANEWISE_FETCH_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_FETCH_AHEAD_INL_H_
#undef LANEWISE_FETCH_AHEAD_INL_H_
#else
#define LANEWISE_FETCH_AHEAD_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

// At most so many cache lines in one step: about what memory delivers during one score tile.
inline constexpr int64_t kMostLinesAStep = 48;

// Dims of a score tile, or keys of a value tile, between two fetches of rows.
inline constexpr int64_t kFetchSteps = 16;

// Rows of K or V, fetched while tiles compute something else.
struct RowsAhead {
  const char* const* row = nullptr;
  const char* const* end = nullptr;
  int64_t bytes = 0;  // of a row
  int64_t lines_a_step = 0;
};

// Keeps memory busy while the tiles compute, never all at once: with what the next task reads (one step a score tile),
// and with rows of K and V that this task reads next (one step in kFetchSteps).
struct Fetcher {
  FetchAhead left[3];
  int64_t lines_a_step = 0;
  RowsAhead rows;
  int64_t byte = 0;  // of the row that is next

  HWY_INLINE void Step() {
    int64_t lines = lines_a_step;
    for (FetchAhead& region : left) {
      for (; lines > 0 && region.lines > 0; --lines, --region.lines, region.data += 64)
        __builtin_prefetch(region.data, 0, 2);
    }
  }
  HWY_INLINE void Begin(const RowsAhead& ahead) {
    rows = ahead;
    byte = 0;
  }
  HWY_INLINE void RowStep() {
    for (int64_t lines = rows.lines_a_step; lines > 0 && rows.row < rows.end; --lines) {
      __builtin_prefetch(*rows.row + byte, 0, 2);
      byte += 64;
      if (byte < rows.bytes) continue;
      byte = 0;
      ++rows.row;
    }
  }
  // Where nothing is fetched all n steps are one.
  HWY_INLINE int64_t RowSteps(int64_t n) const { return rows.lines_a_step > 0 ? kFetchSteps : n; }
};

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
