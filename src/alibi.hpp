// The standard slopes of ALiBi (lw_alibi_slopes).
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

// Not named as in lanewise.hpp: where a host does not inline that one, its copy would take the place of this.
lw_status fill_alibi_slopes(int64_t q_heads, float* slopes);

}  // namespace lanewise
