// Arrays of one storage type to another (lw_convert).
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

// Not named as in lanewise.hpp: where a host does not inline that one, its copy would take the place of this.
lw_status convert_elements(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n);

}  // namespace lanewise
