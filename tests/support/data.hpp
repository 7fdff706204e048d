// Files of tests/data as cases. A reader of its own, so that a mistake in the tools' reader does not hide itself.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "array.hpp"

namespace lanewise::test {

// Of a safetensors file. Missing leading axes are 1.
struct StoredTensor {
  std::string dtype;
  Shape shape;
  std::vector<double> values;

  Array as_array() const;
};

std::string data_path(const std::string& name);  // of tests/data
std::string read_text(const std::string& path);
std::map<std::string, StoredTensor> read_safetensors(const std::string& path);

}  // namespace lanewise::test
