// Failures other attention kernels had (docs/RELIABILITY.md), groups E, K, L, M, O: causal alignment, grouped heads,
// strides, tile tails, empty sequences.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("E01: one query over sixteen keys, top-left and bottom-right") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(4, 4).len(1, 16).dims(64).causal();
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t j = 0; j < 16; ++j) c.v().at(0, h, j, 0) = static_cast<float>(j);
  }
  for (const Result& result : Case(c).q_offset(0).check()) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 64; ++d) {
        const float value = result.out.at(0, h, 0, d), expected = rounded(storage.type, c.v().at(0, h, 0, d));
        CHECK(std::fabs(value - expected) <= (storage.type == LW_TYPE_F32 ? 2e-7f * std::fabs(expected) : 0));
      }
    }
  }
  c.check();
}

TEST_CASE("E03: two tokens in one call and in two") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case whole = Case().stored_as(storage).len(2, 37).dims(64).causal();
  whole.check();
  for_each_target_of(whole, [&](const std::string& target) {
    const Result both = whole.run({target});
    for (int64_t i = 0; i < 2; ++i) {
      const Result one = whole.query_part(i, i + 1).key_part(0, 36 + i).run({target});
      CHECK(bit_difference(one.out, both.out.slice(2, i, i + 1)) == "");
      CHECK(bit_difference(one.lse, both.lse.slice(2, i, i + 1)) == "");
    }
  });
}

TEST_CASE("E05: prefill in chunks after a history") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case whole = Case().stored_as(storage).heads(4, 2).len(30, 41).dims(64).causal();
  whole.check();
  for_each_target_of(whole, [&](const std::string& target) {
    const Result once = whole.run({target});
    for (int64_t begin = 0; begin < 30; begin += 7) {
      const int64_t end = std::min<int64_t>(begin + 7, 30);
      Case chunk = Case(whole.query_part(begin, end)).key_part(0, 11 + end);
      const Result part = chunk.run({target});
      CHECK(bit_difference(part.out, once.out.slice(2, begin, end)) == "");
      CHECK(bit_difference(part.lse, once.lse.slice(2, begin, end)) == "");
    }
  });
}

TEST_CASE("E: every small pair of lengths, offsets on both sides of the keys") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t q_len : {1, 2, 5, 17}) {
    for (const int64_t kv_len : {1, 3, 16, 19}) {
      for (const int64_t offset : {-20, -3, 0, 2, 18, 40}) {
        Case c = Case().stored_as(storage).heads(3, 1).len(q_len, kv_len).dims(8).causal().q_offset(offset);
        const Expectation expected(c);
        for_each_target_of(c, [&](const std::string& target) { CHECK(expected.difference(c.run({target})) == ""); });
      }
    }
  }
  // Per sequence, with keys that start elsewhere.
  Case()
      .stored_as(storage)
      .batch(3)
      .heads(2, 1)
      .len(9, 30)
      .dims(8)
      .causal()
      .kv_starts({0, 5, 300})
      .q_offsets({21, 20, 299})
      .check();
  Case().stored_as(storage).batch(3).heads(2, 1).len(9, 30).dims(8).causal().kv_starts({1, 255, 256}).check();
}

TEST_CASE("K01: query heads of a group are neighbours") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(4, 2).len(1, 5).dims(16);
  c.v().each([](int64_t, int64_t h, int64_t, int64_t, float& value) { value = static_cast<float>(h); });
  for (const Result& result : c.check()) {
    for (int64_t h = 0; h < 4; ++h) CHECK(std::fabs(result.out.at(0, h, 0) - static_cast<float>(h / 2)) < 1e-6f);
  }
}

TEST_CASE("K03: grouped heads with sequences of different lengths (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case()
      .stored_as(storage)
      .batch(3)
      .heads(8, 2)
      .len(5, 5)
      .dims(16)
      .causal()
      .q_lengths({3, 5, 2})
      .kv_lengths({3, 5, 2})
      .check();
}

TEST_CASE("K05: head sizes of keys and values that differ") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const std::vector<std::array<int64_t, 2>> dims = {{256, 512}, {192, 128}, {576, 512}, {64, 1}, {1, 64}, {40, 80}};
  for (const auto& [qk_dim, v_dim] : dims) {
    for (const int64_t q_len : {1, 4}) Case().stored_as(storage).heads(8, 1).len(q_len, 33).dims(qk_dim, v_dim).check();
  }
}

TEST_CASE("L01: elements apart in memory, transposed views") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const Layout rows = Layout::kBhld;
  for (const Layout layout : {Layout::kSpread, Layout::kTransposed}) {
    for (const std::array<Layout, 3>& l :
         {std::array<Layout, 3>{layout, rows, rows}, {rows, layout, rows}, {rows, rows, layout}}) {
      Case().stored_as(storage).len(9, 70).dims(20).causal().layouts(l[0], l[1], l[2], rows).check();
    }
  }
}

TEST_CASE("L03: the output goes where the caller says") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const Layout rows = Layout::kBhld;
  for (const Layout out :
       {Layout::kBhld, Layout::kBlhd, Layout::kPaddedRows, Layout::kTransposed, Layout::kReversedLen}) {
    Case().stored_as(storage).batch(2).heads(4, 2).len(9, 30).dims(12, 10).layouts(rows, rows, rows, out).check();
  }
}

TEST_CASE("L05: strides of axes of size 1 mean nothing") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(1, 1).dims(1);
  c.check();
  for_each_target_of(c, [&](const std::string& target) {
    const Result plain = c.run({target});
    for (int64_t axis = 0; axis < 4; ++axis) {
      for (const int64_t stride :
           {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1} << 40, int64_t{-1}, INT64_MAX, INT64_MIN}) {
        Prepared p = c.prepare();
        for (lw_const_tensor* tensor : {&p.inputs.q, &p.inputs.k, &p.inputs.v}) tensor->stride[axis] = stride;
        const Result with_inputs = run_prepared(p, {target});
        CHECK(bit_difference(plain, with_inputs) == "");
        // The outputs' values are read back by the test itself, which uses element 0 only.
        for (lw_tensor* tensor : {&p.outputs.out, &p.outputs.lse}) tensor->stride[axis] = stride;
        CHECK(bit_difference(plain, run_prepared(p, {target})) == "");
      }
    }
    // One long axis, the other three of size 1.
    Case row = Case().stored_as(storage).heads(1, 1).len(1, 40).dims(8);
    const Result usual = row.run({target});
    Prepared p = row.prepare();
    p.inputs.k.stride[0] = p.inputs.v.stride[1] = INT64_MIN;
    p.inputs.q.stride[2] = int64_t{1} << 61;
    CHECK(bit_difference(usual, run_prepared(p, {target})) == "");
  });
}

TEST_CASE("M01: every number of keys up to two blocks") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (int64_t kv_len = 1; kv_len <= 2 * 256 + 1; ++kv_len) {
    for (int64_t q_len = 1; q_len <= 3; ++q_len) {
      if (q_len > 1 && kv_len % 16 > 2 && kv_len % 16 < 14) continue;  // more rows where tiles end
      Case c = Case().stored_as(storage).heads(1, 1).len(q_len, kv_len).dims(16, 5);
      for (int64_t j = 0; j < kv_len; ++j) c.v().at(0, 0, j, 2) = 1;
      const Expectation expected(c);
      for_each_target_of(c, [&](const std::string& target) {
        Prepared p = c.prepare(kv_len % 2 ? Edge::kEnd : Edge::kStart);
        const Result result = run_prepared(p, {target});
        INFO(kv_len << " keys, " << q_len << " queries on " << target);
        CHECK(expected.difference(result) == "");
        CHECK(result.damage == "");
        for (int64_t i = 0; i < q_len; ++i) CHECK(std::fabs(result.out.at(0, 0, i, 2) - 1) <= 2.4e-7f);
      });
    }
  }
}

TEST_CASE("M: every number of rows up to two tiles, grouped and causal") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (int64_t q_len = 1; q_len <= 100; ++q_len) {
    Case c = Case().stored_as(storage).heads(3, 1).len(q_len, q_len % 7 + 30).dims(9, 7).causal();
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      Prepared p = c.prepare(q_len % 2 ? Edge::kEnd : Edge::kStart);
      const Result result = run_prepared(p, {target});
      INFO(q_len << " queries on " << target);
      CHECK(expected.difference(result) == "");
      CHECK(result.damage == "");
    });
  }
}

TEST_CASE("M03: head sizes below, at and above a vector") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t dim : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63})
    Case().stored_as(storage).len(5, 40).dims(dim).check();
}

TEST_CASE("M05: rows padded in memory, poison in the padding") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const Layout padded = Layout::kPaddedRows;  // by three elements
  for (const int64_t dim : {5, 6, 13})
    Case().stored_as(storage).heads(16, 16).len(7, 21).dims(dim).layouts(padded, padded, padded, padded).check();
}

TEST_CASE("M07: longest query length 1, empty sequences between (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c =
      Case().stored_as(storage).batch(4).heads(9, 3).len(1, 5).dims(64).causal().scale(1).amplitudes(0.5f, 0.5f, 1);
  c.q_lengths({0, 1, 0, 1}).kv_lengths({0, 3, 0, 5}).check();
}

TEST_CASE("O03: no queries but keys in the middle of a batch (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const bool causal : {false, true}) {
    Case c =
        Case().stored_as(storage).batch(3).heads(2, 2).len(150, 100).dims(16).causal(causal).q_lengths({150, 0, 150});
    c.check();
  }
}

TEST_CASE("O05: rows past a sequence's last query are left alone (dense)") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  // Canaries in them: check() reports a written one.
  Case()
      .stored_as(storage)
      .batch(2)
      .heads(2, 1)
      .len(20, 20)
      .dims(16)
      .causal()
      .q_lengths({9, 8})
      .kv_lengths({9, 8})
      .with_state()
      .check();
}

}  // namespace
}  // namespace lanewise::test
