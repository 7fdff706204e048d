// What is promised: groups of cases that are measured in turns, and what each line asks of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attention_case.hpp"

namespace lanewise::bench {

enum class Measure {
  kShareOfPeak,   // rate of a over the FMA peak of its target and threads
  kRateRatio,     // rate of a over rate of b
  kTimeRatio,     // time of a over time of b; held if not above
  kMicroseconds,  // time of a; held if not above
  kPlanMake,      // time of Plan::make for a, in microseconds; held if not above
};

struct Promise {
  std::string text;
  Measure measure;
  double asked;
  size_t a;
  size_t b = 0;
};

// Cases of a group are run one after the other, again and again: what disturbs the machine disturbs all of them.
struct PromiseGroup {
  std::vector<AttentionCase> cases;
  std::vector<Promise> promises;
};

std::vector<PromiseGroup> promise_groups();

}  // namespace lanewise::bench
