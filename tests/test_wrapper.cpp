// Every free function of the C++ wrapper as a host without optimisation calls it: as a function of its own in the host's
// object file, which must not take the place of one inside the static library.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>

#include "lanewise/lanewise.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("alibi_slopes, not inlined") {
  float slopes[8] = {};
  REQUIRE(alibi_slopes(8, slopes));
  for (int i = 0; i < 8; ++i) CHECK(slopes[i] == std::ldexp(1.0f, -1 - i));
  CHECK_FALSE(alibi_slopes(0, slopes));
}

TEST_CASE("convert, not inlined") {
  const float from[] = {1, -2.5f, 0};
  uint16_t to[3] = {7, 7, 7};
  REQUIRE(convert(from, LW_TYPE_F32, to, LW_TYPE_BF16, 3));
  CHECK((to[0] == 0x3f80 && to[1] == 0xc020 && to[2] == 0));
  CHECK_FALSE(convert(from, LW_TYPE_F32, to, LW_TYPE_BF16, -1));
}

// One query, one key: its value, and an lse of its score.
TEST_CASE("attend, append and merge, not inlined") {
  Problem problem;
  problem.q_len = problem.kv_len = 1;
  problem.qk_dim = problem.v_dim = 4;
  const float q[] = {1, 2, 3, 4}, k[] = {1, 1, 1, 1}, v[] = {5, 6, 7, 8};
  float cache[8] = {};
  const int32_t slot = 1;  // the second page of one token
  REQUIRE(
      append(TensorView<float>::bhld(cache, 1, 1, 4), 2, 1, 1, 4, TensorView<const float>::bhld(v, 1, 1, 4), 1, &slot));
  for (int x = 0; x < 4; ++x) CHECK((cache[x] == 0 && cache[4 + x] == v[x]));
  float out[4] = {}, lse = 0;
  Inputs inputs;
  inputs.q = TensorView<const float>::bhld(q, 1, 1, 4);
  inputs.k = TensorView<const float>::bhld(k, 1, 1, 4);
  inputs.v = TensorView<const float>::bhld(cache + 4, 1, 1, 4);
  Outputs outputs;
  outputs.out = TensorView<float>::bhld(out, 1, 1, 4);
  outputs.lse = TensorView<float>::strided(&lse, 1, 1, 1, 0);
  REQUIRE(attend(problem, inputs, outputs));
  for (int x = 0; x < 4; ++x) CHECK(std::fabs(out[x] - v[x]) < 2e-6f);
  CHECK(std::fabs(lse - 5) < 2e-6f);  // 10 / sqrt(4)
  const lw_const_tensor part = TensorView<const float>::bhld(out, 1, 1, 4);
  const lw_const_tensor part_lse = TensorView<const float>::strided(&lse, 1, 1, 1, 0);
  float merged_out[4] = {}, merged_lse = 0;
  Outputs merged;
  merged.out = TensorView<float>::bhld(merged_out, 1, 1, 4);
  merged.lse = TensorView<float>::strided(&merged_lse, 1, 1, 1, 0);
  REQUIRE(merge(problem, &part, &part_lse, 1, merged));
  for (int x = 0; x < 4; ++x) CHECK(std::fabs(merged_out[x] - v[x]) < 2e-6f);
  CHECK(std::fabs(merged_lse - 5) < 2e-6f);
}

}  // namespace
}  // namespace lanewise::test
