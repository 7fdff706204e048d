// What bench_rules --acceptance asks, and its standard cases: those of the lines.

#include <string>

#include "acceptance_lines.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {
namespace {

PromiseGroup narrow_window() {
  GroupBuilder builder;
  AttentionCase c = basic_case(8192, 128, 1);
  c.causal = true;
  c.window_left = 127;
  const size_t window = builder.add(c);
  builder.share(window, 0.55, "causal, window 128, L=S=8192 d=128, of FMA peak");
  c.q_len = c.kv_len = 2048;
  const size_t shorter = builder.add(c);
  // Visible scores grow by a little more than the length.
  builder.ratio(Measure::kRateRatio, window, shorter, 0.95, "... rate over L=S=2048: linear in the length");
  return builder.take();
}

// Heads share nothing but the mask, which they all read.
PromiseGroup dense_rules(int64_t heads) {
  GroupBuilder builder;
  const AttentionCase plain = basic_case(2048, 128, heads);
  const size_t full = builder.add(plain);
  const auto line = [&](const AttentionCase& c, double asked, const std::string& text) {
    builder.ratio(Measure::kTimeRatio, builder.add(c), full, asked, text + ", time over none");
  };
  AttentionCase c = plain;
  c.masked_percent = 50;
  line(c, 0.6, std::to_string(heads) + " heads, a mask hiding half the tiles");
  c.masked_percent = 0;
  line(c, 1.1, std::to_string(heads) + " heads, a mask hiding nothing");
  if (heads > 8) return builder.take();
  c = plain;
  c.bias_type = LW_TYPE_F32;
  line(c, 1.3, "f32 bias a head");
  c.bias_type = LW_TYPE_BF16;
  line(c, 1.3, "bf16 bias a head");
  c.bias_type = LW_TYPE_F16;
  line(c, 1.3, "f16 bias a head");
  c = plain;
  c.softcap = true;
  line(c, 1.25, "softcap");
  c = plain;
  c.alibi = true;
  line(c, 1.1, "ALiBi");
  c = plain;
  c.sinks = true;
  line(c, 1.01, "sinks");
  return builder.take();
}

// A second pass over scores, without values.
PromiseGroup statistics(int64_t q_len, int64_t heads) {
  GroupBuilder builder;
  AttentionCase c = basic_case(2048, 128, heads);
  c.q_len = q_len;
  const size_t run = builder.add(c);
  const auto line = [&](Computes computes, double asked, const std::string& text) {
    c.computes = computes;
    const std::string rows = q_len == c.kv_len ? "" : " of " + std::to_string(q_len) + " rows";
    builder.ratio(Measure::kTimeRatio, builder.add(c), run, asked, text + rows + ", time over the run's");
  };
  line(Computes::kColumnSums, 0.6, "column sums of weights");
  line(Computes::kRowStatistics, 0.6, "row maxima and entropies");
  return builder.take();
}

}  // namespace

std::vector<PromiseGroup> rule_promises() {
  std::vector<PromiseGroup> groups;
  groups.push_back(narrow_window());
  groups.push_back(window_decode(decode_case(65536, 128, 8, 8, 1), "decode, window 512"));
  groups.push_back(dense_rules(2));
  groups.push_back(dense_rules(32));
  groups.push_back(statistics(2048, 2));
  groups.push_back(statistics(32, 32));
  return groups;
}

std::vector<AttentionCase> rule_cases() {
  std::vector<AttentionCase> cases;
  for (const PromiseGroup& group : rule_promises()) cases.insert(cases.end(), group.cases.begin(), group.cases.end());
  return cases;
}

}  // namespace lanewise::bench
