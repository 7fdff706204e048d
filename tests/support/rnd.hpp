// The generator of docs/RELIABILITY.md: element i of stream s, in [-1, 1), exact in float32. i is the row-major index
// in the logical tensor, so that a value does not depend on layout.
#pragma once

#include <cstdint>

#include "array.hpp"

namespace lanewise::test {

inline float rnd(uint64_t stream, uint64_t i) {
  uint64_t x = (stream << 32) + i;
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x = x ^ (x >> 31);
  return static_cast<float>(static_cast<double>(x >> 40) / 8388608.0 - 1.0);
}

inline Array random_array(const Shape& shape, uint64_t stream, float amplitude = 1.0f) {
  Array array(shape);
  uint64_t i = 0;
  for (float& value : array.values) value = amplitude * rnd(stream, i++);
  return array;
}

}  // namespace lanewise::test
