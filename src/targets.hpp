// Instruction-set targets: which are compiled in, which this CPU runs, which one a plan uses. CPU features are asked
// once per process (each CPUID traps in a virtual machine); so is LANEWISE_TARGET.
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

// Compiled targets, best first; an index beyond count gives 0 / nullptr.
int32_t target_count();
int64_t target_at(int32_t index);  // Highway's bit
const char* target_name(int64_t target);
bool target_is_supported(int64_t target);

// The best that this CPU runs, whatever LANEWISE_TARGET says; 0: none.
int64_t best_target();

// name: a target's name in any case; nullptr: LANEWISE_TARGET, else the best supported one.
lw_status choose_target(const char* name, int64_t& target);

}  // namespace lanewise
