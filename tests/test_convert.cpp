// Storage types: every 16-bit value widened, many floats rounded, on every target, against conversions written apart
// from the library's.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "src/fp_environment.hpp"
#include "src/kernels/kernel_table.hpp"
#include "src/targets.hpp"
#include "support/array.hpp"
#include "support/float_mode.hpp"
#include "support/guarded_buffer.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr int32_t kHalves[] = {LW_TYPE_BF16, LW_TYPE_F16};

KernelTable kernels_of(const std::string& target) {
  int64_t bit = 0;
  REQUIRE(choose_target(target.c_str(), bit).code == LW_OK);
  return kernels_for(bit);
}

uint16_t nan_of(int32_t type) { return type == LW_TYPE_BF16 ? 0x7fc0 : 0x7e00; }

TEST_CASE("every 16-bit value is widened exactly") {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for_each_target([&](const std::string& target) {
    count_case(target);
    for (const int32_t type : kHalves) {
      std::vector<float> wide(all.size());
      {
        const FpEnvironment environment;
        kernels_of(target).convert(all.data(), type, wide.data(), LW_TYPE_F32, static_cast<int64_t>(all.size()));
      }
      int64_t wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const float expected = load(type, all.data(), static_cast<int64_t>(i));
        wrong += bits_of(wide[i]) != (std::isnan(expected) ? 0x7fc00000u : bits_of(expected));
      }
      INFO(target << ", type " << type);
      CHECK(wrong == 0);
      // And back: each is its own rounding.
      std::vector<uint16_t> back(all.size());
      {
        const FpEnvironment environment;
        kernels_of(target).convert(wide.data(), LW_TYPE_F32, back.data(), type, static_cast<int64_t>(all.size()));
      }
      for (size_t i = 0; i < all.size(); ++i) {
        wrong += back[i] != (std::isnan(wide[i]) ? nan_of(type) : all[i]);
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("floats are rounded to nearest even") {
  // All patterns of the upper bits, with the lower bits around every tie; and 2^24 patterns spread over all floats.
  for_each_target([&](const std::string& target) {
    count_case(target);
    const KernelTable kernels = kernels_of(target);
    constexpr size_t kChunk = 1 << 16;
    std::vector<float> from(kChunk);
    std::vector<uint16_t> to(kChunk);
    const auto wrong_of = [&](int32_t type) {
      {
        const FpEnvironment environment;
        kernels.convert(from.data(), LW_TYPE_F32, to.data(), type, static_cast<int64_t>(kChunk));
      }
      int64_t wrong = 0;
      for (size_t i = 0; i < kChunk; ++i) {
        uint16_t expected = 0;
        store(type, &expected, 0, from[i]);
        wrong += to[i] != (std::isnan(from[i]) ? nan_of(type) : expected);
      }
      return wrong;
    };
    for (const int32_t type : kHalves) {
      int64_t wrong = 0;
      for (const uint32_t low :
           {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        for (size_t i = 0; i < kChunk; ++i) from[i] = float_of(static_cast<uint32_t>(i) << 16 | low);
        wrong += wrong_of(type);
      }
      for (uint32_t chunk = 0; chunk < 256; ++chunk) {
        for (size_t i = 0; i < kChunk; ++i) {
          from[i] =
              float_of((chunk << 16 | static_cast<uint32_t>(i)) * 2654435761u);  // odd: a permutation, cut to 2^24
        }
        wrong += wrong_of(type);
      }
      INFO(target << ", type " << type);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("any length is converted, and nothing behind it") {
  for_each_target([&](const std::string& target) {
    count_case(target);
    for (const int32_t from_type : {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16}) {
      for (const int32_t to_type : {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16}) {
        for (int64_t n = 0; n <= 70; ++n) {
          GuardedBuffer from(static_cast<size_t>(n * type_size(from_type)), Edge::kEnd);
          GuardedBuffer to(static_cast<size_t>(n * type_size(to_type)), Edge::kEnd);
          for (int64_t i = 0; i < n; ++i) store(from_type, from.data(), i, static_cast<float>(i) - 3.5f);
          kernels_of(target).convert(from.data(), from_type, to.data(), to_type, n);
          for (int64_t i = 0; i < n; ++i) REQUIRE(load(to_type, to.data(), i) == static_cast<float>(i) - 3.5f);
          REQUIRE(to.canaries_intact());
        }
      }
    }
  });
}

TEST_CASE("lw_convert works in any mode of the host and leaves it") {
  const float denormal = 1e-39f;
  const uint16_t expected = 0x000b;  // 1.0e-39 in steps of 2^-133
  const uint64_t usual = float_mode() & ~kFlags;
#if defined(__SSE2__)
  const uint64_t mode = usual | kFlushToZero | kDenormalsAreZero | kRoundUp;
#else
  const uint64_t mode = usual;
#endif
  uint16_t bf16 = 0;
  float back = 0;
  set_float_mode(mode);
  const lw_status there = lw_convert(&denormal, LW_TYPE_F32, &bf16, LW_TYPE_BF16, 1);
  const lw_status again = lw_convert(&bf16, LW_TYPE_BF16, &back, LW_TYPE_F32, 1);
  const uint64_t after = float_mode() & ~kFlags;
  set_float_mode(usual);
  CHECK(there.code == LW_OK);
  CHECK(again.code == LW_OK);
  CHECK(after == mode);
  CHECK(bf16 == expected);
  CHECK(bits_of(back) == 0x000b0000u);
}

TEST_CASE("lw_convert says what is wrong") {
  float x[4] = {1, 2, 3, 4};
  uint16_t y[4];
  const auto message = [&](const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) {
    const lw_status s = lw_convert(from, from_type, to, to_type, n);
    CHECK(s.code == LW_INVALID_ARGUMENT);
    return std::string(s.message);
  };
  CHECK(message(x, LW_TYPE_BOOL, y, LW_TYPE_BF16, 4) ==
        "from_type is 4; allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)");
  CHECK(message(x, LW_TYPE_F32, y, 0, 4) ==
        "to_type is 0; allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)");
  CHECK(message(nullptr, LW_TYPE_F32, y, LW_TYPE_BF16, 4) == "from.data is a null pointer");
  CHECK(message(x, LW_TYPE_F32, nullptr, LW_TYPE_BF16, 4) == "to.data is a null pointer");
  CHECK(message(x, LW_TYPE_F32, y, LW_TYPE_BF16, -1).substr(0, 8) == "n is -1;");
  CHECK(message(x, LW_TYPE_F32, x + 1, LW_TYPE_BF16, 3) == "to overlaps from");
  CHECK(lw_convert(nullptr, LW_TYPE_F32, nullptr, LW_TYPE_BF16, 0).code == LW_OK);
}

}  // namespace
}  // namespace lanewise::test
