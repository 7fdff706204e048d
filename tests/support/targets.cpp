#include "targets.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "lanewise/lanewise.h"

namespace lanewise::test {
namespace {

std::map<std::string, int64_t>& tally() {
  static std::map<std::string, int64_t> cases;
  return cases;
}

bool asked_for(const std::string& name) {
  const char* asked = std::getenv("LANEWISE_TEST_TARGETS");
  return !asked || ("," + std::string(asked) + ",").find("," + name + ",") != std::string::npos;
}

// On stderr: stdout belongs to Catch2's reporters.
class TallyPrinter : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;
  void testRunEnded(const Catch::TestRunStats&) override {
    for (const auto& [target, cases] : tally()) {
      std::fprintf(stderr, "target %-12s x %lld cases\n", target.c_str(), static_cast<long long>(cases));
    }
  }
};
CATCH_REGISTER_LISTENER(TallyPrinter)

}  // namespace

const std::vector<std::string>& targets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> supported;
    for (int32_t n = 0; n < lw_target_count(); ++n) {
      if (lw_target_supported(n) && asked_for(lw_target_name(n))) supported.push_back(lw_target_name(n));
    }
    return supported;
  }();
  return names;
}

bool has_fma(const std::string& target) {
  return target != "SSE2" && target != "SSSE3" && target != "SSE4" && target != "EMU128" && target != "SCALAR";
}

bool has_native_bf16(const std::string& target) {
  return target == "AVX3_ZEN4" || target == "AVX3_SPR" || target == "NEON_BF16";
}

void count_case(const std::string& target) { ++tally()[target]; }
int64_t cases_of(const std::string& target) { return tally()[target]; }

void require_some_target() { REQUIRE(!targets().empty()); }
void require_target_ran(const std::string& target, int64_t cases_before) {
  INFO("target " << target);
  REQUIRE(cases_of(target) > cases_before);
}

}  // namespace lanewise::test
