// What tests of masks and biases share.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "case.hpp"

namespace lanewise::test {

// value(batch, head, query, key)
template <class Value>
Array filled(const Shape& shape, Value value) {
  Array array(shape);
  array.each([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) { x = static_cast<float>(value(b, h, i, j)); });
  return array;
}

// Rows [begin, end) of the first head are empty: out 0, lse -inf.
inline void check_empty(const Result& result, int64_t begin, int64_t end) {
  INFO(result.target);
  for (int64_t i = begin; i < end; ++i) {
    CHECK(result.lse.at(0, 0, i) == -std::numeric_limits<float>::infinity());
    for (int64_t x = 0; x < result.out.shape[3]; ++x) CHECK(result.out.at(0, 0, i, x) == 0);
  }
}

// Equal but for float32 sums in another order, each then rounded to the storage type.
inline void check_close(const Storage& storage, const Array& expected, const Array& result) {
  for (size_t n = 0; n < expected.values.size(); ++n) {
    const double value = static_cast<double>(expected.values[n]), off = static_cast<double>(result.values[n]) - value;
    if (!(std::fabs(off) <= 1e-6 + 2 * rounding_bound(storage.type, value))) FAIL("element " << n << " off " << off);
  }
}

// Runs `c` with all its keys in memory as they are, and masks of another case.
inline Result run_unpoisoned(Case c, Case with_masks, const std::string& target) {
  Prepared p = c.prepare();
  const Prepared masks = with_masks.prepare();
  p.problem = masks.problem;
  p.inputs.mask = masks.inputs.mask;
  p.inputs.bias = masks.inputs.bias;
  return run_prepared(p, {target});
}

}  // namespace lanewise::test
