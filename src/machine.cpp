#include "machine.hpp"

#include <cstdio>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace lanewise {
namespace {

int32_t affinity_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int32_t>(n) : 1;
}

// The quota of a container (cgroup version 2, as the container itself sees it), in CPUs rounded up; 0: none.
int32_t quota_cpus() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (file == nullptr) return 0;
  long long quota = 0, period = 0;
  const int read = std::fscanf(file, "%lld %lld", &quota, &period);  // "max 100000" where there is none
  std::fclose(file);
  if (read != 2 || quota <= 0 || period <= 0) return 0;
  const long long cpus = (quota + period - 1) / period;
  return cpus > INT32_MAX ? INT32_MAX : static_cast<int32_t>(cpus);
}

int32_t ask() {
  const int32_t affinity = affinity_cpus();
  const int32_t quota = quota_cpus();
  const int32_t cpus = quota > 0 && quota < affinity ? quota : affinity;
  return cpus < 1 ? 1 : cpus;
}

}  // namespace

int32_t usable_cpus() {
  static const int32_t cpus = ask();
  return cpus;
}

}  // namespace lanewise
