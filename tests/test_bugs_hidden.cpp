// Failures other attention kernels had (docs/RELIABILITY.md), groups A and B: rows and keys that see nothing, and what
// lies in memory that must not matter, by lengths, causal and window.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("A01: whole blocks hidden before and after a row's keys (by window)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t len : {640, 513, 1100}) {
    Case c = Case().stored_as(storage).heads(1, 1).len(len, len).dims(4).causal().window(9, -1);
    c.q().fill(1);
    c.k().fill(1);
    c.v().each([](int64_t, int64_t, int64_t j, int64_t d, float& value) {
      value = static_cast<float>(static_cast<double>(j) / 640 + static_cast<double>(d));
    });
    for (const Result& result : c.check()) {
      for (int64_t i = 0; i < len; ++i) {
        const int64_t first = std::max<int64_t>(0, i - 9);
        for (int64_t d = 0; d < 4; ++d) {
          double sum = 0;  // of what V holds, as stored
          for (int64_t j = first; j <= i; ++j) sum += static_cast<double>(rounded(storage.type, c.v().at(0, 0, j, d)));
          const double mean = sum / static_cast<double>(i - first + 1);
          const double bound = 1e-6 * (static_cast<double>(d) + 2) + rounding_bound(storage.type, mean);
          const double off = static_cast<double>(result.out.at(0, 0, i, d)) - mean;
          if (!(std::fabs(off) <= bound)) FAIL(result.target << " row " << i << " off " << off);
        }
      }
    }
  }
}

TEST_CASE("A07: causal with more queries than keys") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).len(7, 3).dims(64).causal();
  for (const Result& result : c.check()) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 4; ++i) {
        CHECK(result.lse.at(0, h, i) == -kInf);
        for (int64_t d = 0; d < 64; ++d)
          CHECK((result.out.at(0, h, i, d) == 0 && !std::signbit(result.out.at(0, h, i, d))));
      }
      CHECK(std::isfinite(result.lse.at(0, h, 4)));
    }
  }
}

TEST_CASE("A09: a row without keys does not keep what the output held before") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  // Row 0 of the first sequence, all rows of the second.
  Case c = Case().stored_as(storage).batch(2).len(4, 4).dims(2).scale(1).causal().q_offset(-1).kv_lengths({4, 0});
  for_each_target_of(c, [&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const int64_t size = lw_plan_workspace_size(plan.get(), 1);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    std::vector<std::vector<uint8_t>> results;
    for (const float before : {7.0f, kNan}) {
      const int64_t elements = static_cast<int64_t>(p.out.size()) / type_size(storage.type);
      for (int64_t n = 0; n < elements; ++n) store(storage.type, p.out.data(), n, before);
      REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, nullptr).code == LW_OK);
      results.emplace_back(p.out.data(), p.out.data() + p.out.size());
      for (int64_t n = 0; n < elements; ++n) {
        const bool sees_none = n / 16 == 1 || n / 2 % 4 == 0;  // [batch, 2 heads, 4 rows, 2]
        if (sees_none) CHECK(load(storage.type, p.out.data(), n) == 0);
      }
    }
    CHECK(results[0] == results[1]);
    count_case(target);
  });
  c.check();
}

TEST_CASE("B01: content of a hidden key or value does not reach the row (by length)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(2, 2).dims(4).kv_lengths({1});
  for (Array* array : {&c.q(), &c.k(), &c.v()}) {
    for (size_t n = 0; n < 8; ++n) array->values[n] = static_cast<float>(n);
  }
  for_each_target_of(c, [&](const std::string& target) {
    Prepared p = c.prepare();
    const Result plain = run_prepared(p, {target});
    for (const bool in_v : {false, true}) {
      for (const float content : {4.0f, 1e10f, kNan, kInf, -kInf}) {
        Prepared other = c.prepare(Edge::kStart, 4.0f);
        store(storage.type, (in_v ? other.v : other.k).data(), 4, content);
        CHECK(bit_difference(plain, run_prepared(other, {target})) == "");
      }
    }
  });
  c.check();
}

TEST_CASE("B03, B06: unused slots of a cache, whatever they hold (by length)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case short_rows =
      Case().stored_as(storage).batch(2).heads(1, 1).len(3, 3).dims(64).q_lengths({1, 3}).kv_lengths({1, 3});
  short_rows.q().fill(0.5f);
  short_rows.k().fill(0.25f);
  short_rows.v().fill(1);
  for (const Result& result : short_rows.check()) {
    for (const float value : result.out.slice(0, 1, 2).values) CHECK(value == 1);
  }
  Case half_used = Case().stored_as(storage).heads(16, 8).len(32, 128).dims(256).kv_lengths({32});
  half_used.check();
}

TEST_CASE("B07, R05: rows behind the last used one, and neighbour sequences (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case()
               .stored_as(storage)
               .batch(3)
               .heads(4, 4)
               .len(20, 20)
               .dims(128)
               .causal()
               .q_lengths({19, 20, 3})
               .kv_lengths({19, 7, 20});
  c.check();
  for_each_target_of(c, [&](const std::string& target) {
    const Result alone = c.batch_part(0).run({target});
    for (const float content : {0.5f, kNan, kInf}) {
      Case neighbours = c;
      for (Array* array : {&neighbours.q(), &neighbours.k(), &neighbours.v()}) {
        std::fill(array->values.begin() + static_cast<int64_t>(array->values.size()) / 3, array->values.end(), content);
      }
      const Result result = neighbours.run({target, 2});
      CHECK(bit_difference(alone.out, result.out.slice(0, 0, 1)) == "");
      CHECK(bit_difference(alone.lse, result.lse.slice(0, 0, 1)) == "");
    }
  });
}

TEST_CASE("B09: values straddling the end of the context") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t dim : {64, 80, 128}) {
    for (int32_t context = 1; context <= 33; ++context) {
      Case c = Case().stored_as(storage).len(1, 40).dims(dim).kv_lengths({context});
      const Expectation expected(c);
      for_each_target_of(c, [&](const std::string& target) {
        Prepared p = c.prepare(Edge::kEnd, kInf);
        const Result result = run_prepared(p, {target});
        CHECK(expected.difference(result) == "");
        for (const float value : result.out.values) CHECK(std::isfinite(value));
      });
    }
  }
}

// A NaN key that some rows see and others do not, in one tile: each row keeps to itself (P4 of docs/RELIABILITY.md).
TEST_CASE("B: NaN and inf in keys that are hidden from part of the rows") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const float content : {kNan, kInf, -kInf, 1e38f}) {
    for (const int64_t at : {0, 37, 255, 256, 290}) {
      Case c = Case().stored_as(storage).heads(4, 2).len(60, 300).dims(16).causal();
      c.k().at(0, 0, at, 3) = content;
      c.v().at(0, 1, at, 5) = content;
      const Expectation expected(c);
      for_each_target_of(c, [&](const std::string& target) {
        const Result result = c.run({target, 2});
        INFO(content << " at key " << at << " on " << target);
        REQUIRE(std::string(result.status.message) == "");
        // Rows before the key: bit for bit as if it held something else.
        Case plain = Case().stored_as(storage).heads(4, 2).len(60, 300).dims(16).causal();
        const Result usual = plain.run({target, 2});
        const int64_t before = std::max<int64_t>(0, at - 240);
        CHECK(bit_difference(usual.out.slice(2, 0, before), result.out.slice(2, 0, before)) == "");
        // Rows that see it: what the definition says, inf times a weight above 0 included.
        CHECK(expected.difference(result) == "");
        for (int64_t i = before; i < 60 && content != content; ++i) CHECK(std::isnan(result.out.at(0, 3, i, 5)));
      });
    }
  }
}

}  // namespace
}  // namespace lanewise::test
