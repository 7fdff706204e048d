// The bits themselves, pinned: hashes over out and lse of fixed problems, the same for every target with FMA, compiler
// and machine (NEON in an emulator too). A hash says nothing about right or wrong, so each stands beside the agreement
// with the reference, checked first. A change of a hash is a change of the numeric contract: docs/NUMERICS.md and
// CHANGELOG.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// FNV-1a, 64 bits, over the bytes of float32 values, least significant first.
uint64_t fnv1a(uint64_t hash, const Array& array) {
  for (const float value : array.values) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

struct Pinned {
  const char* name;
  Case c;
  uint64_t hash;
};

// Small enough for an emulator; together every kind of tile, block, span, layout and rule.
std::vector<Pinned> pinned() {
  const Layout blhd = Layout::kBlhd, transposed = Layout::kTransposed, rows = Layout::kBhld;
  return {
      {"one by one", Case().heads(1, 1).len(1, 1).dims(1), 0xe1a83622c5d8b544},
      {"full", Case().heads(2, 2).len(33, 130).dims(64), 0x9f66fec4018f2565},
      {"two blocks", Case().heads(2, 1).len(20, 513).dims(32).amplitudes(3, 3, 1), 0xc9652727d9a255f6},
      {"causal, grouped", Case().batch(2).heads(6, 2).len(50, 300).dims(40, 24).causal(), 0xf5d088c7f04ddb9c},
      {"decode", Case().batch(2).heads(8, 2).len(1, 700).dims(128), 0xc789db6b8787c2af},
      {"three spans", Case().heads(2, 2).len(3, 8300).dims(8).amplitudes(4, 4, 1), 0x1903e691ff3f046b},
      {"odd sizes", Case().heads(3, 1).len(17, 77).dims(7, 5).causal().q_offset(30), 0xb0f039c4642d02bc},
      {"window", Case().heads(2, 1).len(40, 300).dims(16).causal().window(20, -1), 0x623340b4df744b31},
      {"lengths", Case().batch(3).heads(2, 1).len(12, 60).dims(16).q_lengths({12, 3, 5}).kv_lengths({60, 0, 7}),
       0xf7153ffdd43ec834},
      {"layouts", Case().batch(2).heads(4, 2).len(19, 70).dims(24).layouts(blhd, transposed, blhd, rows),
       0x2d7328ba4698a7d9},
      {"large scores", Case().heads(2, 2).len(16, 300).dims(64).amplitudes(30, 30, 1e3f).scale(-0.7f),
       0x93f004a9dcf29249},
      {"denormal values", Case().heads(1, 1).len(16, 100).dims(16).amplitudes(1, 1, 1e-38f), 0x9264ba4c981441cb},
      {"kv_start", Case().batch(2).heads(1, 1).len(9, 400).dims(16).causal().kv_starts({200, 4000}),
       0x12f9dee29166686f},
  };
}

TEST_CASE("the bits of fixed problems are the stored ones", "[hash]") {
  const bool print_each = std::getenv("LANEWISE_PRINT_HASHES") != nullptr;  // to store new ones
  std::vector<Pinned> problems = pinned();
  std::vector<Expectation> expected;
  for (Pinned& problem : problems) expected.emplace_back(problem.c);
  for_each_target([&](const std::string& target) {
    uint64_t all = 0xcbf29ce484222325u;
    double worst = 0;
    for (size_t n = 0; n < problems.size(); ++n) {
      INFO(problems[n].name << " on " << target);
      const Result result = problems[n].c.run({target});
      const Agreement agreement = expected[n].agreement(result);
      REQUIRE(agreement.difference == "");
      worst = std::max(worst, agreement.worst);
      const uint64_t hash = fnv1a(fnv1a(0xcbf29ce484222325u, result.out), result.lse);
      all = fnv1a(fnv1a(all, result.out), result.lse);
      if (print_each) std::fprintf(stderr, "%-10s %-20s 0x%016" PRIx64 "\n", target.c_str(), problems[n].name, hash);
      if (has_fma(target)) CHECK(hash == problems[n].hash);
    }
    std::fprintf(stderr, "target %-12s hash 0x%016" PRIx64 "%s, worst error %.2f of the bound to the reference\n",
                 target.c_str(), all, has_fma(target) ? "" : " (no FMA: its own bits)", worst);
  });
}

}  // namespace
}  // namespace lanewise::test
