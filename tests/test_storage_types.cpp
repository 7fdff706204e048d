// 16-bit storage in canonical arithmetic: the bits of a float32 run on the widened values, rounded once at the end;
// every tensor its own type; both kernels, all layouts, all targets.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/plan.hpp"
#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr int32_t kTypes[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};

std::vector<Subject> subjects() {
  return {
      {"full", Case().heads(2, 1).len(70, 300).dims(64)},
      {"causal, odd sizes", Case().batch(2).heads(3, 1).len(61, 259).dims(7, 5).causal()},
      {"causal, different dims", Case().heads(4, 2).len(50, 530).dims(80, 48).causal()},
      {"decode", Case().batch(2).heads(9, 3).len(1, 700).dims(64)},
      {"decode, odd dims", Case().heads(5, 1).len(1, 300).dims(39, 21)},
      {"speculated rows, windows", Case().heads(2, 1).len(4, 600).dims(32).causal().window(290, -1)},
      {"lengths",
       Case().batch(3).heads(2, 2).len(40, 300).dims(24).causal().q_lengths({40, 0, 7}).kv_lengths({300, 20, 0})},
      {"paged", Case().batch(2).heads(4, 2).len(30, 290).dims(33).causal().paged(17)},
      {"paged decode", Case().batch(2).heads(4, 2).len(1, 290).dims(48).paged(16)},
      {"ragged", Case().batch(3).heads(4, 2).len(33, 290).dims(16).causal().ragged_q().ragged_kv()},
      {"heads interleaved", Case().batch(2).heads(4, 2).len(33, 290).dims(64).layouts(Layout::kBlhd, Layout::kBlhd,
                                                                                      Layout::kBlhd, Layout::kBlhd)},
  };
}

TEST_CASE("every tensor has its own type, within the bounds of the reference") {
  for (const int32_t q : kTypes) {
    for (const int32_t kv : kTypes) {
      for (const int32_t out : kTypes) {
        INFO("types " << q << ", " << kv << ", " << out);
        Case().heads(4, 2).len(21, 270).dims(24, 20).types(q, kv, out).causal().check();
        Case().heads(4, 2).len(1, 270).dims(40, 37).types(q, kv, out).check();
      }
    }
  }
}

// docs/NUMERICS.md, "16-bit storage".
TEST_CASE("results are within the float32 bound and half a unit in the last place of their type") {
  for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    for (const int64_t dim : {32, 64, 80, 96, 128, 192, 256}) {
      for (const float amplitude : {1.0f, 8.0f, 16.0f}) {
        INFO("type " << type << ", dim " << dim << ", q and k up to " << amplitude);
        const auto make = [&] { return Case().types(type, type, type).dims(dim).amplitudes(amplitude, amplitude, 3); };
        for (Case& c : std::vector<Case>{make().heads(2, 1).len(20, 280).causal(), make().heads(4, 2).len(1, 520)}) {
          const Expectation expected(c);
          for_each_target([&](const std::string& target) { CHECK(expected.difference(c.run({target})) == ""); });
        }
      }
    }
  }
}

TEST_CASE("16-bit inputs give the bits of a float32 run on the widened values") {
  for (const int32_t q_type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    for (const int32_t kv_type : {LW_TYPE_BF16, LW_TYPE_F16}) {
      for (Subject& subject : subjects()) {
        Case halves = subject.c;
        halves.types(q_type, kv_type, LW_TYPE_F32);
        Case floats = subject.c;
        round_to(q_type, floats.q());
        round_to(kv_type, floats.k());
        round_to(kv_type, floats.v());
        const std::vector<Result> narrow = halves.check(), wide = floats.check();
        REQUIRE(narrow.size() == wide.size());
        for (size_t i = 0; i < narrow.size(); ++i) {
          INFO(subject.name << " on " << narrow[i].target << ", types " << q_type << " and " << kv_type);
          CHECK(bit_difference(wide[i], narrow[i]) == "");
        }
        for (const int32_t out_type : {LW_TYPE_BF16, LW_TYPE_F16}) {
          Case rounded = halves;
          rounded.types(q_type, kv_type, out_type);
          for_each_target([&](const std::string& target) {
            Result expected = halves.run({target}), result = rounded.run({target});
            round_to(out_type, expected.out);
            INFO(subject.name << " on " << target << ", out type " << out_type);
            CHECK(bit_difference(expected, result) == "");
          });
        }
      }
    }
  }
}

TEST_CASE("16-bit states carry on in float32") {
  for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    Case whole = Case().heads(2, 1).len(9, 4500).dims(16).types(type, type, type).causal();
    for_each_target([&](const std::string& target) {
      const Result expected = whole.run({target});
      REQUIRE(std::string(expected.status.message) == "");
      const Result first = whole.key_part(0, 4096).with_state().run({target});
      INFO(target);
      CHECK(bit_difference(expected, whole.key_part(4096, 4500).continue_from(first).run({target})) == "");
    });
  }
}

// Overflow, denormals and NaN in the rounding of results: values at the ends of the types' ranges pass through a single
// visible key unchanged.
TEST_CASE("results at the ends of the range are rounded as the type says") {
  const float values[] = {65504.0f, 65519.0f, 65520.0f, 1e30f,   3.4e38f, -3.4e38f, 6e-8f,          2.9e-8f,
                          3e-8f,    1e-40f,   -1e-40f,  6.1e-5f, 0.0f,    -0.0f,    1.0f + 0x1p-8f, 1.0f + 0x1p-11f};
  const std::vector<float> one_row(std::begin(values), std::end(values));
  for (const int64_t q_len : {1, 40}) {
    for (const int32_t out_type : {LW_TYPE_BF16, LW_TYPE_F16}) {
      Case c = Case()
                   .heads(1, 1)
                   .len(q_len, 1)
                   .dims(4, static_cast<int64_t>(one_row.size()))
                   .types(LW_TYPE_F32, LW_TYPE_F32, out_type);
      c.q().fill(0);  // a prob of exactly 1
      c.v().values = one_row;
      for_each_target([&](const std::string& target) {
        const Result result = c.run({target});
        REQUIRE(std::string(result.status.message) == "");
        Array expected(result.out.shape);
        expected.each([&](int64_t, int64_t, int64_t, int64_t x, float& value) {
          value = one_row[static_cast<size_t>(x)] + 0.0f;
        });
        round_to(out_type, expected);
        INFO(target);
        CHECK(bit_difference(expected, result.out) == "");
      });
    }
  }
}

// Vectors of rows are transposed on their way out, and divided there: rows that leave a vector unfilled, rows without a
// visible key, dims around the lengths of vectors.
TEST_CASE("any number of rows and dims goes out in any type and layout") {
  constexpr Layout rows_first = Layout::kBhld;
  constexpr Layout kLayouts[] = {rows_first, Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<int64_t> dims = {31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 130};
  for (int64_t v_dim = 1; v_dim <= 17; ++v_dim) dims.push_back(v_dim);
  for (const int64_t v_dim : dims) {
    for (const int64_t q_len : {5, 37, 100}) {
      Case c = Case().heads(2, 1).len(q_len, 6).dims(3, v_dim).causal().q_offset(-3).with_state();
      c.sinks({0.5f, -kInf});
      c.v().at(0, 0, 2, v_dim / 2) = kNaN;
      c.v().at(0, 0, 4, v_dim - 1) = kInf;
      c.v().at(0, 0, 0, 0) = -0.0f;
      const Result right = canonical(c.prepare());
      for (const int32_t type : kTypes) {
        Case typed = Case(c).types(LW_TYPE_F32, LW_TYPE_F32, type);
        const Expectation expected(typed);
        Result rounded = right;
        round_to(type, rounded.out);
        for (Array* array : {&rounded.out, &rounded.state_acc}) {
          for (float& x : array->values) x = std::isnan(x) ? kNaN : x + 0.0f;
        }
        for (const Layout layout : kLayouts) {
          Prepared p = typed.layouts(rows_first, rows_first, rows_first, layout).prepare();
          for_each_target([&](const std::string& target) {
            const PreparedPlan plan(p.problem, target);
            for (const int64_t few_rows : {int64_t{0}, kMaxFewRows}) {
              const_cast<lw_plan*>(plan.get())->kernels.few_rows = few_rows;
              const Result result = plan.run(p, {target});
              INFO(target << ", " << q_len << " rows of " << v_dim << ", type " << type << ", layout "
                          << static_cast<int>(layout));
              CHECK(result.damage == "");
              CHECK(expected.difference(result) == "");
              if (has_fma(target)) CHECK(bit_difference(rounded, result) == "");
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
