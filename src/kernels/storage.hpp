// Elements of the storage types, as kernels read and write them.
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

struct Bf16 {  // LW_TYPE_BF16
  uint16_t bits;
};
struct F16 {  // LW_TYPE_F16
  uint16_t bits;
};

constexpr int64_t storage_size(int32_t type) { return type == LW_TYPE_F32 ? 4 : 2; }

}  // namespace lanewise
