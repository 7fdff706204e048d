#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "check.hpp"
#include "fp_environment.hpp"
#include "problem.hpp"
#include "status.hpp"
#include "targets.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A panel of 4 tiles reads each block of K and V from the cache it came into, packed or not; more tiles gain little and
// cost balance (docs/PERFORMANCE.md).
constexpr int64_t kPanelTiles = 4;

// native_bf16 pairs the values of each block for the panel: twice as many tiles share that (d = 128: +0.6 %).
int64_t most_panel_tiles(const lw_problem& problem) {
  return problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16 ? 2 * kPanelTiles : kPanelTiles;
}

// Of rows as long as these a panel's queries and sums and a block of K and V fill a second cache of 1 MiB: longer rows take
// fewer tiles (d = 256: 4 tiles lose 4 %).
constexpr int64_t kPanelDims = 2 * 128;

// Panels of several tiles only where that leaves so many panels that none needs cutting over keys: causal ones differ by
// a factor of two.
constexpr int64_t kPanelsPerThread = 2 * kPiecesPerThread;

// Resolves LW_ARITHMETIC_BEST; native_bf16 needs bf16 tensors (checked before) and the instruction.
lw_status choose_arithmetic(lw_plan& plan) {
  lw_problem& p = plan.problem;
  const bool has_dot = plan.kernels.native_rows_in_lanes != nullptr;
  if (p.arithmetic == LW_ARITHMETIC_NATIVE_BF16 && !has_dot) {
    return failure(
        LW_UNSUPPORTED,
        "arithmetic is native_bf16 and the target %s, which has no bf16 pair dot; allowed is canonical, or best",
        target_name(plan.target));
  }
  if (p.arithmetic == LW_ARITHMETIC_BEST) {
    const bool bf16 = p.q_type == LW_TYPE_BF16 && p.k_type == LW_TYPE_BF16 && p.v_type == LW_TYPE_BF16;
    p.arithmetic = has_dot && bf16 ? LW_ARITHMETIC_NATIVE_BF16 : LW_ARITHMETIC_CANONICAL;
  }
  return ok();
}

}  // namespace

Rules rules_of(const lw_problem& problem, bool q_positions) {
  constexpr double kLog2E = 1.4426950408889634074;
  const FpEnvironment environment;  // the host may round otherwise
  Rules rules;
  rules.factor = static_cast<float>(static_cast<double>(problem.scale) * kLog2E);
  rules.causal = problem.causal != 0;
  rules.window_left = problem.window_left;
  rules.window_right = problem.window_right;
  rules.prefix_len = problem.prefix_len;
  if (problem.softcap != 0.0f) {
    const double cap = static_cast<double>(problem.softcap) * kLog2E;
    rules.cap = static_cast<float>(cap);
    rules.cap_inverse = static_cast<float>(1.0 / cap);
  }
  rules.change_scores = problem.softcap != 0.0f || problem.alibi || problem.bias_type != LW_TYPE_NONE;
  rules.see_by_bits = problem.mask_type != LW_TYPE_NONE || problem.bias_type != LW_TYPE_NONE ||
                      problem.block_mask_rows > 0 || (problem.prefix_len > 0 && problem.window_left >= 0) ||
                      q_positions;
  return rules;
}

bool strides_need_packing(const lw_const_tensor& tensor) {
  if (tensor.stride[3] != 1) return true;
  // 4 KiB apart, rows share an L1 set; a tile of 8 rows and its scratch do not fit into one.
  return tensor.stride[2] % (4096 / type_size(tensor.type)) == 0;
}

bool must_pack(const lw_const_tensor& tensor) { return tensor.type != LW_TYPE_F32 || strides_need_packing(tensor); }

Panels panels_of(const lw_plan& plan, int64_t q_len, int64_t panel_tiles) {
  Panels panels;
  panels.rows = q_len * group_size(plan.problem);
  panels.vectors = ceil_div(panels.rows, plan.kernels.lanes);
  const int64_t tiles = ceil_div(panels.vectors, plan.kernels.rows_max_vectors);
  panels.count = ceil_div(tiles, panel_tiles);
  return panels;
}

int64_t panel_tiles_of(const lw_plan& plan, const lw_problem& run, int32_t threads) {
  const int64_t tiles = saturating_product(run.batch, run.kv_heads, panels_of(plan, run.q_len, 1).count);
  const int64_t most = most_panel_tiles(run);
  const int64_t fit = std::clamp<int64_t>(most * kPanelDims / (run.qk_dim + run.v_dim), 1, most);
  return std::clamp<int64_t>(tiles / (kPanelsPerThread * threads), 1, fit);
}

lw_status make_plan(const lw_problem* problem, const lw_options* options, lw_plan& plan) {
  if (const lw_status s = check_problem(problem, plan.problem); s.code != LW_OK) return s;
  const char* target = nullptr;
  if (options != nullptr) {
    if (const lw_status s = check_struct_size<lw_options>("options", options->struct_size); s.code != LW_OK) return s;
    target = options->target;
  }
  if (const lw_status s = choose_target(target, plan.target); s.code != LW_OK) return s;
  plan.kernels = kernels_for(plan.target);
  if (const lw_status s = choose_arithmetic(plan); s.code != LW_OK) return s;
  const lw_problem& p = plan.problem;
  const int64_t tiles = std::min(most_panel_tiles(p), std::max<int64_t>(1, panels_of(plan, p.q_len, 1).count));
  plan.piece_rows = std::min(plan.kernels.rows_max_vectors * plan.kernels.lanes, p.q_len * group_size(p));
  plan.together_rows = p.kv_heads == 1 ? 0 : std::min(kMaxTogetherRows, saturating_product(p.q_len, p.q_heads, 1));
  const int64_t few_rows =
      std::max({plan.piece_rows, plan.together_rows, std::min(kMaxFewRows, p.q_len * group_size(p))});
  plan.task_scratch =
      static_cast<int64_t>(std::max(plan.kernels.rows_scratch_size(p.qk_dim, p.v_dim, tiles, true, true),
                                    plan.kernels.keys_scratch_size(p.qk_dim, p.v_dim, few_rows)));
  plan.work_per_thread = kWorkPerThread;
  return ok();
}

WorkspaceLayout workspace_layout(const lw_plan& plan, int32_t threads) {
  const lw_problem& p = plan.problem;
  WorkspaceLayout layout = {0, 0};
  if (threads <= 1) return layout;
  threads = std::min(threads, kMaxCutThreads);
  // Fewer than kPiecesPerThread * threads panels are above the cut. The pieces wanted of all of them together are at
  // most the work over the cut plus one a panel; where spans are too few for that, blocks are taken, and a span has 16
  // of them.
  const int64_t panels_capacity = saturating_product(p.batch, p.kv_heads, panels_of(plan, p.q_len, 1).count);
  const int64_t cut = kPiecesPerThread * threads;
  const int64_t panels = std::min(panels_capacity, cut);
  const int64_t spans = p.kv_len / kSpanKeys + 2;  // the first and the last may be partial
  const int64_t blocks = p.kv_len / kBlockKeys + 2;
  const int64_t units = std::min(panels * blocks, panels * spans + 2 * cut * (kSpanKeys / kBlockKeys));
  int64_t states = units * piece_state_size(plan.piece_rows, p.v_dim);
  // Panels of several kv heads are fewer and larger: at most all few rows there are, block by block.
  const int64_t few = std::min(plan.kernels.few_rows, p.q_len * group_size(p));
  const int64_t all_blocks =
      saturating_product(saturating_product(p.batch, p.kv_heads, few), blocks, piece_state_size(1, p.v_dim));
  if (plan.together_rows > 0) {
    states = std::max(states, std::min(all_blocks, units * piece_state_size(plan.together_rows, p.v_dim)));
  }
  layout.states = (states * int64_t{sizeof(float)} + 63) / 64 * 64;
  layout.arrivals = (panels * int64_t{sizeof(int32_t)} + 63) / 64 * 64;
  return layout;
}

int64_t workspace_size(const lw_plan& plan, int32_t threads) {
  const lw_problem& p = plan.problem;
  if (p.batch == 0 || p.q_len == 0) return 0;
  threads = std::max(threads, 1);
  const WorkspaceLayout layout = workspace_layout(plan, threads);
  return layout.states + layout.arrivals + plan.task_scratch * threads;
}

int32_t threads_that_fit(const lw_plan& plan, int32_t threads, int64_t bytes) {
  if (workspace_size(plan, threads) <= bytes) return threads;
  int32_t fit = 1;  // hosts ask for INT32_MAX threads, too
  while (threads - fit > 1) {
    const int32_t between = fit + (threads - fit) / 2;
    (workspace_size(plan, between) <= bytes ? fit : threads) = between;
  }
  return fit;
}

}  // namespace lanewise
