#include "tensor_set.hpp"

#include <algorithm>

#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace lanewise::tools {
namespace {

using io::quote;

bool known(const std::string& name) {
  const auto& names = tensor_names();
  return std::any_of(names.begin(), names.end(), [&](const TensorName& entry) { return name == entry.name; });
}

// As large as the problem: what a plan does not need to see.
bool large(const std::string& name) {
  for (const char* other : {"q", "k", "v", "mask", "mask_bits", "bias", "state_max", "state_sum", "state_acc"}) {
    if (name == other) return true;
  }
  return false;
}

void load_file(const Flags& flags, const std::string& expected, Load load, TensorSet& tensors) {
  const io::SafetensorsFile file(flags.input);
  for (const std::string& name : flags.ignored) {
    if (file.find(name) == nullptr) throw Error(file.path() + ": has no tensor " + quote(name) + " to ignore");
  }
  for (const io::TensorEntry& entry : file.entries()) {
    const std::string& name = entry.name;
    const bool ignored = std::find(flags.ignored.begin(), flags.ignored.end(), name) != flags.ignored.end();
    if (ignored || (load == Load::queries_and_keys && name == "v") || name == "out" || name == "lse" ||
        (!known(name) && name == expected))
      continue;
    if (!known(name)) {
      throw Error(file.path() + ": tensor " + quote(name) +
                  " is not one this command knows (--ignore leaves it out; names are those of the "
                  "options of --help, with _ for -)");
    }
    if (flags.npy.count(name) != 0)
      throw Error("tensor " + quote(name) + " is given twice: in " + file.path() + " and by a flag");
    tensors[name] = load == Load::sizes && large(name) ? io::sizes_of(name, entry.type, entry.shape) : file.read(entry);
  }
}

}  // namespace

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

TensorSet load_tensors(const Flags& flags, const std::string& expected, Load load) {
  TensorSet tensors;
  if (!flags.input.empty()) {
    load_file(flags, expected, load, tensors);
  } else if (!flags.ignored.empty()) {
    throw Error("--ignore: there is no input file to leave tensors out of");
  }
  const bool with_v = load != Load::queries_and_keys;
  for (const auto& [name, path] : flags.npy) {
    if (with_v || name != "v") tensors[name] = io::read_npy(path, name);
  }
  for (const char* name : {"q", "k", "v"}) {
    if (tensors.count(name) != 0 || (!with_v && std::string(name) == "v")) continue;
    const std::string where = flags.input.empty() ? "no input: " : flags.input + ": ";
    throw Error(where + "tensor '" + name + "' is missing (IN.safetensors, or " +
                (with_v ? "--q, --k and --v)" : "--q and --k)"));
  }
  return tensors;
}

io::Tensor load_expected(const Flags& flags, const std::string& name) {
  if (ends_with(name, ".npy")) return io::read_npy(name, name);
  if (flags.input.empty()) throw Error(quote(name) + " cannot be looked up without an input file; name an .npy file");
  return io::SafetensorsFile(flags.input).read(name);
}

bool has_tensor(const Flags& flags, const std::string& name) {
  return !flags.input.empty() && io::SafetensorsFile(flags.input).find(name) != nullptr;
}

}  // namespace lanewise::tools
