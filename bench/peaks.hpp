// What this machine can do, measured in this run: the limits that benches compare with. Each but
// read_bandwidth_once is the best of many short bursts (1 to 2 ms): on a shared machine some burst runs undisturbed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "team.hpp"

namespace lanewise::bench {

// GFLOP/s of `threads` threads at once, in the instructions of `target` (Highway's bit). A target without FMA
// multiplies and adds.
double fma_peak(int64_t target, int32_t threads);

// GFLOP/s of the bf16 pair dot; 0 where the target emulates it.
double bf16_dot_peak(int64_t target, int32_t threads);

// Memory of a case that is read as a whole.
struct Region {
  const void* data;
  size_t bytes;
};

// GB/s of a plain read loop over these regions, each cut evenly between the threads. What fits a cache is read from
// there.
double read_bandwidth(const std::vector<Region>& regions, int32_t threads);

// The same of one pass, by the team that runs use: for regions far larger than a cache, in turns with runs that read
// them, so that neither finds more of them in the last cache than the other.
double read_bandwidth_once(const std::vector<Region>& regions, int32_t threads, Clock clock);

// Core clock in GHz while one thread works; 0 where it is not known how to measure it.
double core_clock();

}  // namespace lanewise::bench
