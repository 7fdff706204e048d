// Files and command lines that are almost right: what is read is a tensor or an io::Error in one line, what is run ends
// with an exit code of its own.
//
//   test_fuzz_files 'npy*' --tries 1000000 --seed 7
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <algorithm>

#include "command.hpp"
#include "odd_files.hpp"
#include "temp_dir.hpp"

namespace {
int64_t tries = 3000, commands = 60;
uint64_t first_seed = 1;
}  // namespace

namespace lanewise::test {
namespace {

std::string hex(const std::string& bytes) {
  const char* const kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) text += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
  return text;
}

TEST_CASE("safetensors: damaged files are read or refused in one line") {
  TempDir dir;
  const std::string path = dir / "a";
  for (int64_t n = 0; n < tries; ++n) {
    Draw draw(first_seed + static_cast<uint64_t>(n));
    const std::string bytes = odd_safetensors(draw);
    write_bytes(path, bytes);
    const std::string text = check_safetensors(path);
    INFO("--seed " << first_seed + static_cast<uint64_t>(n) << " --tries 1; " << hex(bytes));
    if (!text.empty()) FAIL(text);
  }
  SUCCEED();
}

TEST_CASE("npy: damaged files are read or refused in one line") {
  TempDir dir;
  const std::string path = dir / "a.npy";
  for (int64_t n = 0; n < tries; ++n) {
    Draw draw(first_seed + static_cast<uint64_t>(n));
    const std::string bytes = odd_npy(draw);
    write_bytes(path, bytes);
    const std::string text = check_npy(path);
    INFO("--seed " << first_seed + static_cast<uint64_t>(n) << " --tries 1; " << hex(bytes));
    if (!text.empty()) FAIL(text);
  }
  SUCCEED();
}

TEST_CASE("command lines of right and wrong words end with an exit code") {
  TempDir dir;
  const std::string out = dir / "out.safetensors", in = dir / "in.safetensors";
  const std::string good = data_file("real/minilm_layer0_len61.safetensors");
  for (int64_t n = 0; n < commands; ++n) {
    Draw draw(first_seed + static_cast<uint64_t>(n));
    if (draw.rarely(2)) write_bytes(in, odd_safetensors(draw));
    const std::vector<std::string> inputs =
        std::filesystem::exists(in) ? std::vector<std::string>{good, in} : std::vector<std::string>{good};
    const std::vector<std::string> arguments = odd_command_line(draw, inputs, out);
    const Outcome outcome = lanewise_command(arguments);
    std::string line;
    for (const std::string& argument : arguments) line += " '" + argument + "'";
    INFO("--seed " << first_seed + static_cast<uint64_t>(n) << ":" << line << "\nexit code " << outcome.code << "\n"
                   << outcome.err);
    CHECK((outcome.code == 0 || outcome.code == 1 || (outcome.code == 2 && is_one_clear_line(outcome.err))));
    if (outcome.code == 2) CHECK(!std::filesystem::exists(out));
    std::filesystem::remove(out);
    CHECK(dir.count() <= 1);
  }
}

}  // namespace
}  // namespace lanewise::test

int main(int argc, char** argv) {
  Catch::Session session;
  using Catch::Clara::Opt;
  session.cli(session.cli() | Opt(tries, "count")["--tries"]("files of a test case") |
              Opt(commands, "count")["--commands"]("command lines") |
              Opt(first_seed, "seed")["--seed"]("of the first"));
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  return session.run();
}
