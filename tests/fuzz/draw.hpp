// Choices of a fuzzer: from a seed, or from bytes that a coverage-guided fuzzer mutates. Bytes that have run out are 0,
// so that every input is a whole list of choices and a short one is a small case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lanewise::test {

class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  Draw(const uint8_t* bytes, size_t size) : bytes_(bytes), left_(size), seeded_(false) {}

  // 0 ... n - 1, n up to 2^32.
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t within(int64_t low, int64_t high) { return low + below(high - low + 1); }
  // One in n.
  bool rarely(int64_t n) { return below(n) == n - 1; }
  template <class T, size_t n>
  T one_of(const T (&list)[n]) {
    return list[below(n)];
  }

 private:
  uint64_t next() {
    if (!seeded_) {
      uint64_t value = 0;
      for (int byte = 0; byte < 2 && left_ > 0; ++byte, --left_) value = value << 8 | *bytes_++;
      return value;
    }
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (x ^ (x >> 31)) >> 32;
  }

  uint64_t state_ = 0;
  const uint8_t* bytes_ = nullptr;
  size_t left_ = 0;
  bool seeded_ = true;
};

}  // namespace lanewise::test
