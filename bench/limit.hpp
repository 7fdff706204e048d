// What a case is compared with: the lower of arithmetic and memory, both measured in this run.
#pragma once

#include <cstdint>

#include "attention_case.hpp"
#include "prepared_case.hpp"

namespace lanewise::bench {

// Peak of the case's arithmetic in GFLOP/s, on its target and threads, measured now.
double arithmetic_peak_of(const AttentionCase& c);

struct Limit {
  double seconds;  // the least time the case can take
  double rate;     // the same as GFLOP/s, or as GB/s where memory is the limit
  bool by_memory;
};

// `bandwidth`: of reading the case's keys and values, GB/s.
Limit limit_of(const AttentionCase& c, double arithmetic_peak, double bandwidth);

// A good moment of the machine lasts longer than one case: the best peaks seen in this process, each measured again on
// every call.
Limit measure_limit(const AttentionCase& c, const PreparedCase& prepared);

}  // namespace lanewise::bench
