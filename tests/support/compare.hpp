// Is a result within a bound of the right answer? NaN equals only NaN, an infinity only itself: a comparison that is
// false for NaN would let a wrong reference pass (docs/RELIABILITY.md A12).
#pragma once

#include <string>
#include <vector>

#include "array.hpp"
#include "src/reference.hpp"

namespace lanewise::test {

bool agrees(double value, double expected, double bound);

struct Agreement {
  double worst = 0;        // largest error as a share of its bound, over the elements before the first disagreement
  std::string difference;  // the first disagreement in words; empty if there is none
};

// out and lse against the reference, in the bounds of docs/NUMERICS.md. Rows with A <= 16, ordinary inputs, are held to
// 2e-6 * V: typical, and four times tighter than the bound. lse may be empty. q_lengths: rows from there on belong to
// no sequence and are not compared; empty: all rows do.
Agreement agreement(const lw_problem& problem, const ReferenceResult& expected, const Array& out, const Array& lse,
                    const std::vector<int32_t>& q_lengths);

}  // namespace lanewise::test
