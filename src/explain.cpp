// What a plan decided, for people: lw_plan_explain.
#include <algorithm>
#include <cstring>

#include "check.hpp"
#include "plan.hpp"
#include "status.hpp"
#include "targets.hpp"

namespace lanewise {
namespace {

lw_explanation explanation_of(const lw_plan& plan, int32_t threads) {
  const lw_problem& p = plan.problem;
  lw_explanation explanation = lw_explanation();
  explanation.target = target_name(plan.target);
  explanation.kernel = p.q_len * (p.q_heads / p.kv_heads) <= plan.kernels.few_rows ? "keys-in-lanes" : "rows-in-lanes";
  explanation.arithmetic = "canonical";
  explanation.note =
      plan.kernels.fma ? "" : "this target has no fused multiply-add: results differ in bits from targets that have";
  explanation.lanes = static_cast<int32_t>(plan.kernels.lanes);
  explanation.tile_rows = static_cast<int32_t>(plan.kernels.lanes * plan.kernels.rows_max_vectors);
  explanation.tile_keys = static_cast<int32_t>(plan.kernels.rows_tile_keys);
  explanation.phases = 2;
  explanation.row_tiles = panels_of(plan, p.q_len, 1).count;
  explanation.tasks = saturating_product(p.batch, p.kv_heads,
                                         panels_of(plan, p.q_len, panel_tiles_of(plan, p, std::max(threads, 1))).count);
  explanation.workspace = workspace_size(plan, threads);
  return explanation;
}

}  // namespace

lw_status explain_plan(const lw_plan& plan, int32_t threads, lw_explanation* explanation) {
  if (explanation == nullptr) return failure(LW_INVALID_ARGUMENT, "explanation is a null pointer");
  const int64_t size = explanation->struct_size;
  if (size < kOldestSize<lw_explanation> || size > 65536) {
    return failure(
        LW_INVALID_ARGUMENT,
        "explanation.struct_size is %lld; allowed is sizeof(lw_explanation) of lanewise 0.1 or newer (%lld ...)",
        static_cast<long long>(size), static_cast<long long>(kOldestSize<lw_explanation>));
  }
  const lw_explanation filled = explanation_of(plan, threads);
  // As much as the caller's struct holds; what only a newer one has stays zero.
  std::memset(static_cast<void*>(explanation), 0, static_cast<size_t>(size));
  std::memcpy(static_cast<void*>(explanation), &filled, std::min(sizeof filled, static_cast<size_t>(size)));
  explanation->struct_size = size;
  return ok();
}

}  // namespace lanewise
