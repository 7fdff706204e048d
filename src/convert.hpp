// Arrays of one storage type to another (lw_convert).
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

lw_status convert(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n);

}  // namespace lanewise
