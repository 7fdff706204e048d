// The loops behind the peaks, one set a target: nothing but the instruction whose rate is asked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lanewise::bench {

struct PeakLoops {
  // Independent chains of float32 multiply-adds in registers, in the target's own instructions.
  void (*fma)(int64_t rounds) = nullptr;
  double fma_flops = 0;  // of a round
  // The same with the bf16 pair dot; nullptr where the target emulates it.
  void (*bf16_dot)(int64_t rounds) = nullptr;
  double bf16_dot_flops = 0;
  // Loads every byte once, in address order; `bytes` is a multiple of kReadStep and `data` aligned to a vector.
  void (*read)(const void* data, size_t bytes) = nullptr;
};

inline constexpr size_t kReadStep = 512;

PeakLoops peak_loops_for(int64_t target);

}  // namespace lanewise::bench
