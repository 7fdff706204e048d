// Threads that do one piece of work at the same moment, timed from their common start to the last one's end.
#pragma once

#include <cstdint>
#include <functional>

namespace lanewise::bench {

// kThread stands still while another process has the core: for one-thread cases on a machine that is busy with other
// things.
enum class Clock { kWall, kThread };

double now(Clock clock = Clock::kWall);  // seconds

// The shortest of `repeats` times that work(0) ... work(threads - 1) take together. The threads live for this call
// only: between measurements nothing spins on the cores.
double best_seconds(int32_t threads, int32_t repeats, const std::function<void(int32_t)>& work);

// The same once, on the OpenMP team that runs with as many threads use, from the first one's start: in turns with them,
// no team waits for the cores of another's spinning threads.
double seconds_of_team(int32_t threads, const std::function<void(int32_t)>& work, Clock clock);

}  // namespace lanewise::bench
