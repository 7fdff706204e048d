// The canonical arithmetic of docs/NUMERICS.md in scalar code, one row at a time and in the order of the document: the
// bits a target with FMA must give. No tiles, no lanes, nothing of the kernels' but the constants of the contract.
#pragma once

#include "run.hpp"

namespace lanewise::test {

// Dense float32 problems with all rules, lengths, offsets and an earlier state.
Result canonical(const Prepared& prepared);

// cap * tanh(s / cap), with cap and 1 / cap as they are rounded. With 1 and 1: tanh.
float soft_cap(float s, float cap, float cap_inverse);

}  // namespace lanewise::test
