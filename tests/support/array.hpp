// A dense float array [n0, n1, n2, n3]: the logical content of q, k, v, out (batch, head, len, dim) and lse (dim 1),
// whatever a tensor's storage type and strides are. Also the storage types' conversions, written apart from the
// library's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lanewise::test {

using Shape = std::array<int64_t, 4>;

struct Array {
  Shape shape = {0, 0, 0, 0};
  std::vector<float> values;

  Array() = default;
  explicit Array(const Shape& s, float value = 0.0f) : shape(s), values(size_of(s), value) {}

  static size_t size_of(const Shape& s) { return static_cast<size_t>(s[0] * s[1] * s[2] * s[3]); }
  size_t index(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    return static_cast<size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d);
  }
  float& at(int64_t a, int64_t b, int64_t c, int64_t d = 0) { return values[index(a, b, c, d)]; }
  float at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const { return values[index(a, b, c, d)]; }

  // Calls f(a, b, c, d, value) for every element, in row-major order.
  template <class F>
  void each(F f) {
    each_of(*this, f);
  }
  template <class F>
  void each(F f) const {
    each_of(*this, f);
  }

  void fill(float value) { values.assign(values.size(), value); }

  // Elements begin ... end - 1 of one axis.
  Array slice(int axis, int64_t begin, int64_t end) const;

 private:
  template <class Self, class F>
  static void each_of(Self& self, F f) {
    size_t n = 0;
    for (int64_t a = 0; a < self.shape[0]; ++a)
      for (int64_t b = 0; b < self.shape[1]; ++b)
        for (int64_t c = 0; c < self.shape[2]; ++c)
          for (int64_t d = 0; d < self.shape[3]; ++d) f(a, b, c, d, self.values[n++]);
  }
};

// Empty when a and b hold the same bits in the same shape, else the first difference in words.
std::string bit_difference(const Array& a, const Array& b);
// The same for arrays joined along an axis.
Array concatenate(int axis, const std::vector<Array>& parts);

uint32_t bits_of(float value);
float float_of(uint32_t bits);

// Storage types, LW_TYPE_F32, BF16, F16: size in bytes; one value written (to nearest even) and read.
int64_t type_size(int32_t type);
void store(int32_t type, void* data, int64_t index, float value);
float load(int32_t type, const void* data, int64_t index);
// A value as the type holds it.
float rounded(int32_t type, float value);
void round_to(int32_t type, Array& array);

}  // namespace lanewise::test
