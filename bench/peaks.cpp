#include "peaks.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "peak_loops.hpp"
#include "src/targets.hpp"
#include "team.hpp"

namespace lanewise::bench {
namespace {

constexpr double kBurst = 1.2e-3;  // seconds: shorter than a scheduler's slice, far longer than a barrier
constexpr int32_t kBursts = 16;

// Rounds of loop(rounds) that last about a burst.
template <class Loop>
int64_t rounds_of_a_burst(const Loop& loop) {
  int64_t rounds = 256;
  for (;;) {
    const double seconds = best_seconds(1, 3, [&](int32_t) { loop(rounds); });
    if (seconds > kBurst / 8) return std::max<int64_t>(1, std::llround(static_cast<double>(rounds) * kBurst / seconds));
    rounds *= 2;
  }
}

double arithmetic_peak(void (*loop)(int64_t), double flops, int32_t threads) {
  if (loop == nullptr) return 0;
  const int64_t rounds = rounds_of_a_burst(loop);
  const double seconds = best_seconds(threads, kBursts, [&](int32_t) { loop(rounds); });
  return flops * static_cast<double>(rounds) * threads / seconds / 1e9;
}

// What is read of them.
double bytes_of(const std::vector<Region>& regions) {
  size_t bytes = 0;
  for (const Region& region : regions) bytes += region.bytes / kReadStep * kReadStep;
  return static_cast<double>(bytes);
}

// Reads each region, cut evenly between the threads.
std::function<void(int32_t)> share_of_reading(const std::vector<Region>& regions, int32_t threads) {
  const PeakLoops loops = peak_loops_for(best_target());
  return [regions, threads, loops](int32_t thread) {
    for (const Region& region : regions) {
      const size_t steps = region.bytes / kReadStep;
      const size_t begin = steps * static_cast<size_t>(thread) / static_cast<size_t>(threads);
      const size_t end = steps * static_cast<size_t>(thread + 1) / static_cast<size_t>(threads);
      loops.read(static_cast<const char*>(region.data) + begin * kReadStep, (end - begin) * kReadStep);
    }
  };
}

}  // namespace

double fma_peak(int64_t target, int32_t threads) {
  const PeakLoops loops = peak_loops_for(target);
  return arithmetic_peak(loops.fma, loops.fma_flops, threads);
}

double bf16_dot_peak(int64_t target, int32_t threads) {
  const PeakLoops loops = peak_loops_for(target);
  return arithmetic_peak(loops.bf16_dot, loops.bf16_dot_flops, threads);
}

double read_bandwidth(const std::vector<Region>& regions, int32_t threads) {
  const double bytes = bytes_of(regions);
  if (bytes == 0) return 0;
  const auto read_all = share_of_reading(regions, threads);
  // Small regions are read several times a burst, large ones once however long that takes.
  const double once = best_seconds(threads, 3, read_all);
  const int64_t times = std::max<int64_t>(1, std::llround(kBurst / once));
  const int32_t bursts = once > 10 * kBurst ? 5 : kBursts;
  const double seconds = best_seconds(threads, bursts, [&](int32_t thread) {
    for (int64_t i = 0; i < times; ++i) read_all(thread);
  });
  const double best = std::min(seconds / static_cast<double>(times), once);
  return bytes / best / 1e9;
}

double read_bandwidth_once(const std::vector<Region>& regions, int32_t threads, Clock clock) {
  return bytes_of(regions) / seconds_of_team(threads, share_of_reading(regions, threads), clock) / 1e9;
}

double core_clock() {
#if defined(__x86_64__) || defined(__aarch64__)
  // A chain of dependent additions: one a cycle on every core of these architectures.
  const auto chain = [](int64_t rounds) {
    int64_t x = 0;
    for (int64_t r = 0; r < rounds; ++r) {
      for (int i = 0; i < 16; ++i) {
#if defined(__x86_64__)
        asm volatile("add %1, %0" : "+r"(x) : "r"(rounds));
#else
        asm volatile("add %0, %0, %1" : "+r"(x) : "r"(rounds));
#endif
      }
    }
  };
  const int64_t rounds = rounds_of_a_burst(chain);
  const double seconds = best_seconds(1, kBursts, [&](int32_t) { chain(rounds); });
  return 16 * static_cast<double>(rounds) / seconds / 1e9;
#else
  return 0;
#endif
}

}  // namespace lanewise::bench
