// The command ended by a signal at each moment at which it has to do with its output, and at any other: it ends by that
// signal, and its output is the whole file or what was there before, with nothing beside it.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "command.hpp"

namespace lanewise::test {
namespace {

const std::string kInput = data_file("real/minilm_layer0_len61.safetensors");

std::vector<std::string> attend_to(const std::string& out) {
  return {"attend", kInput, "-o", out, "--executor", "caller"};
}

// Sets how this process, and so the command it starts, takes a signal.
class Disposition {
 public:
  Disposition(int number, void (*handler)(int)) : number_(number), before_(::signal(number, handler)) {}
  Disposition(const Disposition&) = delete;
  Disposition& operator=(const Disposition&) = delete;
  ~Disposition() { ::signal(number_, before_); }

 private:
  int number_;
  void (*before_)(int);
};

std::string whole_output(const std::vector<std::string>& arguments, const std::string& out) {
  REQUIRE(lanewise_command(arguments).code == 0);
  const std::string whole = read_bytes(out);
  std::filesystem::remove(out);
  REQUIRE(!whole.empty());
  return whole;
}

void check_output(const TempDir& dir, const std::string& out, const std::string& before, const std::string& whole) {
  const bool there = std::filesystem::exists(out);
  CHECK(dir.count() == (there ? 1 : 0));
  CHECK((there || before.empty()));
  const std::string now = there ? read_bytes(out) : "";
  CHECK((now == before || now == whole));
}

TEST_CASE("a signal at each moment of writing leaves the whole output or what was there before") {
  TempDir dir;
  const std::string preload = std::string("LD_PRELOAD=") + LANEWISE_PRELOADED;
  for (const char* name : {"out.safetensors", "out.npy"}) {
    const std::string out = dir / name;
    const std::string whole = whole_output(attend_to(out), out);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
      const Disposition normal(number, SIG_DFL);
      for (const std::string before : {"", "an older file"}) {
        int moments = 0;
        for (bool ended = false; !ended && moments < 100;) {
          if (!before.empty()) write_bytes(out, before);
          const Outcome outcome =
              lanewise_command(attend_to(out), {preload, "LANEWISE_SIGNAL=" + std::to_string(number),
                                                "LANEWISE_SIGNAL_AT=" + std::to_string(++moments)});
          INFO(name << ", signal " << number << " at moment " << moments << ", exit code " << outcome.code);
          ended = outcome.code == 0;
          CHECK((ended || outcome.code == -number));
          check_output(dir, out, before, whole);
          CHECK((!ended || read_bytes(out) == whole));
          std::filesystem::remove(out);
        }
        // Opened, filled by four writes or so, renamed: before and after each.
        CHECK(moments > 10);
        CHECK(moments < 100);
      }
    }
  }
}

TEST_CASE("a signal from outside ends the command at any time") {
  TempDir dir;
  const std::string out = dir / "out.safetensors";
  const std::string whole = whole_output(attend_to(out), out);
  const Disposition normal(SIGTERM, SIG_DFL);
  for (int step = 0; step < 40; ++step) {
    const Outcome outcome = lanewise_command(attend_to(out), {}, [&](pid_t process) {
      std::this_thread::sleep_for(std::chrono::microseconds(500 * step));
      ::kill(process, SIGTERM);
    });
    INFO("after " << 500 * step << " us, exit code " << outcome.code);
    CHECK((outcome.code == 0 || outcome.code == -SIGTERM));
    check_output(dir, out, "", whole);
    std::filesystem::remove(out);
  }
}

TEST_CASE("a signal that the parent ignores stays ignored") {
  TempDir dir;
  const std::string out = dir / "out.safetensors";
  const Disposition ignored(SIGHUP, SIG_IGN);
  const Outcome outcome =
      lanewise_command(attend_to(out), {std::string("LD_PRELOAD=") + LANEWISE_PRELOADED,
                                        "LANEWISE_SIGNAL=" + std::to_string(SIGHUP), "LANEWISE_SIGNAL_AT=3"});
  CHECK(outcome.code == 0);
  CHECK(std::filesystem::exists(out));
}

TEST_CASE("an output larger than the limit on files is one line, and nothing is left") {
  TempDir dir;
  const std::string out = dir / "out.safetensors";
  const Disposition normal(SIGXFSZ, SIG_DFL);
  const Outcome outcome =
      lanewise_command(attend_to(out), {std::string("LD_PRELOAD=") + LANEWISE_PRELOADED, "LANEWISE_FILE_LIMIT=4096"});
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(is_one_clear_line(outcome.err));
  CHECK(outcome.err.find("cannot be written") != std::string::npos);
  CHECK(dir.count() == 0);
}

}  // namespace
}  // namespace lanewise::test
