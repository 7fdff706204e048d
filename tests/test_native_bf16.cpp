// native_bf16: within its own bound of the reference, and the same bits whichever kernel, chunk, thread count and storage
// computes a row, on targets that have the bf16 pair dot; a clear status on those that do not.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class Body>
void for_each_native_target(Body body) {
  for_each_target([&](const std::string& target) {
    count_case(target);
    if (has_native_bf16(target)) body(target);
  });
}

TEST_CASE("native_bf16 agrees with the reference within its bound") {
  for (const int32_t out : {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16}) {
    const auto make = [&] { return Case().types(LW_TYPE_BF16, LW_TYPE_BF16, out).native_bf16(); };
    INFO("out type " << out);
    make().heads(2, 1).len(70, 300).dims(64).check();
    make().batch(2).heads(3, 1).len(61, 259).dims(7, 5).causal().check();
    make().heads(4, 2).len(50, 530).dims(80, 48).causal().check();
    make().batch(2).heads(9, 3).len(1, 700).dims(64).check();
    make().heads(5, 1).len(1, 300).dims(39, 21).check();
    make().heads(2, 1).len(4, 600).dims(32).causal().window(290, -1).check();
    make().heads(2, 2).len(60, 500).dims(40).causal().window(33, -1).check();
    make().batch(3).heads(2, 2).len(40, 300).dims(24).causal().q_lengths({40, 0, 7}).kv_lengths({299, 21, 0}).check();
    make().batch(2).heads(4, 2).len(30, 290).dims(33).causal().paged(17).check();
    make().batch(2).heads(4, 2).len(1, 291).dims(48).paged(16).check();
    make().batch(3).heads(4, 2).len(33, 290).dims(16).causal().ragged_q().ragged_kv().check();
    make().heads(1, 1).len(1, 1).dims(1).check();
    make().heads(1, 1).len(20, 3).dims(1, 2).causal().check();
  }
}

TEST_CASE("native_bf16 with odd starts: pairs are positions of the key axis") {
  for (const int32_t start : {1, 255, 256, 257, 4095}) {
    INFO("kv_start " << start);
    Case().heads(2, 1).len(20, 300).dims(24).kv_starts({start}).causal().native_bf16().check();
    Case().heads(2, 1).len(1, 299).dims(24).kv_starts({start}).native_bf16().check();
  }
}

TEST_CASE("native_bf16 keeps its bound for large scores and any head size") {
  for (const int64_t dim : {32, 64, 80, 96, 128, 192, 256}) {
    for (const float amplitude : {1.0f, 8.0f, 16.0f}) {
      INFO("dim " << dim << ", q and k up to " << amplitude);
      const auto make = [&] { return Case().dims(dim).amplitudes(amplitude, amplitude, 3).native_bf16(); };
      make().heads(2, 1).len(40, 520).causal().check();
      make().heads(4, 1).len(1, 520).check();
    }
  }
}

TEST_CASE("native_bf16: a decode step is a row of the prefill, in chunks of any size") {
  for (const int64_t dim : {32, 64, 77, 128}) {
    for (const int64_t group : {1, 3, 4, 8}) {
      Case whole = Case().heads(group, 1).len(300, 521).dims(dim).causal().native_bf16();
      for_each_native_target([&](const std::string& target) {
        const Result expected = whole.run({target});
        REQUIRE(std::string(expected.status.message) == "");
        INFO(target << ", dim " << dim << ", group " << group);
        for (const int64_t chunk : {1, 2, 5, 64}) {
          std::vector<Array> out, lse;
          const int64_t step = chunk == 1 ? 7 : chunk;  // of single rows, every seventh
          for (int64_t i = 0; i < 300; i += step) {
            const int64_t end = std::min<int64_t>(300, i + chunk);
            const Result part = whole.query_part(i, end).run({target});
            REQUIRE(std::string(part.status.message) == "");
            CHECK(bit_difference(expected.out.slice(2, i, end), part.out) == "");
            CHECK(bit_difference(expected.lse.slice(2, i, end), part.lse) == "");
          }
        }
      });
    }
  }
}

// Sums of bf16 probs of one size are exact in float32, in any order. Scores far apart make every addition round.
TEST_CASE("native_bf16: sums that round are added in the same order by both kernels") {
  for (int64_t group = 2; group <= 14; ++group) {
    Case whole = Case().heads(group, 1).len(60, 700).dims(64, 40).amplitudes(4, 4, 1).causal().native_bf16();
    for_each_native_target([&](const std::string& target) {
      const Result expected = whole.run({target});
      REQUIRE(std::string(expected.status.message) == "");
      for (int64_t i = group % 3; i < 60; i += 6) {
        const Result step = whole.query_part(i, i + 1).run({target});
        INFO(target << ", group of " << group << ", row " << i);
        CHECK(bit_difference(expected.out.slice(2, i, i + 1), step.out) == "");
        CHECK(bit_difference(expected.lse.slice(2, i, i + 1), step.lse) == "");
      }
    });
  }
}

TEST_CASE("native_bf16: storage, threads and batches change nothing") {
  Case dense = Case().batch(3).heads(4, 2).len(37, 700).dims(48).causal().native_bf16();
  Case decode = Case().batch(3).heads(4, 2).len(1, 9000).dims(48).native_bf16();
  for (Case* c : {&dense, &decode}) {
    for_each_native_target([&](const std::string& target) {
      INFO(target);
      const Result expected = c->run({target});
      REQUIRE(std::string(expected.status.message) == "");
      for (const int32_t threads : {2, 7}) CHECK(bit_difference(expected, c->run({target, threads})) == "");
      for (const int64_t page : {1, 2, 16, 17, 256}) {
        Case paged = *c;
        CHECK(bit_difference(expected, paged.paged(page).run({target, 2})) == "");
      }
      Case ragged = *c;
      CHECK(bit_difference(expected, ragged.ragged_q().ragged_kv().run({target, 2})) == "");
      for (const Layout layout : {Layout::kBlhd, Layout::kTransposed}) {
        Case strided = *c;
        CHECK(bit_difference(expected, strided.layouts(layout, layout, layout, layout).run({target})) == "");
      }
      for (int64_t b = 0; b < 3; ++b) {
        CHECK(bit_difference(expected.out.slice(0, b, b + 1), c->batch_part(b).run({target}).out) == "");
      }
    });
  }
}

TEST_CASE("native_bf16: continuing is one run") {
  Case whole = Case().heads(2, 1).len(9, 8300).dims(16).causal().native_bf16();
  for_each_native_target([&](const std::string& target) {
    const Result expected = whole.run({target});
    const Result first = whole.key_part(0, 4096).with_state().run({target});
    CHECK(bit_difference(expected, whole.key_part(4096, 8300).continue_from(first).run({target})) == "");
  });
}

// What a row may not see, its pair partner included, never reaches it; what it sees does.
TEST_CASE("native_bf16: NaN and infinities stay with the rows that see them") {
  for (const int64_t q_len : {3, 50}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const int64_t key : {280, 281}) {
        Case c = Case().heads(2, 1).len(q_len, 300).dims(16).causal().q_offset(300 - q_len).native_bf16();
        Case clean = c;
        const int64_t first = key - (300 - q_len);  // the first query that sees the key
        for (int64_t x = 0; x < 16; ++x) c.v().at(0, 0, key, x) = bad;
        c.check();
        for_each_native_target([&](const std::string& target) {
          const Result spoilt = c.run({target}), expected = clean.run({target});
          INFO(target << ", " << q_len << " queries, key " << key);
          if (first > 0) {
            const int64_t rows = std::min(first, q_len);
            CHECK(bit_difference(expected.out.slice(2, 0, rows), spoilt.out.slice(2, 0, rows)) == "");
          }
        });
      }
    }
  }
}

TEST_CASE("best is native_bf16 where types and target allow it, and says so") {
  for_each_target([&](const std::string& target) {
    count_case(target);
    for (const int32_t k_type : {LW_TYPE_BF16, LW_TYPE_F16}) {
      lw_problem p = lw_problem_default();
      p.q_len = p.kv_len = p.qk_dim = p.v_dim = 8;
      p.q_type = p.v_type = LW_TYPE_BF16;
      p.k_type = k_type;
      p.arithmetic = LW_ARITHMETIC_BEST;
      const PreparedPlan plan(p, target);
      REQUIRE(plan.status().code == LW_OK);
      lw_explanation e = {};
      e.struct_size = sizeof e;
      REQUIRE(lw_plan_explain(plan.get(), 1, &e).code == LW_OK);
      const bool native = has_native_bf16(target) && k_type == LW_TYPE_BF16;
      CHECK(std::string(e.arithmetic) == (native ? "native_bf16" : "canonical"));
    }
  });
}

}  // namespace
}  // namespace lanewise::test
