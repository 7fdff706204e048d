// What the machine gives this process: threads. Asked once.
#pragma once

#include <cstdint>

namespace lanewise {

// CPUs this process may use: its affinity mask, and the cgroup's quota where that is smaller. At least 1.
int32_t usable_cpus();

}  // namespace lanewise
