#include "alibi.hpp"

#include <cmath>

#include "check.hpp"
#include "fp_environment.hpp"

namespace lanewise {
namespace {

// Slope i of a power of two n of heads.
float slope_of(int64_t i, int64_t n) {
  return static_cast<float>(std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(n)));
}

}  // namespace

lw_status fill_alibi_slopes(int64_t q_heads, float* slopes) {
  if (q_heads < 1 || q_heads > kMaxLength) return invalid_size("q_heads", q_heads, 1, kMaxLength);
  if (slopes == nullptr) return failure(LW_INVALID_ARGUMENT, "slopes is a null pointer");
  if (const lw_status s = check_alignment("slopes", slopes); s.code != LW_OK) return s;
  const FpEnvironment environment;  // the host may round otherwise
  int64_t lower = 1;
  while (2 * lower <= q_heads) lower *= 2;
  for (int64_t i = 0; i < lower; ++i) slopes[i] = slope_of(i, lower);
  for (int64_t i = lower; i < q_heads; ++i) slopes[i] = slope_of(2 * (i - lower), 2 * lower);
  return ok();
}

}  // namespace lanewise
