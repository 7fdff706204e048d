#include "data.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lanewise::test {
namespace {

template <class T>
std::vector<double> values_of(const std::string& bytes, size_t begin, size_t count) {
  if (begin > bytes.size() || count > (bytes.size() - begin) / sizeof(T)) throw std::runtime_error("truncated tensor");
  std::vector<T> raw(count);
  std::memcpy(raw.data(), bytes.data() + begin, count * sizeof(T));
  return std::vector<double>(raw.begin(), raw.end());
}

}  // namespace

Array StoredTensor::as_array() const {
  Array array(shape);
  std::transform(values.begin(), values.end(), array.values.begin(), [](double x) { return static_cast<float>(x); });
  return array;
}

std::string data_path(const std::string& name) { return std::string(LANEWISE_TEST_DATA) + "/" + name; }

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::map<std::string, StoredTensor> read_safetensors(const std::string& path) {
  const std::string bytes = read_text(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, header_size));
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    StoredTensor tensor = {entry.at("dtype"), {1, 1, 1, 1}, {}};
    const std::vector<int64_t> shape = entry.at("shape");
    std::copy_backward(shape.begin(), shape.end(), tensor.shape.end());
    const size_t begin = 8 + header_size + entry.at("data_offsets").at(0).get<size_t>();
    const size_t count = Array::size_of(tensor.shape);
    if (tensor.dtype == "F32") tensor.values = values_of<float>(bytes, begin, count);
    if (tensor.dtype == "F64") tensor.values = values_of<double>(bytes, begin, count);
    if (tensor.dtype == "I32") tensor.values = values_of<int32_t>(bytes, begin, count);
    if (tensor.dtype == "BOOL") tensor.values = values_of<uint8_t>(bytes, begin, count);
    if (tensor.values.empty()) throw std::runtime_error("unexpected type " + tensor.dtype);
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace lanewise::test
