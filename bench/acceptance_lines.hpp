// What is promised: groups of cases, and what each line asks of them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "attention_case.hpp"

namespace lanewise::bench {

enum class Measure {
  kShareOfPeak,     // rate of a over the FMA peak of its target and threads
  kShareOfReading,  // rate of reading keys and values over that of a plain read loop with as many threads
  kShareOfLimit,    // the same over the lower of reading and arithmetic
  kRateRatio,       // rate of a over rate of b
  kReadingRatio,    // the same in GB/s of keys and values
  kReadingGain,     // the same, compared with what a plain read loop gains from b's threads to a's
  kTimeRatio,       // time of a over time of b (and of c together); held if not above
  kMicroseconds,    // time of a; held if not above
  kPlanMake,        // time of Plan::make for a, in microseconds; held if not above
  kIdleTeam,        // milliseconds of processor time within a second, 0.3 s after a; held if not above
  kHostRate,        // FMA peak 0.3 s after a over that before it
};

struct Promise {
  static constexpr size_t kNone = ~size_t{0};

  std::string text;
  Measure measure;
  double asked;
  size_t a;
  size_t b = kNone, c = kNone;
  size_t last = kNone;  // of all cases a ... last the lowest share counts
};

// Cases of a group are run one after the other, again and again: what disturbs the machine disturbs all of them.
struct PromiseGroup {
  std::vector<AttentionCase> cases;
  std::vector<Promise> promises;
  bool in_turns = true;  // false: each case alone, for groups too large for memory
};

class GroupBuilder {
 public:
  size_t add(const AttentionCase& c) {
    group_.cases.push_back(c);
    return group_.cases.size() - 1;
  }
  void share(size_t a, double asked, const std::string& text) { one(Measure::kShareOfPeak, a, asked, text); }
  void one(Measure measure, size_t a, double asked, const std::string& text) {
    group_.promises.push_back({text, measure, asked, a});
  }
  void ratio(Measure measure, size_t a, size_t b, double asked, const std::string& text) {
    group_.promises.push_back({text, measure, asked, a, b});
  }
  void add(const Promise& promise) { group_.promises.push_back(promise); }
  void each_alone() { group_.in_turns = false; }
  PromiseGroup take() { return std::move(group_); }

 private:
  PromiseGroup group_;
};

// Decode with a window of 512: a long context costs what a short one does.
inline PromiseGroup window_decode(AttentionCase c, const std::string& text) {
  GroupBuilder builder;
  c.window_left = 511;
  const std::string context = std::to_string(c.kv_len);
  const size_t long_context = builder.add(c);
  c.kv_len = 1024;
  builder.ratio(Measure::kTimeRatio, long_context, builder.add(c), 1.5,
                text + ": context " + context + ", time over 1024");
  return builder.take();
}

std::vector<PromiseGroup> attention_promises();
std::vector<PromiseGroup> decode_promises();
std::vector<PromiseGroup> rule_promises();

}  // namespace lanewise::bench
