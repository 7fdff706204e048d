// What bench_decode runs when it is not asked for others.

#include <algorithm>
#include <string>

#include "src/targets.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {

std::vector<AttentionCase> decode_cases() {
  std::vector<AttentionCase> cases;
  const int32_t all = all_threads();
  const auto add = [&](AttentionCase c) {
    const std::string name = name_of(c);
    const auto same = [&](const AttentionCase& other) { return name_of(other) == name; };
    if (std::none_of(cases.begin(), cases.end(), same)) cases.push_back(c);
  };

  // Long sequences and batches, every group size.
  for (const int64_t dim : {128, 64}) {
    for (const int64_t group : {1, 2, 3, 4, 5, 6, 7, 8}) {
      for (const int32_t threads : {1, all}) add(decode_case(32768, dim, 8 * group, 8, threads));
      AttentionCase c = decode_case(2048, dim, 8 * group, 8, all);
      c.batch = 16;
      add(c);
    }
  }
  // One kv head: key ranges are the only parallel work.
  for (const int32_t threads : {1, all}) add(decode_case(32768, 128, 1, 1, threads));
  // Every target.
  for (int32_t i = 0; i < target_count(); ++i) {
    if (!target_is_supported(target_at(i))) continue;
    AttentionCase c = decode_case(32768, 128, 32, 8, all);
    c.target = target_name(target_at(i));
    add(c);
  }
  // Layouts and pages.
  for (const int64_t kv_heads : {8, 32}) {
    AttentionCase c = decode_case(8192, 128, 32, kv_heads, all);
    add(c);
    c.tokens_first = true;
    add(c);
    c.page_size = 16;
    add(c);
  }
  for (const int64_t page_size : {1, 16, 64, 256}) {
    AttentionCase c = decode_case(8192, 128, 32, 8, all);
    c.page_size = page_size;
    add(c);
  }
  // A sliding window in a long cache; speculative tokens; latent attention; a server's step.
  AttentionCase window = decode_case(65536, 128, 8, 8, all);
  window.page_size = 16;
  window.window_left = 511;
  add(window);
  for (const int64_t q_len : {2, 4, 8}) {
    AttentionCase c = decode_case(8192, 128, 32, 8, all);
    c.q_len = q_len;
    add(c);
  }
  AttentionCase latent = decode_case(32768, 576, 128, 1, all);
  latent.v_dim = 512;
  latent.v_in_k = true;
  add(latent);
  AttentionCase mixed = decode_case(4096, 128, 32, 8, all);
  mixed.q_len = 512;
  mixed.decodes = 32;
  add(mixed);
  return cases;
}

}  // namespace lanewise::bench
