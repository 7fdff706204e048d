// The step from one kernel to the other, as a table over rows a kv head.
#pragma once

#include <cstdint>

namespace lanewise::bench {

// Prints what share of the limit each kernel reaches where it can be chosen, and which one the plan chooses.
int print_curve(int32_t threads);

}  // namespace lanewise::bench
