// The input of `lanewise worked-example`: its own three tokens, a JSON file, or tensors as every command reads them.
#pragma once

#include <string>

#include "tensor_set.hpp"

namespace lanewise::tools {

// `file`: safetensors or JSON; empty: what `flags` name, and if they name nothing the built-in example. JSON sets
// flags.scale where it has a scale and no flag gave one. `name`: entry of a JSON list "attention"; empty: its first.
TensorSet example_tensors(Flags& flags, const std::string& file, const std::string& name);

}  // namespace lanewise::tools
