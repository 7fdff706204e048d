// Failures other attention kernels had (docs/RELIABILITY.md), group F: edges of sliding windows.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("F01: a window to the left has that many keys and the own one") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t left : {0, 1, 2, 4, 9, 10, 11}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(10, 10).dims(1, 10).causal().window(left, -1);
    c.q().fill(0);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t x, float& value) { value = j == x; });
    for (const Result& result : c.check()) {
      for (int64_t i = 0; i < 10; ++i) {
        const int64_t count = std::min(i, left) + 1;
        for (int64_t x = 0; x < 10; ++x) {
          const float weight = x <= i && x > i - count ? 1.0f / static_cast<float>(count) : 0.0f;
          CHECK(result.out.at(0, 0, i, x) == rounded(storage.type, weight));
        }
      }
    }
  }
}

TEST_CASE("F03: a windowed prefill's rows are decode steps") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case prefill = Case().stored_as(storage).len(23, 23).dims(64).causal().window(4, -1);
  prefill.check();
  for_each_target_of(prefill, [&](const std::string& target) {
    const Result rows = prefill.run({target});
    for (int64_t i = 0; i < 23; ++i) {
      const Result step = Case(prefill.query_part(i, i + 1)).key_part(0, i + 1).run({target});
      CHECK(bit_difference(rows.out.slice(2, i, i + 1), step.out) == "");
      CHECK(bit_difference(rows.lse.slice(2, i, i + 1), step.lse) == "");
    }
  });
}

TEST_CASE("F05: decode keeps to the window") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(1, 600).dims(8, 3).window(511, -1);
  c.q().fill(0);
  c.v().each([](int64_t, int64_t, int64_t j, int64_t, float& value) { value = j < 88 ? 1e6f : 1.0f; });
  for (const Result& result : c.check()) {
    for (const float value : result.out.values) CHECK(value == 1);
  }
}

TEST_CASE("F10: grouped heads find needles inside the window only") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(8, 2).len(300, 300).dims(32).causal().window(63, -1);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t j = 20; j < 300; j += 50) {
      for (int64_t x = 0; x < 32; ++x) {
        c.k().at(0, h, j, x) *= 20;
        c.v().at(0, h, j, x) = 1e3f * static_cast<float>(j);
      }
    }
  }
  c.check();
}

TEST_CASE("F: every window on every side of the keys") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t left : {-1, 0, 3, 20, 300}) {
    for (const int64_t right : {-1, 0, 2, 40}) {
      for (const int64_t offset : {-30, -5, 0, 200, 290, 320}) {
        Case c = Case().stored_as(storage).heads(2, 1).len(17, 300).dims(8).q_offset(offset).window(left, right);
        const Expectation expected(c);
        for_each_target_of(c, [&](const std::string& target) {
          Prepared p = c.prepare();
          INFO("window " << left << ", " << right << ", offset " << offset << " on " << target);
          CHECK(expected.difference(run_prepared(p, {target})) == "");
        });
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
