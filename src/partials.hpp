// What engines do around attention: combining partial results, and writing new rows into a cache.
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

lw_status merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses, int32_t count,
                const lw_outputs* merged);
lw_status append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                 const lw_const_tensor* rows, int64_t tokens, const int32_t* slots);

}  // namespace lanewise
