// Which vectors of a row tile take part in which keys of a block: a vector is left out where none of its lanes sees a
// key. KeyRange: all in the same; Strips: causal or window bounds cross the tile; KeyRuns: any. ForEachPart goes over
// the parts of each.

#if defined(LANEWISE_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_STRIPS_INL_H_
#undef LANEWISE_STRIPS_INL_H_
#else
#define LANEWISE_STRIPS_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/kernel_table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {

// Vector i of a tile takes part in keys [begin[i], end[i]) of a block; both never fall with i, and all vectors share
// [begin[last], end[0]), which may be empty but not reversed. So a block is cut into keys of strips 0, 0-1, ..., all,
// ..., last.
template <size_t kVectors>
struct Strips {
  int64_t begin[kVectors];
  int64_t end[kVectors];
};

// Calls part(first strip, count of strips, key begin, key end) in key order; the two numbers of strips are compile-time
// constants.
template <size_t kVectors, size_t kAt = 1, class Part>
HWY_INLINE void ForEachHeadPart(const Strips<kVectors>& strips, Part&& part) {
  if constexpr (kAt < kVectors) {
    part.template operator()<0, kAt>(strips.begin[kAt - 1], strips.begin[kAt]);
    ForEachHeadPart<kVectors, kAt + 1>(strips, part);
  }
}
template <size_t kVectors, size_t kAt = 1, class Part>
HWY_INLINE void ForEachTailPart(const Strips<kVectors>& strips, Part&& part) {
  if constexpr (kAt < kVectors) {
    part.template operator()<kAt, kVectors - kAt>(strips.end[kAt - 1], strips.end[kAt]);
    ForEachTailPart<kVectors, kAt + 1>(strips, part);
  }
}

// All vectors take part in the same keys.
struct KeyRange {
  int64_t begin, end;
};

// Runs of keys, each of neighbouring vectors first ... first + count - 1, which include the tile's first or its last:
// the parts that Strips have, in any order.
struct KeyRuns {
  static constexpr int64_t kGroup = 8;  // vectors take part in whole groups of keys
  struct Run {
    int64_t begin, end;
    size_t first, vectors;
  };
  int64_t count = 0;
  Run run[kBlockKeys / kGroup];
};

template <size_t kVectors, size_t kCount = kVectors, class Part>
HWY_INLINE void TakeRun(const KeyRuns::Run& run, Part&& part) {
  if (run.vectors == kCount) {
    if (kCount == kVectors || run.first == 0) return part.template operator()<0, kCount>(run.begin, run.end);
    return part.template operator()<kVectors - kCount, kCount>(run.begin, run.end);
  }
  if constexpr (kCount > 1) TakeRun<kVectors, kCount - 1>(run, part);
}

template <size_t kVectors, class Part>
HWY_INLINE void ForEachPart(const KeyRange& keys, Part&& part) {
  part.template operator()<0, kVectors>(keys.begin, keys.end);
}
template <size_t kVectors, class Part>
HWY_INLINE void ForEachPart(const KeyRuns& runs, Part&& part) {
  for (int64_t n = 0; n < runs.count; ++n) TakeRun<kVectors>(runs.run[n], part);
}
template <size_t kVectors, class Part>
HWY_INLINE void ForEachPart(const Strips<kVectors>& strips, Part&& part) {
  ForEachHeadPart(strips, part);
  part.template operator()<0, kVectors>(strips.begin[kVectors - 1], strips.end[0]);
  ForEachTailPart(strips, part);
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
