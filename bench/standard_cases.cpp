#include "standard_cases.hpp"

#include <algorithm>

#include "src/kernels/kernel_table.hpp"
#include "src/machine.hpp"
#include "src/targets.hpp"

namespace lanewise::bench {

bool has_bf16_dot() { return kernels_for(best_target()).native_rows_in_lanes != nullptr; }

AttentionCase basic_case(int64_t len, int64_t dim, int64_t heads) {
  AttentionCase c;
  c.q_len = c.kv_len = len;
  c.qk_dim = c.v_dim = dim;
  c.q_heads = c.kv_heads = heads;
  c.target = target_name(best_target());
  return c;
}

AttentionCase decode_case(int64_t kv_len, int64_t dim, int64_t q_heads, int64_t kv_heads, int32_t threads) {
  AttentionCase c = basic_case(kv_len, dim, kv_heads);
  c.causal = true;
  c.q_len = 1;
  c.q_heads = q_heads;
  c.threads = threads;
  return c;
}

int64_t rows_of_kv_head(const AttentionCase& c) { return c.q_len * c.q_heads / c.kv_heads; }

AttentionCase curve_case(int64_t rows, int32_t threads) { return decode_case(8192, 128, 16 * rows, 16, threads); }

int32_t all_threads() { return std::min(usable_cpus(), 8); }

}  // namespace lanewise::bench
