// Softcap's tanh: how far it is from the exact one, and that kernels compute just this one, bit for bit.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("tanh is within 3e-7 of itself, on all magnitudes") {
  double worst = 0;
  const auto look = [&](float x) {
    const double exact = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::fabs(static_cast<double>(soft_cap(x, 1, 1)) / exact - 1));
  };
  for (int n = 1; n <= 4000000; ++n) look(static_cast<float>(n) * 3e-6f);
  for (float x = std::numeric_limits<float>::denorm_min(); x < 1e38f; x *= 1.001f + 1e-44f / x) look(x);
  CHECK(worst <= 3e-7);
  CHECK(worst >= 1e-7);  // it was measured
  CHECK(std::fabs(soft_cap(kInf, 1, 1) - 1) <= 3e-7f);
  CHECK(soft_cap(-kInf, 1, 1) == -soft_cap(kInf, 1, 1));
  CHECK(soft_cap(0, 1, 1) == 0);
  CHECK(soft_cap(1e-30f, 1, 1) == 1e-30f);
  CHECK(std::isnan(soft_cap(std::numeric_limits<float>::quiet_NaN(), 1, 1)));
}

TEST_CASE("kernels compute this tanh", "[hash]") {
  for (const float cap : {1e-6f, 0.3f, 50.0f, 1e6f}) {
    Case c = Case().heads(1, 1).len(4200, 1).dims(1).scale(1).softcap(cap).with_state();
    c.k().fill(1);
    c.q().each([&](int64_t, int64_t, int64_t i, int64_t, float& q) {
      q = i < 4000 ? cap * (static_cast<float>(i) - 2000) * 0.005f
                   : std::ldexp(i % 2 ? 1.37f : -1.37f, static_cast<int>(i - 4000) - 110);
    });
    const Result right = canonical(c.prepare());
    const Expectation expected(c);
    CHECK(expected.difference(right) == "");
    for_each_target([&](const std::string& target) {
      const Result rows = c.run({target});
      INFO("cap " << cap << " on " << target);
      CHECK(expected.difference(rows) == "");
      if (has_fma(target)) CHECK(bit_difference(right, rows) == "");
      for (int64_t i = 0; i < 4200; i += 97) {  // keys in lanes
        const Result row = c.query_part(i, i + 1).run({target});
        CHECK(row.lse.values[0] == rows.lse.at(0, 0, i));
      }
    });
  }
  for (const float q : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    for (const int64_t q_len : {1, 40}) {
      Case c = Case().heads(1, 1).len(q_len, 3).dims(1).softcap(2);
      c.q().at(0, 0, 0, 0) = q;
      c.k().fill(1);
      c.check();
    }
  }
}

}  // namespace
}  // namespace lanewise::test
