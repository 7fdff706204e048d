#include "array.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "lanewise/lanewise.h"

namespace lanewise::test {
uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace {

uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// By arithmetic: the nearest multiple of the f16 spacing at this magnitude, ties to even by nearbyint.
uint16_t to_f16(float value) {
  if (std::isnan(value)) return 0x7e00;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = -24;
  if (magnitude > 0) std::frexp(magnitude, &exponent);
  const int spacing = std::max(exponent - 11, -24);
  const double steps = std::nearbyint(std::ldexp(magnitude, -spacing));  // 0 ... 2048
  // Steps count on from the denormals through every binade: the code of a value is the number of representable steps.
  const double code = spacing == -24 ? steps : steps + 1024.0 * (spacing + 24);
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(code));
}

float from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else {
    magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

Array Array::slice(int axis, int64_t begin, int64_t end) const {
  Shape s = shape;
  s[static_cast<size_t>(axis)] = end - begin;
  Array part(s);
  part.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float& value) {
    std::array<int64_t, 4> at_index = {a, b, c, d};
    at_index[static_cast<size_t>(axis)] += begin;
    value = at(at_index[0], at_index[1], at_index[2], at_index[3]);
  });
  return part;
}

Array concatenate(int axis, const std::vector<Array>& parts) {
  const size_t x = static_cast<size_t>(axis);
  Shape s = parts.at(0).shape;
  s[x] = 0;
  for (const Array& part : parts) s[x] += part.shape[x];
  Array whole(s);
  int64_t begin = 0;
  for (const Array& part : parts) {
    part.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float value) {
      std::array<int64_t, 4> at_index = {a, b, c, d};
      at_index[x] += begin;
      whole.at(at_index[0], at_index[1], at_index[2], at_index[3]) = value;
    });
    begin += part.shape[x];
  }
  return whole;
}

std::string bit_difference(const Array& a, const Array& b) {
  if (a.shape != b.shape) return "shapes differ";
  for (size_t n = 0; n < a.values.size(); ++n) {
    if (bits_of(a.values[n]) == bits_of(b.values[n])) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %zu of %zu: %.9g (%08x) against %.9g (%08x)", n, a.values.size(),
                  static_cast<double>(a.values[n]), bits_of(a.values[n]), static_cast<double>(b.values[n]),
                  bits_of(b.values[n]));
    return text;
  }
  return "";
}

int64_t type_size(int32_t type) { return type == LW_TYPE_F32 ? 4 : 2; }

void store(int32_t type, void* data, int64_t index, float value) {
  if (type == LW_TYPE_F32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<uint16_t*>(data)[index] = type == LW_TYPE_BF16 ? to_bf16(value) : to_f16(value);
  }
}

float load(int32_t type, const void* data, int64_t index) {
  if (type == LW_TYPE_F32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == LW_TYPE_BF16 ? float_of(static_cast<uint32_t>(bits) << 16) : from_f16(bits);
}

float rounded(int32_t type, float value) {
  float storage = 0;
  store(type, &storage, 0, value);
  return load(type, &storage, 0);
}

void round_to(int32_t type, Array& array) {
  for (float& value : array.values) value = rounded(type, value);
}

}  // namespace lanewise::test
