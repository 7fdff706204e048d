// What bench_decode --acceptance asks.

#include <algorithm>
#include <string>

#include "acceptance_lines.hpp"
#include "case_tensors.hpp"
#include "lanewise/lanewise.hpp"
#include "src/machine.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {
namespace {

std::string text_of(const char* what, int64_t number) { return what + std::to_string(number); }

// One query of groups of one size against long sequences, or a batch of shorter ones.
PromiseGroup group_size(int64_t group, int64_t dim, int64_t batch, int32_t all) {
  GroupBuilder builder;
  const int64_t kv_len = batch == 1 ? 32768 : 2048;
  const std::string text = (batch == 1 ? "" : text_of("batch ", batch) + " ") + text_of("S=", kv_len) +
                           text_of(" d=", dim) + text_of(" group ", group);
  AttentionCase c = decode_case(kv_len, dim, 8 * group, 8, all);
  c.batch = batch;
  const std::string by_threads = text_of(", ", all) + " threads";
  if (group <= 4) {
    builder.one(Measure::kShareOfReading, builder.add(c), group <= 3 ? 0.90 : 0.85, text + by_threads + ", of reading");
  } else {
    builder.one(Measure::kShareOfLimit, builder.add(c), 0.80, text + by_threads + ", of lower limit");
  }
  if (group <= 3) {
    c.threads = 1;
    builder.one(Measure::kShareOfReading, builder.add(c), 0.80, text + ", 1 thread, of reading");
  }
  builder.each_alone();  // a team that waits for another case's turn goes to sleep
  return builder.take();
}

// 16-bit caches, out and queries too. less: points that f16 may stay behind bf16.
PromiseGroup group_size_16(int32_t type, int32_t arithmetic, int64_t group, int32_t all) {
  GroupBuilder builder;
  AttentionCase c = decode_case(32768, 128, 8 * group, 8, all);
  c.q_type = c.kv_type = type;
  c.arithmetic = arithmetic;
  const bool native = arithmetic == LW_ARITHMETIC_NATIVE_BF16;
  const double less = type == LW_TYPE_F16 ? 0.05 : 0;
  const std::string name = native ? "native bf16" : type == LW_TYPE_F16 ? "f16" : "bf16";
  const std::string text = name + " S=32768 d=128" + text_of(" group ", group) + text_of(", ", all) + " threads, of ";
  if (group <= 2 || (native && group <= 4)) {
    builder.one(Measure::kShareOfReading, builder.add(c), 0.88 - less, text + "reading");
  } else {
    builder.one(Measure::kShareOfLimit, builder.add(c), (native ? 0.80 : 0.78) - less, text + "lower limit");
  }
  return builder.take();
}

// One query row a kv head's group on so many threads, over the same on fewer.
PromiseGroup more_threads(Measure measure, int64_t kv_len, int64_t q_heads, int64_t kv_heads, int32_t more,
                          int32_t fewer, double asked, const std::string& text) {
  GroupBuilder builder;
  const size_t a = builder.add(decode_case(kv_len, 128, q_heads, kv_heads, more));
  const size_t b = builder.add(decode_case(kv_len, 128, q_heads, kv_heads, fewer));
  builder.ratio(measure, a, b, asked, text);
  return builder.take();
}

PromiseGroup token_major(int32_t type, int64_t kv_heads, int32_t all) {
  GroupBuilder builder;
  AttentionCase c = decode_case(16384, 128, 32, kv_heads, all);
  c.q_type = c.kv_type = type;
  const char* name = type == LW_TYPE_F32 ? "" : type == LW_TYPE_BF16 ? "bf16 " : "f16 ";
  const size_t heads_first = builder.add(c);
  c.tokens_first = true;
  builder.ratio(Measure::kReadingRatio, builder.add(c), heads_first, 0.85,
                name + text_of("[batch, len, heads, dim], heads 32/", kv_heads) + ", over heads first");
  return builder.take();
}

PromiseGroup pages(int32_t all) {
  GroupBuilder builder;
  AttentionCase c = decode_case(32768, 128, 32, 8, all);
  const size_t dense = builder.add(c);
  for (const int64_t page_size : {16, 64, 256, 1}) {
    c.page_size = page_size;
    builder.ratio(Measure::kReadingRatio, builder.add(c), dense, page_size == 1 ? 0.75 : 0.90,
                  text_of("pages of ", page_size) + ", heads 32/8, rate over dense");
  }
  return builder.take();
}

// Both kernels and the step from one to the other.
PromiseGroup curve(int32_t all) {
  GroupBuilder builder;
  size_t first_long = 0, last = 0;
  for (int64_t rows = 1; rows <= kCurveRows; ++rows) {
    last = builder.add(curve_case(rows, all));
    if (rows == 32) first_long = last;
  }
  Promise any = {"1 to 64 rows a kv head, S=8192, the lowest", Measure::kShareOfLimit, 0.75, 0};
  any.last = last;
  builder.add(any);
  Promise many = {"32 to 64 rows a kv head, of FMA peak, the lowest", Measure::kShareOfPeak, 0.85, first_long};
  many.last = last;
  builder.add(many);
  builder.each_alone();
  return builder.take();
}

// A server's step: sequences that decode, of very different lengths, and a chunk of a new one's prefill.
PromiseGroup mixed(int32_t all) {
  GroupBuilder builder;
  AttentionCase c = decode_case(4096, 128, 32, 8, all);
  c.q_len = 512;
  const size_t prefill = builder.add(c);
  c.decodes = 32;
  const size_t together = builder.add(c);
  c.batch = 0;
  const size_t decode = builder.add(c);
  Promise promise = {"32 decodes + 512 rows of prefill, time over alone", Measure::kTimeRatio, 1.1, together, prefill};
  promise.c = decode;
  builder.add(promise);
  return builder.take();
}

PromiseGroup paged_window(int32_t all) {
  AttentionCase c = decode_case(65536, 128, 8, 8, all);
  c.page_size = 16;
  return window_decode(c, "W03 window 512");
}

PromiseGroup idle_team(int32_t all) {
  GroupBuilder builder;
  const size_t c = builder.add(decode_case(8192, 128, 8, 8, all));
  builder.one(Measure::kHostRate, c, 0.9, "S09 the host's own loop after a call, over before");
  builder.one(Measure::kIdleTeam, c, 100, "S09 processor time of an idle second, ms");
  return builder.take();
}

}  // namespace

std::vector<PromiseGroup> decode_promises() {
  const int32_t all = all_threads();
  std::vector<PromiseGroup> groups;
  groups.push_back(idle_team(all));  // first: before there is a team
  for (const int64_t batch : {1, 16}) {
    for (const int64_t dim : {128, 64}) {
      for (const int64_t group : {1, 2, 3, 4, 5, 7, 8}) groups.push_back(group_size(group, dim, batch, all));
    }
  }
  groups.push_back(more_threads(Measure::kReadingRatio, 32768, 1, 1, std::min(2, all), 1, 1.8,
                                "1 kv head, S=32768: 2 threads, rate over one's"));
  // From memory: S = 32768 of one head nearly fits a last cache.
  groups.push_back(more_threads(Measure::kReadingGain, 131072, 1, 1, std::min(2, all), 1, 0.9,
                                "1 kv head, S=131072: gain of 2 threads over reading's"));
  groups.push_back(more_threads(Measure::kReadingRatio, 32768, 8, 2, all, (all + 1) / 2, 1.5,
                                "W05 heads 8/2: all threads, rate over half of them"));
  for (const int64_t kv_heads : {8, 32}) groups.push_back(token_major(LW_TYPE_F32, kv_heads, all));
  groups.push_back(pages(all));
  groups.push_back(curve(all));
  groups.push_back(mixed(all));
  groups.push_back(paged_window(all));
  for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    for (const int64_t group : {1, 2, 4, 8}) {
      groups.push_back(group_size_16(type, LW_ARITHMETIC_CANONICAL, group, all));
    }
    groups.push_back(token_major(type, 8, all));
  }
  if (has_bf16_dot()) {
    for (const int64_t group : {1, 2, 3, 4, 8}) {
      groups.push_back(group_size_16(LW_TYPE_BF16, LW_ARITHMETIC_NATIVE_BF16, group, all));
    }
  }
  return groups;
}

}  // namespace lanewise::bench
