// How long a run should take, from what the machine can do: a model with a handful of constants, for
// `lanewise explain --run`. The constants are those of docs/PERFORMANCE.md, "Why it is fast".
#pragma once

#include <cstdint>

#include "lanewise/lanewise.hpp"
#include "problem_case.hpp"

namespace lanewise::tools {

// Measured briefly, in this process.
struct MachineLimits {
  double peak = 0;       // FLOP/s of multiply-adds, or of pair dots, of all threads, in the target's instructions
  double bandwidth = 0;  // bytes/s of reading this case's keys and values, all threads
  double clock = 0;      // Hz of a busy core; 0: not known
};

// Made of pair dots, not of multiply-adds.
bool is_native(const lw_explanation& plan);

// thread_clock: of one thread, without what other processes took of its core.
MachineLimits measure_limits(const ProblemCase& c, const lw_explanation& plan, int32_t threads, bool thread_clock);
// The better of two measurements, number by number: a shared machine only ever takes away.
MachineLimits best_of(const MachineLimits& a, const MachineLimits& b);

struct Prediction {
  double arithmetic = 0;  // seconds of multiply-adds and probs
  double memory = 0;      // seconds of reading keys and values
  double rest = 0;        // a call, threads to wake
  double seconds() const;
};

Prediction predict(const ProblemCase& c, const lw_explanation& plan, int32_t threads, const MachineLimits& limits);

}  // namespace lanewise::tools
