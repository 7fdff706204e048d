// What a plan decided and why, for people: lw_plan_explain and lw_plan_reasons.
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"

namespace lanewise {

lw_status explain_plan(const lw_plan& plan, int32_t threads, lw_explanation* explanation);
int64_t plan_reasons(const lw_plan& plan, const lw_inputs* inputs, int32_t threads, char* text, int64_t size);

}  // namespace lanewise
