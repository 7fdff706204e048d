// The numeric contract, bit for bit: who computes a row, in which order and in which floating-point mode of the host
// does not change it. Every case is also compared with the reference: equal bits alone may be equally wrong.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/float_mode.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// Full, edge and skipped tiles; several blocks; long rows and decode; lengths; enough work that seven threads get some.
std::vector<Subject> subjects() {
  return {
      {"full", Case().heads(4, 4).len(130, 300).dims(64)},
      {"causal, grouped", Case().batch(2).heads(6, 2).len(100, 613).dims(80, 48).causal()},
      {"causal from the top left", Case().heads(8, 8).len(150, 150).dims(32).causal().q_offset(0)},
      {"decode", Case().batch(3).heads(9, 3).len(1, 700).dims(64)},
      {"odd sizes", Case().batch(2).heads(3, 1).len(61, 259).dims(7, 5).causal()},
      {"lengths", Case()
                      .batch(4)
                      .heads(4, 2)
                      .len(90, 300)
                      .dims(40)
                      .causal()
                      .q_lengths({90, 0, 17, 1})
                      .kv_lengths({300, 20, 4, 0})},
      {"large scores", Case().heads(2, 1).len(120, 520).dims(64).amplitudes(30, 30, 1).causal()},
      {"window", Case().heads(4, 2).len(120, 700).dims(24).causal().window(300, -1)},
      {"spans", Case().heads(2, 2).len(40, 8500).dims(16).causal()},
  };
}

TEST_CASE("the same bits from every executor, thread count and target") {
  for (Subject& subject : subjects()) {
    std::optional<Result> first_with_fma;
    const Expectation expected(subject.c);
    for_each_target([&](const std::string& target) {
      INFO(subject.name << " on " << target);
      const Result alone = check_executors(subject.c, expected, target, {1, 2, 7});
      if (!has_fma(target)) return;
      if (!first_with_fma) first_with_fma = alone;
      CHECK(bit_difference(*first_with_fma, alone) == "");
    });
  }
}

// A host's mode must not reach the result, and the library must leave it as it was. Inputs and results among the
// denormals, so that flushing them shows; a sum of 2^-24 steps, so that rounding does.
TEST_CASE("U03: the host's floating-point mode changes nothing and stays as it is") {
  const uint64_t usual = float_mode() & ~kFlags;
  const uint64_t modes[] = {usual | kFlushToZero, usual | kDenormalsAreZero, usual | kFlushToZero | kDenormalsAreZero,
                            usual | kRoundUp, usual | kRoundUp | kFlushToZero | kDenormalsAreZero};
  constexpr int32_t bf16 = LW_TYPE_BF16, f16 = LW_TYPE_F16;
  std::vector<Subject> cases = {
      {"denormal values", Case().heads(2, 1).len(40, 300).dims(24).amplitudes(1, 1, 2e-39f).causal()},
      {"denormal keys", Case().heads(2, 1).len(40, 300).dims(24).amplitudes(1e38f, 2e-39f, 1)},
      {"denormals of bf16",
       Case().types(bf16, bf16, bf16).heads(2, 1).len(40, 300).dims(24).amplitudes(1e38f, 2e-39f, 2e-39f)},
      // Widening and rounding f16 must not meet the mode either: its denormals are below 6.1e-5.
      {"denormals of f16",
       Case().types(f16, f16, f16).heads(2, 1).len(40, 300).dims(24).amplitudes(5e-5f, 5e-5f, 5e-5f).scale(1e9f)},
      {"one query, denormals of f16",
       Case().types(f16, f16, f16).len(1, 300).dims(24).amplitudes(5e-5f, 5e-5f, 5e-5f).scale(1e9f)},
      {"native_bf16", Case().native_bf16().types(bf16, bf16, bf16).heads(8, 2).len(128, 520).dims(48).causal()},
      // 1/sqrt(48) and its product with log2(e) are both rounded down to nearest: a host rounding up would change them.
      {"ordinary", Case().heads(8, 2).len(128, 520).dims(48).causal()},
  };
  for (Subject& subject : cases) {
    const Expectation expected(subject.c);
    for_each_target_of(subject.c, [&](const std::string& target) {
      Prepared p = subject.c.prepare();
      const PreparedPlan plan(p.problem, target);
      const Result plain = plan.run(p, {target, 1, Runner::kCaller});
      CHECK(expected.difference(plain) == "");
      for (const uint64_t mode : modes) {
        set_float_mode(mode);
        const PreparedPlan made_in_mode(p.problem, target);
        set_float_mode(usual);
        INFO(subject.name << " on " << target << ", mode " << std::hex << mode);
        CHECK(bit_difference(plain, made_in_mode.run(p, {target})) == "");
        for (const Runner runner : {Runner::kCaller, Runner::kOpenmp, Runner::kCallback, Runner::kPartsReversed}) {
          uint64_t after = 0;
          How how = {target, 2, runner};
          how.before = [&] { set_float_mode(mode); };
          how.after = [&] {
            after = float_mode();
            set_float_mode(usual);
          };
          const Result result = plan.run(p, how);
          INFO("executor " << static_cast<int>(runner));
          CHECK(bit_difference(plain, result) == "");
          CHECK((after | kInexact) == (mode | kInexact));
        }
      }
    });
  }
}

#if defined(__SSE2__)
TEST_CASE("U03: unmasked exceptions of the host do not trap in the library, and its flags stay its own") {
  for_each_target([](const std::string& target) {
    // Underflow, overflow and invalid would all be raised: hidden sentinels, huge scores, a NaN key.
    Case c = Case().heads(2, 1).len(40, 300).dims(16).amplitudes(1e18f, 1e18f, 1).causal();
    c.k().at(0, 0, 299, 3) = std::numeric_limits<float>::quiet_NaN();
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result plain = plan.run(p, {target, 1, Runner::kCaller});
    const uint64_t usual = float_mode() & ~kFlags;
    uint64_t after = 0;
    How how = {target, 1, Runner::kCaller};
    how.before = [&] { set_float_mode(kTrapButInexactAndDenormal); };
    how.after = [&] {
      after = float_mode();
      set_float_mode(usual);
    };
    CHECK(bit_difference(plain, plan.run(p, how)) == "");
    CHECK((after | kInexact) == (kTrapButInexactAndDenormal | kInexact));
    // Nor do numbers that are refused.
    for (float lw_problem::*const number : {&lw_problem::scale, &lw_problem::softcap}) {
      lw_problem wrong = p.problem;
      wrong.has_scale = 1;
      wrong.*number = std::numeric_limits<float>::quiet_NaN();
      set_float_mode(kTrapButInexactAndDenormal);
      const PreparedPlan refused(wrong, target);
      set_float_mode(usual);
      CHECK(refused.status().code == LW_INVALID_ARGUMENT);
    }
  });
}
#endif

TEST_CASE("run to run, the same bits") {
  Case c = Case().heads(8, 2).len(190, 300).dims(64).causal();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result first = plan.run(p, {target, 7, Runner::kOpenmp});
    CHECK(expected.difference(first) == "");
    for (int n = 0; n < 10; ++n) CHECK(bit_difference(first, plan.run(p, {target, 7, Runner::kOpenmp})) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
