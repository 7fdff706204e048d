#include "convert.hpp"

#include "check.hpp"
#include "fp_environment.hpp"
#include "kernels/kernel_table.hpp"
#include "targets.hpp"
#include "tensors.hpp"

namespace lanewise {

lw_status convert_elements(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) {
  const struct {
    const char* name;
    const void* data;
    int32_t type;
  } sides[] = {{"from", from, from_type}, {"to", to, to_type}};
  if (n < 0 || n > INT64_MAX / 8) return invalid_size("n", n, 0, INT64_MAX / 8);
  Range range[2];
  for (int i = 0; i < 2; ++i) {
    const auto& side = sides[i];
    if (!is_float_type(side.type)) {
      return failure(LW_INVALID_ARGUMENT,
                     "%s_type is %d; allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)", side.name,
                     side.type);
    }
    const int64_t stride[4] = {1, 1, 1, 1};
    if (const lw_status s =
            check_tensor(side.name, side.data, side.type, side.type, stride, Axes{{1, 1, 1, n}}, range[i]);
        s.code != LW_OK) {
      return s;
    }
  }
  if (overlaps(range[0], range[1])) return failure(LW_INVALID_ARGUMENT, "to overlaps from");
  if (n == 0) return ok();
  int64_t target = 0;
  if (const lw_status s = choose_target(nullptr, target); s.code != LW_OK) return s;
  const FpEnvironment environment;  // denormals count
  kernels_for(target).convert(from, from_type, to, to_type, n);
  return ok();
}

}  // namespace lanewise
