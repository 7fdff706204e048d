#include "data.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

namespace lanewise::test {
namespace {

// A little-endian number, byte by byte.
template <class T>
T number_at(const char* bytes) {
  std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint8_t>> bits = 0;
  for (size_t n = sizeof(T); n-- > 0;)
    bits = static_cast<decltype(bits)>(uint64_t{bits} << 8 | static_cast<uint8_t>(bytes[n]));
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
std::vector<double> values_of(const std::string& bytes, size_t begin, size_t count) {
  if (begin > bytes.size() || count > (bytes.size() - begin) / sizeof(T)) throw std::runtime_error("truncated tensor");
  std::vector<double> values;
  for (size_t n = 0; n < count; ++n)
    values.push_back(static_cast<double>(number_at<T>(bytes.data() + begin + n * sizeof(T))));
  return values;
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
  const uint64_t header_size = number_at<uint64_t>(bytes.data());
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
