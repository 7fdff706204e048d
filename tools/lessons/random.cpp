#include "lessons/random.hpp"

#include <cmath>

namespace lanewise::lessons {

// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
uint64_t Random::bits() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

float Random::uniform_variance_1() { return static_cast<float>((2 * uniform() - 1) * 1.7320508075688772); }

// Marsaglia's polar method: needs a logarithm and a square root, which IEEE 754 rounds exactly, but no sine or cosine.
float Random::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return static_cast<float>(spare_);
  }
  double u, v, s;
  do {
    u = 2 * uniform() - 1;
    v = 2 * uniform() - 1;
    s = u * u + v * v;
  } while (s >= 1 || s == 0);
  const double factor = std::sqrt(-2 * portable_log(s) / s);
  spare_ = v * factor;
  has_spare_ = true;
  return static_cast<float>(u * factor);
}

double portable_log(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh(t), |t| <= 0.172: the terms fall by more than 33 each.
  const double t = (m - 1) / (m + 1), z = t * t;
  double sum = 0;
  for (int n = 23; n >= 1; n -= 2) sum = sum * z + 1.0 / n;
  return 2 * t * sum + exponent * 0.69314718055994531;
}

}  // namespace lanewise::lessons
