#include "team.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <thread>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lanewise::bench {
namespace {

// A spinning barrier: waking a sleeping thread would take a good part of a millisecond, as long as what is measured.
class Barrier {
 public:
  explicit Barrier(int32_t threads) : threads_(threads) {}

  void wait() {
    const int64_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_.store(0);
      round_.fetch_add(1);
      return;
    }
    for (int spins = 0; round_.load() == round; ++spins) {
      if (spins > 4000) std::this_thread::yield();  // more threads than free cores
    }
  }

 private:
  const int32_t threads_;
  std::atomic<int32_t> arrived_{0};
  std::atomic<int64_t> round_{0};
};

}  // namespace

double now(Clock clock) {
  if (clock == Clock::kThread) {
    timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0) {
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best_seconds(int32_t threads, int32_t repeats, const std::function<void(int32_t)>& work) {
  double best = std::numeric_limits<double>::infinity();
  Barrier barrier(threads);
  const auto body = [&](int32_t thread) {
    for (int32_t i = 0; i < repeats; ++i) {
      barrier.wait();
      const double start = now();
      work(thread);
      barrier.wait();
      if (thread == 0) best = std::min(best, now() - start);
    }
  };
  std::vector<std::thread> others;
  for (int32_t thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& other : others) other.join();
  return best;
}

double seconds_of_team(int32_t threads, const std::function<void(int32_t)>& work, Clock clock) {
#if defined(_OPENMP)
  if (threads > 1) {
    double start = std::numeric_limits<double>::infinity();
#pragma omp parallel num_threads(threads) reduction(min : start)
    {
#pragma omp barrier
      start = now();
      for (int32_t thread = omp_get_thread_num(); thread < threads; thread += omp_get_num_threads()) work(thread);
    }
    return now() - start;
  }
#endif
  const double start = now(clock);
  for (int32_t thread = 0; thread < threads; ++thread) work(thread);
  return now(clock) - start;
}

}  // namespace lanewise::bench
