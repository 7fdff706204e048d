// The tensors of a problem by name, from a safetensors file, npy files, or both. Knows which names there are, not what
// they mean.
#pragma once

#include <map>
#include <string>

#include "flags.hpp"
#include "io/tensor.hpp"

namespace lanewise::tools {

using TensorSet = std::map<std::string, io::Tensor>;

enum class Load {
  everything,
  sizes,            // large tensors come without their bytes, for a plan
  queries_and_keys  // v is left out, and need not be there
};

// Reads the tensors that flags name. Unknown names are an error, so that a misspelt rule is not lost; expected results
// ("out", "lse" and `expected`, which may be empty) are left to load_expected.
TensorSet load_tensors(const Flags& flags, const std::string& expected, Load load);

// An expected result: a tensor of flags.input, or an npy file if the name ends in .npy. Throws if it is not there.
io::Tensor load_expected(const Flags& flags, const std::string& name);

// True if flags.input has such a tensor.
bool has_tensor(const Flags& flags, const std::string& name);

bool ends_with(const std::string& text, const std::string& ending);

}  // namespace lanewise::tools
