// Failures other attention kernels had with caches of another type than the queries (docs/RELIABILITY.md), groups T and
// V. They are reports of 8-bit caches; the kinds behind them are looked for in 16-bit ones.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// f32 queries on a cache of each type, and bf16 on bf16 by pair dots.
const std::vector<Storage>& caches() {
  static const std::vector<Storage> all(std::begin(kStorages), std::end(kStorages));
  return all;
}
Case with_cache(const Storage& cache) {
  return cache.native ? Case().native_bf16() : Case().types(LW_TYPE_F32, cache.type, LW_TYPE_F32);
}

TEST_CASE("T05: groups of dims of very different size, by every way to add up a dot product") {
  for (const Storage& cache : caches()) {
    CAPTURE(cache.name);
    for (const int64_t dim : {64, 96, 128, 256}) {
      for (const int64_t q_len : {1, 5, 40}) {
        CAPTURE(dim, q_len);
        Case c = with_cache(cache).heads(4, 2).len(q_len, 300).dims(dim).scale(1e-3f);
        c.k().each([](int64_t, int64_t, int64_t, int64_t d, float& value) { value *= d / 32 % 2 == 0 ? 1 : 1e3f; });
        const std::vector<Result> results = c.check();
        for (const Result& result : results) {
          float largest = 0;
          for (size_t n = 0; n < result.out.values.size(); ++n)
            largest = std::max(largest, std::fabs(result.out.values[n] - results[0].out.values[n]));
          INFO(result.target << " and " << results[0].target);
          CHECK(largest <= 1e-5f);
        }
      }
    }
  }
}

TEST_CASE("V01: a column of values, all values, all keys of zeros") {
  constexpr int64_t kKeys = 70;
  for (const Storage& cache : caches()) {
    CAPTURE(cache.name);
    for (const int64_t q_len : {1, 3, 33}) {
      CAPTURE(q_len);
      const auto make = [&] { return with_cache(cache).heads(4, 2).len(q_len, kKeys).dims(32); };
      Case column = make(), values = make(), keys = make();
      column.v().each([](int64_t, int64_t, int64_t, int64_t d, float& value) { value = d == 3 ? 0 : value; });
      for (const Result& result : column.check()) {
        bool zeros = true;
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t i = 0; i < q_len; ++i) zeros = zeros && result.out.at(0, h, i, 3) == 0;
        }
        CHECK(zeros);
      }
      values.v().each([](int64_t, int64_t, int64_t, int64_t, float& value) { value = 0; });
      for (const Result& result : values.check()) {
        CHECK(std::all_of(result.out.values.begin(), result.out.values.end(), [](float x) { return x == 0; }));
      }
      keys.k().each([](int64_t, int64_t, int64_t, int64_t, float& value) { value = 0; });
      for (const Result& result : keys.check()) {
        bool means = true;
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t d = 0; d < 32; ++d) {
            double mean = 0;
            for (int64_t j = 0; j < kKeys; ++j)
              mean += static_cast<double>(rounded(cache.type, keys.v().at(0, h / 2, j, d))) / kKeys;
            for (int64_t i = 0; i < q_len; ++i)
              means = means && std::fabs(static_cast<double>(result.out.at(0, h, i, d)) - mean) <= 2e-6;
          }
        }
        CHECK(means);
        const double lse = std::log(static_cast<double>(kKeys));
        CHECK(std::all_of(result.lse.values.begin(), result.lse.values.end(),
                          [&](float x) { return std::fabs(static_cast<double>(x) - lse) <= 2e-6; }));
      }
    }
  }
}

TEST_CASE("V03: every small number of keys, head sizes and groups with fast paths of their own") {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= 40; ++n) lengths.push_back(n);
  for (int64_t n = 256; n <= 260; ++n) lengths.push_back(n);
  for (const int64_t dim : {64, 96, 128, 256}) {
    for (const int64_t group : {1, 4, 6}) {
      for (const int64_t q_len : {1, 2, 3, 4, 8, 9}) {
        for (const int64_t kv_len : lengths) {
          const Storage& cache = caches()[1 + static_cast<size_t>((q_len + kv_len) % 3)];  // the 16-bit ones in turn
          Case c = with_cache(cache).heads(group, 1).len(q_len, kv_len).dims(dim);
          const Expectation expected(c);
          for_each_target_of(c, [&](const std::string& target) {
            const std::string difference = expected.difference(c.run({target}));
            INFO(target << ", " << cache.name << ", dim " << dim << ", group " << group << ", " << q_len << " x "
                        << kv_len);
            CHECK(difference == "");
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
