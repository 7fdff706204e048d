// U05: a host's fast-math must not reach the library. This program is linked with -ffast-math, which on x86 also switches
// denormals off in every thread that it starts with; fast_math_host.cpp is in it twice, once compiled with fast-math.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

std::vector<uint32_t> plain_host();
std::vector<uint32_t> fast_math_host();

TEST_CASE("U05: a host compiled and linked with fast-math gets the same bits") {
  const std::vector<uint32_t> plain = plain_host(), fast = fast_math_host();
  REQUIRE(plain.size() == fast.size());
  CHECK(plain == fast);
  // And the right ones: per run 280 results, 14 of lse, a status. No NaN at all, nothing where a row sees nothing.
  const size_t run = 280 + 14 + 1;
  CHECK(plain.size() % run == 0);
  size_t denormals = 0;
  for (size_t n = 0; n < plain.size(); ++n) {
    const uint32_t magnitude = fast[n] & 0x7fffffff;
    CHECK(magnitude <= 0x7f800000);
    if (n % run == run - 1) CHECK(fast[n] == 0);
    denormals += n % run < 280 && magnitude > 0 && magnitude < 0x00800000;
  }
  CHECK(denormals > 200);  // of the last run
  for (size_t n = 0; n < 280; ++n) CHECK(fast[run + n] == 0);
  for (size_t n = 280; n < 294; ++n) CHECK(fast[run + n] == 0xff800000);
}
