// Random valid problems: every rule with every storage, type and layout, as a list of numbers that can be printed and
// made smaller.
//
// A problem is right where, on every target, both kernels and any number of threads give the same bits; on targets with
// FMA those of the canonical arithmetic in scalar code (tests/support/canonical.hpp); and everywhere numbers within the
// bounds of the reference.
#pragma once

#include <array>
#include <string>

#include "draw.hpp"
#include "support/case.hpp"

namespace lanewise::test {

// What a problem is made of. 0 is the plainest choice of each, but for the sizes.
enum Field {
  kBatch,
  kKvHeads,
  kGroup,
  kQLen,
  kKvLen,
  kQkDim,
  kVDim,
  kQType,  // 0 f32, 1 bf16, 2 f16
  kKvType,
  kOutType,
  kNative,
  kQLayout,  // of the enumeration Layout
  kKLayout,
  kVLayout,
  kOutLayout,
  kRaggedQ,
  kRaggedKv,
  kPageSize,
  kQLengths,   // 1: sequences of different lengths
  kKvLengths,  // 1: sequences of different lengths
  kCapacity,   // 1: the plan is made for more
  kNoLse,
  kState,      // 1: the state is asked for too
  kContinued,  // 1: keys behind 4096 continue from a run over those before
  kScale,
  kAmplitude,
  kContent,  // 1: NaN, infinities, denormals, huge numbers among the inputs
  kCausal,
  kWindow,  // 1: left, 2: right, 3: both
  kWindowLeft,
  kWindowRight,
  kPositions,  // 1: q_offset, 2: q_offsets, 3: q_positions
  kKvStarts,
  kPrefix,
  kSoftcap,
  kAlibi,  // 1: a slope a head, 2: a slope a sequence and head
  kMask,   // 1: bool, 2: bits, 3: bits over the last keys
  kMaskAxes,
  kBias,  // 1: f32, 2: bf16, 3: f16
  kBiasAxes,
  kTiles,  // 1: a block-sparse mask
  kSinks,
  kThreads,
  kRunner,
  kStream,  // of the generator of docs/RELIABILITY.md
  kFields
};

struct FuzzProblem {
  std::array<int64_t, kFields> field = {};
  int64_t operator[](Field f) const { return field[f]; }
};

FuzzProblem draw_problem(Draw& draw);
Case case_of(const FuzzProblem& problem);
// "batch=2 kv_heads=1 ..." of what is not 0.
std::string describe(const FuzzProblem& problem);
FuzzProblem parse_problem(const std::string& description);
// Empty, or what is wrong and on which target.
std::string check_problem(const FuzzProblem& problem);
// The smallest problem found that is still wrong.
FuzzProblem shrink(FuzzProblem problem);

}  // namespace lanewise::test
