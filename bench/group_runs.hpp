// Measures the cases of a group of promises.
#pragma once

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "acceptance_lines.hpp"
#include "team.hpp"

namespace lanewise::bench {

inline constexpr int kRuns = 3;
inline constexpr int kRepeats = 20;

// One run of one case. What no promise needs stays as it is here.
struct CaseRun {
  double seconds = std::numeric_limits<double>::infinity();    // best of kRepeats
  double peak = 0;                                             // GFLOP/s: the best measured around and between them
  double bandwidth = 0;                                        // GB/s: the best of as many passes in turns with them
  double plan_make = std::numeric_limits<double>::infinity();  // seconds
  double idle_time = 0;                                        // seconds of processor time in an idle second
  double host_before = 0, host_after = 0;                      // FMA peak before the library was used and after it
};

using CaseRuns = std::array<CaseRun, kRuns>;

// Of every case of the group, by its index. Fails with a message in `problem` if one cannot run here.
std::vector<CaseRuns> measure_group(const PromiseGroup& group, const std::vector<Promise>& wanted, Clock clock,
                                    std::string& problem);

}  // namespace lanewise::bench
