#include "standard_cases.hpp"

#include <algorithm>
#include <string>

#include "src/targets.hpp"

namespace lanewise::bench {

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](AttentionCase c) {
    const std::string name = name_of(c);
    const auto same = [&](const AttentionCase& other) { return name_of(other) == name; };
    if (std::none_of(cases.begin(), cases.end(), same)) cases.push_back(c);
  };

  // Long rows: every head dimension, full and causal, one and all threads.
  for (const int64_t dim : {32, 64, 80, 96, 128, 256}) {
    AttentionCase c = basic_case(4096, dim, 1);
    add(c);
    c.causal = true;
    add(c);
  }
  for (const int64_t dim : {64, 128}) {
    AttentionCase c = basic_case(4096, dim, 2);
    c.threads = all_threads();
    add(c);
    c.causal = true;
    add(c);
  }
  // Every target.
  for (int32_t i = 0; i < target_count(); ++i) {
    if (!target_is_supported(target_at(i))) continue;
    for (const int64_t dim : {64, 128}) {
      AttentionCase c = basic_case(2048, dim, 1);
      c.target = target_name(target_at(i));
      add(c);
    }
  }
  // Short rows, as encoders have them, down to one tiny call.
  for (const int64_t len : {16, 64, 128, 197, 256, 512, 1024}) {
    AttentionCase c = basic_case(len, 64, 12);
    c.batch = 8;
    add(c);
    c.causal = true;
    add(c);
  }
  add(basic_case(4, 64, 1));
  // A chunk of queries against a long cache; a sliding window; latent attention's two dimensions.
  for (const int64_t q_len : {16, 64, 256}) {
    AttentionCase c = basic_case(q_len, 128, 1);
    c.q_heads = 4;
    c.kv_len = 8192;
    c.causal = true;
    add(c);
  }
  AttentionCase window = basic_case(4096, 128, 2);
  window.causal = true;
  window.window_left = 127;
  add(window);
  AttentionCase latent = basic_case(1024, 192, 2);
  latent.v_dim = 128;
  latent.causal = true;
  add(latent);
  // Layouts, and heads that share keys.
  for (const int64_t kv_heads : {32, 8}) {
    AttentionCase c = basic_case(512, 128, 32);
    c.kv_heads = kv_heads;
    add(c);
    c.tokens_first = true;
    add(c);
  }
  for (const int axis : {0, 1, 2}) {
    AttentionCase c = basic_case(1024, 128, 4);
    add(c);
    c.k_transposed = axis == 0;
    c.v_transposed = axis == 1;
    c.out_transposed = axis == 2;
    add(c);
  }
  // The same by three primitives of oneDNN.
#ifdef LANEWISE_ONEDNN_MAJOR
  for (const int64_t len : {128, 1024, 4096}) {
    AttentionCase c = basic_case(len, 64, len == 128 ? 12 : 1);
    c.batch = len == 128 ? 8 : 1;
    c.onednn = true;
    add(c);
    c.qk_dim = c.v_dim = 128;
    add(c);
  }
#endif
  return cases;
}

}  // namespace lanewise::bench
