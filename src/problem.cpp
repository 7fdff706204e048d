#include "problem.hpp"

#include <cmath>

#include "check.hpp"
#include "fp_environment.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

constexpr float kMaxScale = 1e38f;

lw_status check_types(const lw_problem& p) {
  const struct {
    const char* name;
    int32_t type;
  } types[] = {{"q_type", p.q_type}, {"k_type", p.k_type}, {"v_type", p.v_type}, {"out_type", p.out_type}};
  for (const auto& t : types) {
    if (!is_float_type(t.type)) {
      return failure(LW_INVALID_ARGUMENT, "%s is %d; allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)",
                     t.name, t.type);
    }
  }
  if (p.mask_type != LW_TYPE_NONE && p.mask_type != LW_TYPE_BOOL && p.mask_type != LW_TYPE_BITS) {
    return failure(LW_INVALID_ARGUMENT,
                   "mask_type is %d; allowed is LW_TYPE_NONE (0), LW_TYPE_BOOL (4) or LW_TYPE_BITS (5)", p.mask_type);
  }
  if (p.bias_type != LW_TYPE_NONE && !is_float_type(p.bias_type)) {
    return failure(LW_INVALID_ARGUMENT,
                   "bias_type is %d; allowed is LW_TYPE_NONE (0), LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)",
                   p.bias_type);
  }
  if (p.arithmetic < LW_ARITHMETIC_CANONICAL || p.arithmetic > LW_ARITHMETIC_BEST)
    return invalid_size("arithmetic", p.arithmetic, 0, 2);
  if (p.q_layout < LW_LAYOUT_DENSE || p.q_layout > LW_LAYOUT_RAGGED) return invalid_size("q_layout", p.q_layout, 0, 1);
  if (p.kv_layout < LW_LAYOUT_DENSE || p.kv_layout > LW_LAYOUT_PAGED)
    return invalid_size("kv_layout", p.kv_layout, 0, 2);
  if (p.arithmetic == LW_ARITHMETIC_NATIVE_BF16 &&
      !(p.q_type == LW_TYPE_BF16 && p.k_type == LW_TYPE_BF16 && p.v_type == LW_TYPE_BF16)) {
    return failure(LW_INVALID_ARGUMENT,
                   "arithmetic is native_bf16 with types q %s, k %s, v %s; it takes bf16 for all three",
                   type_name(p.q_type), type_name(p.k_type), type_name(p.v_type));
  }
  return ok();
}

}  // namespace

lw_status check_rules(const lw_problem& p) {
  if (!std::isfinite(p.scale) || std::fabs(p.scale) > kMaxScale) {
    return failure(LW_INVALID_ARGUMENT, "scale is %g; allowed is any finite number of magnitude up to 1e38",
                   static_cast<double>(p.scale));
  }
  // NaN is not compared: that is an exception, which the host may have unmasked.
  if (!std::isfinite(p.softcap) || !(p.softcap == 0.0f || (p.softcap >= 1e-6f && p.softcap <= 1e6f))) {
    return failure(LW_INVALID_ARGUMENT, "softcap is %g; allowed is 0 (off) or 1e-6 ... 1e6",
                   static_cast<double>(p.softcap));
  }
  if (p.window_left < -1 || p.window_left > kMaxOffset)
    return invalid_size("window_left", p.window_left, -1, kMaxOffset);
  if (p.window_right < -1 || p.window_right > kMaxOffset)
    return invalid_size("window_right", p.window_right, -1, kMaxOffset);
  if (p.q_offset < -kMaxOffset || p.q_offset > kMaxOffset)
    return invalid_size("q_offset", p.q_offset, -kMaxOffset, kMaxOffset);
  return ok();
}

lw_status check_problem(const lw_problem* problem, lw_problem& p) {
  if (const lw_status s = copy_struct("problem", problem, p); s.code != LW_OK) return s;
  const NamedSize sizes[] = {
      {"batch", p.batch, 0, kMaxLength},
      {"q_heads", p.q_heads, 1, kMaxLength},
      {"kv_heads", p.kv_heads, 1, kMaxLength},
      {"q_len", p.q_len, 0, kMaxLength},
      {"kv_len", p.kv_len, 0, kMaxLength},
      {"qk_dim", p.qk_dim, 1, kMaxDim},
      {"v_dim", p.v_dim, 1, kMaxDim},
      {"causal", p.causal, 0, 1},
      {"has_scale", p.has_scale, 0, 1},
      {"has_q_offset", p.has_q_offset, 0, 1},
      {"alibi", p.alibi, 0, 1},
      {"sinks", p.sinks, 0, 1},
      {"total_q", p.total_q, 0, INT64_MAX},
      {"total_kv", p.total_kv, 0, INT64_MAX},
      {"page_size", p.page_size, 0, kMaxLength},
      {"page_count", p.page_count, 0, kMaxLength},
      {"prefix_len", p.prefix_len, 0, kMaxLength},
      {"mask_tail", p.mask_tail, 0, p.kv_len},
      {"block_mask_rows", p.block_mask_rows, 0, kMaxLength},
      {"block_mask_keys", p.block_mask_keys, 0, kMaxLength},
  };
  if (const lw_status s = check_sizes(sizes); s.code != LW_OK) return s;
  if (p.q_heads % p.kv_heads != 0) {
    return failure(LW_INVALID_ARGUMENT, "q_heads is %lld; it must be a multiple of kv_heads (%lld)",
                   static_cast<long long>(p.q_heads), static_cast<long long>(p.kv_heads));
  }
  if (!all_zero(p.reserved)) return unknown_field("problem");
  if (const lw_status s = check_types(p); s.code != LW_OK) return s;
  if (!p.has_scale) {
    const FpEnvironment environment;  // the host may round otherwise
    p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.qk_dim)));
    p.has_scale = 1;
  }
  if (const lw_status s = check_rules(p); s.code != LW_OK) return s;
  if (p.q_layout == LW_LAYOUT_RAGGED && p.total_q > kMaxLength)
    return invalid_size("total_q", p.total_q, 0, kMaxLength);
  if (p.kv_layout == LW_LAYOUT_RAGGED && p.total_kv > kMaxLength)
    return invalid_size("total_kv", p.total_kv, 0, kMaxLength);
  if (p.kv_layout == LW_LAYOUT_PAGED && p.page_size < 1) return invalid_size("page_size", p.page_size, 1, kMaxLength);
  if (p.mask_tail != 0 && p.mask_type == LW_TYPE_NONE) {
    return failure(LW_INVALID_ARGUMENT, "mask_tail is %lld without a mask_type", static_cast<long long>(p.mask_tail));
  }
  if ((p.block_mask_rows > 0) != (p.block_mask_keys > 0)) {
    return failure(LW_INVALID_ARGUMENT,
                   "block_mask_rows is %lld and block_mask_keys %lld; allowed is 0 for both or 1 ... %lld for both",
                   static_cast<long long>(p.block_mask_rows), static_cast<long long>(p.block_mask_keys),
                   static_cast<long long>(kMaxLength));
  }
  return ok();
}

}  // namespace lanewise
