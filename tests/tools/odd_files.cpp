#include "odd_files.hpp"

#include <stdexcept>

#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "temp_dir.hpp"

namespace lanewise::test {
namespace {

// Bytes of a file are changed, dropped, doubled; numbers in its text become others.
std::string damaged(std::string bytes, Draw& draw) {
  const char* const kNumbers[] = {"0", "-1", "18446744073709551615", "9223372036854775807", "1e9", "4294967296", "[]"};
  const char* const kWords[] = {"\"F32\"", "\"shape\"", "null", "{", "}",    "[",     "]",
                                ",",       ":",         "(",    ")", "True", "'<f4'", "\\u0000"};
  for (int64_t n = draw.within(1, 4); n > 0 && !bytes.empty(); --n) {
    const size_t at = static_cast<size_t>(draw.below(static_cast<int64_t>(bytes.size())));
    const size_t some = static_cast<size_t>(draw.within(1, 16));
    switch (draw.below(7)) {
      case 0:
        bytes[at] = static_cast<char>(draw.below(256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw.below(8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, some);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, some));
        break;
      case 5:
        bytes.insert(at, draw.one_of(kWords));
        break;
      default: {  // the next number
        const size_t digit = bytes.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = bytes.find_first_not_of("0123456789", digit);
        bytes.replace(digit, (end == std::string::npos ? bytes.size() : end) - digit, draw.one_of(kNumbers));
      }
    }
  }
  return bytes;
}

// Empty, or what is wrong with how `read` takes a file.
template <class Read>
std::string outcome_of(const Read& read) {
  try {
    read();
    return "";
  } catch (const io::Error& error) {
    const std::string text = error.what();
    return text.find('\n') == std::string::npos ? "" : "an error of several lines: " + text;
  } catch (const std::exception& error) {
    return std::string("not an io::Error: ") + error.what();
  }
}

}  // namespace

// In a file with an intact length field the JSON is damaged, or else the file is.
std::string odd_safetensors(Draw& draw) {
  const std::string header =
      R"({"__metadata__":{"scale":"0.5"},"q":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]},)"
      R"("k":{"dtype":"BF16","shape":[2,2],"data_offsets":[24,32]},"m":{"dtype":"BOOL","shape":[3],"data_offsets":[32,35]}})";
  const std::string data(35, '\1');
  if (draw.rarely(2)) return damaged(safetensors_bytes(header, data), draw);
  return safetensors_bytes(damaged(header, draw), data);
}

std::string odd_npy(Draw& draw) {
  const int version = static_cast<int>(draw.within(1, 3));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }        \n";
  const std::string data(96, '\1');
  if (draw.rarely(2)) return damaged(npy_bytes(header, data, version), draw);
  return npy_bytes(damaged(header, draw), data, version);
}

std::string check_safetensors(const std::string& path) {
  return outcome_of([&] {
    const io::SafetensorsFile file(path);
    for (const io::TensorEntry& entry : file.entries()) {
      if (file.read(entry).bytes.size() != entry.size) throw std::runtime_error("another size");
    }
  });
}

std::string check_npy(const std::string& path) {
  return outcome_of([&] { io::read_npy(path, "a"); });
}

std::vector<std::string> odd_command_line(Draw& draw, const std::vector<std::string>& inputs,
                                          const std::string& output) {
  const char* const kCommands[] = {"attend", "attend", "attend", "explain", "merge", "append", "info", "weights"};
  const char* const kFlags[] = {
      "--causal", "--q-offset", "--window",         "--prefix",     "--scale",      "--softcap",
      "--alibi",  "--dtype",    "--kv-dtype",       "--out-dtype",  "--arithmetic", "--threads",
      "--target", "--executor", "--no-lse",         "--pad",        "--check",      "--tolerance",
      "--shape",  "--layout",   "--verify-against", "--block-mask", "--state-out",  "--help"};
  const char* const kValues[] = {
      "0",    "-1",  "1",      "2,3",         "nan",   "inf",     "1e39", "9223372036854775808",
      "bf16", "f16", "caller", "native_bf16", "AVX2",  "no-such", "",     "1,8,2,7,300,64,64",
      "blhd", "out", "--",     "65537",       "16,24", "\n"};
  std::vector<std::string> arguments = {draw.one_of(kCommands)};
  if (!draw.rarely(5))
    arguments.push_back(inputs[static_cast<size_t>(draw.below(static_cast<int64_t>(inputs.size())))]);
  if (!draw.rarely(5)) arguments.insert(arguments.end(), {"-o", output});
  for (int64_t words = draw.below(5); words > 0; --words) {
    arguments.push_back(draw.one_of(kFlags));
    if (draw.rarely(2)) arguments.push_back(draw.one_of(kValues));
  }
  return arguments;
}

}  // namespace lanewise::test
