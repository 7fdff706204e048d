// The standard slopes of ALiBi (lw_alibi_slopes).
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

lw_status alibi_slopes(int64_t q_heads, float* slopes);

}  // namespace lanewise
