// Seeded random numbers for the lessons: the same float32 bits on every machine, so that documents and tests can quote
// what is computed from them.
#pragma once

#include <cstdint>

namespace lanewise::lessons {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  float normal();              // mean 0, variance 1
  float uniform_variance_1();  // uniform in -sqrt(3) ... sqrt(3): mean 0, variance 1

 private:
  uint64_t bits();
  double uniform();  // in [0, 1), a multiple of 2^-53

  uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

// Natural logarithm within 1e-15 relative, by operations that IEEE 754 rounds the same way everywhere: those of the C
// library differ in the last bit from version to version.
double portable_log(double x);

}  // namespace lanewise::lessons
