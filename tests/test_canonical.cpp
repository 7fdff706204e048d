// Kernels against the canonical arithmetic in scalar code: every bit of out, lse and states, on every target with FMA.
// Where all targets share a mistake of order or rounding, this finds it.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

void check(const char* name, Case c) {
  const Expectation expected(c);
  const Prepared p = Case(c).dense().prepare();
  const Result right = canonical(p);
  INFO(name);
  CHECK(expected.difference(right) == "");
  for_each_target([&](const std::string& target) {
    const Result result = c.run({target, 2});
    INFO(target);
    CHECK(expected.difference(result) == "");
    if (has_fma(target)) CHECK(bit_difference(right, result) == "");
  });
}

TEST_CASE("kernels follow the canonical arithmetic bit for bit", "[hash]") {
  check("one key", Case().heads(1, 1).len(1, 1).dims(1).with_state());
  check("one block", Case().heads(2, 1).len(9, 256).dims(24).with_state());
  check("a block and one key", Case().heads(2, 1).len(9, 257).dims(24, 7).with_state());
  check("causal, grouped", Case().batch(2).heads(6, 2).len(40, 300).dims(16).causal().with_state());
  check("window over blocks", Case().heads(2, 2).len(20, 900).dims(8).causal().window(260, -1).with_state());
  check("starts elsewhere",
        Case().batch(3).heads(1, 1).len(7, 600).dims(8).causal().kv_starts({1, 255, 4000}).with_state());
  check("spans", Case().heads(1, 1).len(3, 8500).dims(4).with_state());
  check("large scores", Case().heads(2, 1).len(9, 700).dims(32).amplitudes(25, 25, 10).with_state());
  check("rising scores", [] {
    // Each block's maximum is above the last: every merge rescales.
    Case c = Case().heads(1, 1).len(2, 5000).dims(1).scale(1).with_state();
    c.q().fill(1);
    c.k().each([](int64_t, int64_t, int64_t j, int64_t, float& k) {
      k = 0.02f * static_cast<float>(j) + rnd(9, uint64_t(j));
    });
    return c;
  }());
  check("falling scores", [] {
    Case c = Case().heads(1, 1).len(2, 5000).dims(1).scale(-0.03f).with_state();
    c.q().fill(1);
    c.k().each([](int64_t, int64_t, int64_t j, int64_t, float& k) { k = static_cast<float>(j); });
    return c;
  }());
  check("weights down to 2^-125, and 0 below", [] {
    // Key 0 takes the weight and gives nothing: out is the other key's weight alone.
    Case c = Case().heads(1, 1).len(400, 2).dims(1).scale(1).with_state();
    c.q().each([](int64_t, int64_t, int64_t i, int64_t, float& q) { q = 80 + 0.02f * static_cast<float>(i); });
    c.k().values = {0, -1};
    c.v().values = {0, 1};
    return c;
  }());
  check("lengths",
        Case().batch(4).heads(2, 1).len(9, 300).dims(8).causal().q_lengths({9, 0, 4, 9}).kv_lengths({300, 9, 0, 3}));
  check("decode", Case().batch(2).heads(8, 2).len(1, 700).dims(64, 40).kv_lengths({700, 257}).with_state());
  check("decode over spans", Case().heads(1, 1).len(1, 9000).dims(17).with_state());
  check("decode, one row a head", Case().heads(3, 3).len(1, 300).dims(128).with_state());
  check("decode, pages", Case().batch(2).heads(4, 1).len(2, 520).dims(33).causal().kv_lengths({520, 3}).paged(16));
  check("ragged", Case().batch(3).heads(2, 1).len(9, 40).dims(8).q_lengths({9, 1, 3}).causal().ragged_q().ragged_kv());
  check("sums near powers of two",
        Case().heads(1, 1).len(130, 130).dims(1).causal().amplitudes(1e-3f, 1e-3f, 1).with_state());
}

TEST_CASE("kernels follow the canonical arithmetic among infinities and NaN", "[hash]") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const float content : {nan, inf, -inf, 3e38f}) {
    for (const int64_t at : {3, 256, 299}) {
      for (const bool in_values : {false, true}) {
        Case c = Case().heads(4, 2).len(30, 300).dims(8).causal().with_state();
        (in_values ? c.v() : c.k()).at(0, 1, at, 2) = content;
        const Result right = canonical(c.prepare());
        for_each_target([&](const std::string& target) {
          const Result result = c.run({target});
          INFO(content << " in " << (in_values ? "v" : "k") << " at " << at << " on " << target);
          if (!has_fma(target)) return;
          // NaN states may differ in sign and payload; what is stored of them is out and lse.
          CHECK(bit_difference(right.out, result.out) == "");
          CHECK(bit_difference(right.lse, result.lse) == "");
        });
      }
    }
  }
}

TEST_CASE("continuing follows the canonical arithmetic", "[hash]") {
  Case whole = Case().heads(2, 1).len(3, 4500).dims(8).with_state();
  for_each_target([&](const std::string& target) {
    const Result prefix = whole.key_part(0, 4096).run({target});
    Case rest = whole.key_part(4096, 4500);
    rest.continue_from(prefix);
    const Result result = rest.run({target});
    CHECK(Expectation(whole).difference(result) == "");
    if (has_fma(target)) CHECK(bit_difference(canonical(rest.prepare()), result) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
