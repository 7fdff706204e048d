#include "acceptance_lines.hpp"

#include "src/targets.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {
namespace {

std::string dim_text(int64_t dim) { return "d=" + std::to_string(dim); }

// One head of 4096 queries and keys.
PromiseGroup long_rows(int64_t dim, double asked, bool with_variants) {
  GroupBuilder group;
  AttentionCase c = basic_case(4096, dim, 1);
  const size_t full = group.add(c);
  group.share(full, asked, "full " + dim_text(dim) + ", share of FMA peak");
  if (!with_variants) return group.take();
  c.threads = 2;
  group.ratio(Measure::kRateRatio, group.add(c), full, 1.93,
              "two threads " + dim_text(dim) + ", rate over one thread's");
  c.threads = 1;
  c.causal = true;
  group.ratio(Measure::kTimeRatio, group.add(c), full, 0.52, "causal " + dim_text(dim) + ", time over full");
  return group.take();
}

PromiseGroup avx2(int64_t dim, double asked) {
  GroupBuilder group;
  AttentionCase c = basic_case(4096, dim, 1);
  c.target = "AVX2";
  group.share(group.add(c), asked, "AVX2 full " + dim_text(dim) + ", share of AVX2's FMA peak");
  return group.take();
}

AttentionCase with_types(AttentionCase c, int32_t type, int32_t arithmetic) {
  c.q_type = c.kv_type = type;
  c.arithmetic = arithmetic;
  return c;
}

// native_bf16 beside float32.
PromiseGroup native_rows(int64_t dim, double asked) {
  GroupBuilder group;
  const AttentionCase f32 = basic_case(4096, dim, 1);
  AttentionCase c = with_types(f32, LW_TYPE_BF16, LW_ARITHMETIC_NATIVE_BF16);
  const size_t full = group.add(c);
  group.share(full, asked, "native_bf16 full " + dim_text(dim) + ", share of bf16-dot peak");
  group.ratio(Measure::kRateRatio, full, group.add(f32), 1.75,
              "native_bf16 " + dim_text(dim) + ", rate over float32's");
  c.threads = 2;
  group.ratio(Measure::kRateRatio, group.add(c), full, 1.90,
              "native_bf16 two threads " + dim_text(dim) + ", rate over one thread's");
  c.threads = 1;
  c.causal = true;
  group.ratio(Measure::kTimeRatio, group.add(c), full, 0.525,
              "native_bf16 causal " + dim_text(dim) + ", time over full");
  return group.take();
}

// 16-bit storage in canonical arithmetic beside float32; short sequences beside long ones.
PromiseGroup canonical_halves(int32_t type, const std::string& name) {
  GroupBuilder group;
  const AttentionCase f32 = basic_case(4096, 128, 1);
  const size_t full = group.add(with_types(f32, type, LW_ARITHMETIC_CANONICAL));
  group.ratio(Measure::kRateRatio, full, group.add(f32), 0.95, name + " canonical d=128, rate over float32's");
  return group.take();
}
PromiseGroup short_halves(int32_t arithmetic, const std::string& name) {
  GroupBuilder group;
  const size_t full = group.add(with_types(basic_case(4096, 128, 1), LW_TYPE_BF16, arithmetic));
  for (const int64_t len : {128, 256, 512}) {
    AttentionCase c = with_types(basic_case(len, 128, 12), LW_TYPE_BF16, arithmetic);
    c.batch = 8;
    group.ratio(Measure::kRateRatio, group.add(c), full, 0.80,
                name + " short L=S=" + std::to_string(len) + " d=128, rate over long");
  }
  return group.take();
}

PromiseGroup short_rows() {
  GroupBuilder group;
  const size_t full = group.add(basic_case(4096, 64, 1));
  const struct {
    int64_t len;
    double asked;
  } lengths[] = {{128, 0.77}, {197, 0.72}, {256, 0.83}, {512, 0.91}};
  for (const auto& [len, asked] : lengths) {
    AttentionCase c = basic_case(len, 64, 12);
    c.batch = 8;
    group.ratio(Measure::kRateRatio, group.add(c), full, asked,
                "short L=S=" + std::to_string(len) + " d=64, rate over long");
  }
  return group.take();
}

PromiseGroup token_layout_and_groups() {
  GroupBuilder group;
  AttentionCase c = basic_case(1024, 128, 32);
  const size_t heads_first = group.add(c);
  c.kv_heads = 8;
  group.ratio(Measure::kRateRatio, group.add(c), heads_first, 0.97, "grouped heads 32/8, rate over 32/32");
  c.kv_heads = 32;
  c.tokens_first = true;
  group.ratio(Measure::kRateRatio, group.add(c), heads_first, 0.90,
              "[batch, len, 32 heads, dim], rate over heads first");
  return group.take();
}

PromiseGroup transposed_layouts() {
  GroupBuilder group;
  const AttentionCase plain = basic_case(1024, 128, 4);
  const size_t base = group.add(plain);
  AttentionCase c = plain;
  c.v_transposed = true;
  group.ratio(Measure::kRateRatio, group.add(c), base, 0.70, "V transposed, rate over plain");
  c = plain;
  c.out_transposed = true;
  group.ratio(Measure::kRateRatio, group.add(c), base, 0.70, "output transposed, rate over plain");
  return group.take();
}

PromiseGroup tiny_call() {
  GroupBuilder group;
  const size_t tiny = group.add(basic_case(4, 64, 1));
  group.one(Measure::kMicroseconds, tiny, 1.0, "tiny call L=S=4 d=64 on a ready plan, us");
  group.one(Measure::kPlanMake, tiny, 3.0, "Plan::make for it, us");
  return group.take();
}

bool runs_here(const std::string& target) {
  int64_t bit = 0;
  return choose_target(target.c_str(), bit).code == 0;
}

}  // namespace

std::vector<PromiseGroup> attention_promises() {
  std::vector<PromiseGroup> groups = {long_rows(128, 0.93, true), long_rows(64, 0.90, true),
                                      long_rows(32, 0.86, false), long_rows(80, 0.86, false),
                                      long_rows(96, 0.86, false), long_rows(256, 0.86, false)};
  if (runs_here("AVX2")) {
    groups.push_back(avx2(128, 0.90));
    groups.push_back(avx2(64, 0.86));
  }
  groups.push_back(short_rows());
  if (has_bf16_dot()) {
    groups.push_back(native_rows(128, 0.87));
    groups.push_back(native_rows(64, 0.81));
    groups.push_back(short_halves(LW_ARITHMETIC_NATIVE_BF16, "native_bf16"));
  }
  groups.push_back(canonical_halves(LW_TYPE_BF16, "bf16"));
  groups.push_back(canonical_halves(LW_TYPE_F16, "f16"));
  groups.push_back(short_halves(LW_ARITHMETIC_CANONICAL, "bf16 canonical"));
  groups.push_back(token_layout_and_groups());
  groups.push_back(transposed_layouts());
  groups.push_back(tiny_call());
  return groups;
}

}  // namespace lanewise::bench
