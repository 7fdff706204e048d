// Files and command lines behind libFuzzer's entry (CONTRIBUTING.md, "Fuzzing"). LANEWISE_ENTRY is safetensors or npy,
// where the input is the file, or command, where it is a list of choices and the command is a function of this program.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "odd_files.hpp"
#include "temp_dir.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);
int lanewise_main(int argc, char** argv);

namespace lanewise::test {
namespace {

// A file of these bytes that is in no folder.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* bytes, size_t size) : descriptor_(::memfd_create("input", 0)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes, size) != static_cast<ssize_t>(size)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

[[maybe_unused]] std::string safetensors(const uint8_t* bytes, size_t size) {
  return check_safetensors(MemoryFile(bytes, size).path());
}

[[maybe_unused]] std::string npy(const uint8_t* bytes, size_t size) {
  return check_npy(MemoryFile(bytes, size).path());
}

#ifdef LANEWISE_COMMAND_ENTRY
std::string command(const uint8_t* bytes, size_t size) {
  static const TempDir dir;
  const std::string in = dir / "in.safetensors", out = dir / "out.safetensors";
  Draw draw(bytes, size);
  write_bytes(in, odd_safetensors(draw));
  std::string name = "lanewise", line;
  std::vector<std::string> arguments =
      odd_command_line(draw, {std::string(LANEWISE_TEST_DATA) + "/real/minilm_layer0_len61.safetensors", in}, out);
  std::vector<char*> argv = {name.data()};
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
    line += " '" + argument + "'";
  }
  argv.push_back(nullptr);
  const int code = lanewise_main(static_cast<int>(argv.size()) - 1, argv.data());
  if (code < 0 || code > 2) return "exit code " + std::to_string(code) + " of" + line;
  if (code == 2 && std::filesystem::exists(out)) return "an output in spite of an error of" + line;
  std::filesystem::remove(out);
  return dir.count() == 1 ? "" : "a file is left by" + line;
}
#endif

}  // namespace
}  // namespace lanewise::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text = lanewise::test::LANEWISE_ENTRY(bytes, size);
  if (text.empty()) return 0;
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}
