#include "example_input.hpp"

#include <nlohmann/json.hpp>

#include "io/file.hpp"

namespace lanewise::tools {
namespace {

using Json = nlohmann::json;

io::Tensor matrix(const char* name, int64_t rows, int64_t columns, const std::vector<float>& values) {
  return io::make_tensor(name, io::Type::f32, {rows, columns}, values);
}

// The example of docs/WHY-SQRT-DK.md; tests/data/worked.json has it with its results.
TensorSet three_tokens() {
  TensorSet tensors;
  tensors["q"] = matrix("q", 3, 4, {1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0});
  tensors["k"] = matrix("k", 3, 4, {1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0});
  tensors["v"] = matrix("v", 3, 4, {1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0});
  return tensors;
}

Json parse(const std::string& path) {
  const io::InputFile file(path);
  if (file.size() > (1 << 20)) throw file.error("too large for an example; at most 1 MiB is allowed");
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw file.error("is not JSON");
  return json;
}

// The object with q, k, v.
Json entry_of(const Json& json, const std::string& path, const std::string& name) {
  if (!json.is_object() || !json.contains("attention")) {
    if (!name.empty()) throw Error(path + ": has no list \"attention\" to look for --name in");
    return json;
  }
  std::string names;
  if (json["attention"].is_array()) {
    for (const Json& entry : json["attention"]) {
      const Json found = entry.is_object() ? entry.value("name", Json()) : Json();
      const std::string own = found.is_string() ? found.get<std::string>() : "";
      if (name.empty() || name == own) return entry;
      names += (names.empty() ? "" : ", ") + io::quote(own);
    }
  }
  throw Error(path + ": \"attention\" has no entry " + io::quote(name) + "; there are " + names);
}

io::Tensor matrix_of(const Json& entry, const char* name, bool flags, const std::string& path) {
  const auto fail = [&](const std::string& text) { return Error(path + ": " + io::quote(name) + " " + text); };
  const Json rows = entry.is_object() ? entry.value(name, Json()) : Json();
  if (!rows.is_array() || rows.empty() || !rows[0].is_array() || rows[0].empty()) {
    throw fail("is needed as a list of rows, each a list");
  }
  std::vector<float> values;
  for (const Json& row : rows) {
    if (!row.is_array() || row.size() != rows[0].size()) throw fail("has rows of different lengths");
    for (const Json& value : row) {
      if (flags ? !value.is_boolean() : !value.is_number()) {
        throw fail(flags ? "has an element that is not true or false" : "has an element that is not a number");
      }
      values.push_back(flags ? static_cast<float>(value.get<bool>()) : value.get<float>());
    }
  }
  const int64_t columns = static_cast<int64_t>(rows[0].size()), count = static_cast<int64_t>(rows.size());
  if (!flags) return matrix(name, count, columns, values);
  return io::make_tensor(name, io::Type::boolean, {1, 1, count, columns},
                         std::vector<uint8_t>(values.begin(), values.end()));
}

TensorSet from_json(Flags& flags, const std::string& path, const std::string& name) {
  const Json entry = entry_of(parse(path), path, name);
  TensorSet tensors;
  for (const char* tensor : {"q", "k", "v"}) tensors[tensor] = matrix_of(entry, tensor, false, path);
  if (entry.contains("mask")) tensors["mask"] = matrix_of(entry, "mask", true, path);
  if (entry.contains("scale") && !flags.scale) {
    if (!entry["scale"].is_number()) throw Error(path + ": \"scale\" is not a number");
    flags.scale = entry["scale"].get<double>();
  }
  return tensors;
}

}  // namespace

TensorSet example_tensors(Flags& flags, const std::string& file, const std::string& name) {
  const bool json = ends_with(file, ".json");
  if (!name.empty() && !json) throw Error("--name goes with --file FILE.json");
  if (!file.empty() && (!flags.input.empty() || (json && !flags.npy.empty()))) {
    throw Error("--file and another input are given; one is needed");
  }
  if (json) return from_json(flags, file, name);
  if (!file.empty()) flags.input = file;
  if (flags.input.empty() && flags.npy.empty()) return three_tokens();
  return load_tensors(flags, "", Load::everything);
}

}  // namespace lanewise::tools
