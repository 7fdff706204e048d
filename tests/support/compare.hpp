// Is a result within a bound of the right answer? NaN equals only NaN, an infinity only itself: a comparison that is
// false for NaN would let a wrong reference pass (docs/RELIABILITY.md A12).
#pragma once

#include <string>
#include <vector>

#include "array.hpp"
#include "src/reference.hpp"

namespace lanewise::test {

bool agrees(double value, double expected, double bound);

// Empty when out and lse agree with the reference in the bounds of docs/NUMERICS.md, else the worst element in words.
// Rows with A <= 16, ordinary inputs, are held to 2e-6 * V: typical, and four times tighter than the bound.
// lse may be empty. q_lengths: rows from there on belong to no sequence and are not compared; empty: all rows do.
std::string difference_from_reference(const lw_problem& problem, const ReferenceResult& expected, const Array& out,
                                      const Array& lse, const std::vector<int32_t>& q_lengths);

}  // namespace lanewise::test
