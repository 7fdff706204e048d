// The command with each of its allocations failing in turn, and with all from there on: it ends by itself, with an exit
// code it has for that, one line on stderr, and no half of an output file.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "command.hpp"
#include "io/safetensors.hpp"
#include "temp_dir.hpp"

namespace lanewise::test {
namespace {

struct Line {
  const char* name;
  std::vector<std::string> arguments;
};

TEST_CASE("each allocation of the command that fails ends it cleanly") {
  TempDir dir;
  const std::string out = dir / "out.safetensors", count = dir / "count";
  // LANEWISE_EVERY_ALLOCATION: all of them. The suite takes the first ones and then every 151st.
  const bool all = std::getenv("LANEWISE_EVERY_ALLOCATION") != nullptr;
  const std::string input = data_file("real/minilm_layer0_len61.safetensors"), npy = "real/minilm_layer0_len61/";
  const Line lines[] = {{"attend", {"attend", input, "-o", out, "--executor", "caller"}},
                        {"npy",
                         {"attend", "--q", data_file(npy + "q.npy"), "--k", data_file(npy + "k.npy"), "--v",
                          data_file(npy + "v.npy"), "-o", out, "--check", "--executor", "caller"}},
                        {"wrong", {"attend", input, "-o", out, "--no-such-flag"}}};
  for (const Line& line : lines) {
    const std::string preload = std::string("LD_PRELOAD=") + LANEWISE_PRELOADED;
    const Outcome whole = lanewise_command(line.arguments, {preload, "LANEWISE_COUNT_TO=" + count});
    const int64_t allocations = std::atoll(read_bytes(count).c_str());
    std::filesystem::remove(out);
    INFO(line.name << ": exit code " << whole.code << ", " << allocations << " allocations, " << whole.err);
    REQUIRE(allocations > 100);
    CHECK(whole.code == (line.name == std::string("wrong") ? 2 : 0));
    for (const bool on : {false, true}) {
      for (int64_t n = 1; n <= allocations; n += all || n < 40 ? 1 : 151) {
        std::vector<std::string> environment = {preload, "LANEWISE_FAIL_AT=" + std::to_string(n)};
        if (on) environment.push_back("LANEWISE_FAIL_ON=1");
        const Outcome outcome = lanewise_command(line.arguments, environment);
        INFO("allocation " << n << (on ? " and on: exit code " : ": exit code ") << outcome.code << ", stderr "
                           << outcome.err);
        // 0: done without, as the C library is where it has no buffer for a file.
        const bool clean = outcome.code == 0 || (outcome.code == 2 && is_one_clear_line(outcome.err));
        CHECK(clean);
        CHECK(std::filesystem::exists(out) == (outcome.code == 0));
        // The count file is from the first run; nothing temporary may be beside it.
        std::filesystem::remove(out);
        CHECK(dir.count() == 1);
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
