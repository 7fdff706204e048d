#include "io/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace lanewise::io {
namespace {

struct TypeEntry {
  const char* name;
  size_t size;
};

// In the order of Type.
constexpr TypeEntry kTypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2},
                                {"I64", 8}, {"I32", 4}, {"U8", 1},   {"BOOL", 1}};

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to float "to odd": what is lost sets the last bit. A second rounding to a 16-bit type is then right, where
// rounding twice to nearest would not be.
uint32_t float_bits_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  uint32_t bits = bits_of(nearest);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return bits;
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return bits | 1u;
}

uint16_t bf16_from_float_bits(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t f16_from_float_bits(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and up, inf
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);             // under half the smallest denormal
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t exponent = magnitude >> 23;
  uint32_t shift = 13;
  uint32_t base = (exponent - 112) << 10;
  if (exponent < 113) {  // denormal in half precision
    shift = 126 - exponent;
    base = 0;
  } else {
    mantissa &= 0x7fffffu;
  }
  uint32_t result = base + (mantissa >> shift);
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  if (rest > half || (rest == half && (result & 1u) != 0)) ++result;  // may carry into the exponent, up to inf: right
  return static_cast<uint16_t>(sign | result);
}

}  // namespace

const char* type_name(Type type) { return kTypes[static_cast<size_t>(type)].name; }
size_t type_size(Type type) { return kTypes[static_cast<size_t>(type)].size; }
bool is_float(Type type) { return type <= Type::f16; }

bool type_from_name(std::string_view name, Type& type) {
  for (size_t i = 0; i < sizeof kTypes / sizeof kTypes[0]; ++i) {
    if (name == kTypes[i].name) {
      type = static_cast<Type>(i);
      return true;
    }
  }
  return false;
}

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 80;
  static const char kDigits[] = "0123456789abcdef";
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += c;
    }
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i == 8) return result + ", ...]";
    result += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return result + "]";
}

bool element_count(const std::vector<int64_t>& shape, int64_t& count) {
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return false;
    empty = empty || dimension == 0;
  }
  count = empty ? 0 : 1;
  if (empty) return true;
  for (const int64_t dimension : shape) {
    if (count > std::numeric_limits<int64_t>::max() / dimension) return false;
    count *= dimension;
  }
  return true;
}

void Buffer::Free::operator()(uint8_t* bytes) const { std::free(bytes); }

Buffer::Buffer(size_t size) : size_(size) {
  constexpr size_t kAlign = 64;
  // One unit at least, so that the pointer of an empty tensor is a valid one.
  const size_t rounded = size > std::numeric_limits<size_t>::max() - kAlign ? 0 : (size / kAlign + 1) * kAlign;
  // malloc's own limit, checked here because sanitizers abort on larger requests.
  constexpr size_t kLargest = size_t{1} << 46;
  if (rounded != 0 && rounded <= kLargest) data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlign, rounded)));
  if (!data_) throw Error("out of memory: " + std::to_string(size) + " bytes asked for");
}

Tensor sizes_of(std::string name, Type type, std::vector<int64_t> shape) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.shape = std::move(shape);
  int64_t count = 0;
  const int64_t size = static_cast<int64_t>(type_size(type));
  if (!element_count(tensor.shape, count) || count > std::numeric_limits<int64_t>::max() / size) {
    throw Error("tensor " + quote(tensor.name) + ": shape " + shape_text(tensor.shape) + " is not a possible size");
  }
  return tensor;
}

Tensor make_tensor(std::string name, Type type, std::vector<int64_t> shape) {
  Tensor tensor = sizes_of(std::move(name), type, std::move(shape));
  int64_t count = 0;
  (void)element_count(tensor.shape, count);
  tensor.bytes = Buffer(static_cast<size_t>(count) * type_size(type));
  return tensor;
}

float float_from_bf16(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

float float_from_f16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or a denormal; exact
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t bf16_from_double(double value) { return bf16_from_float_bits(float_bits_to_odd(value)); }
uint16_t f16_from_double(double value) { return f16_from_float_bits(float_bits_to_odd(value)); }

void swap_bytes(Tensor& tensor) {
  const size_t size = type_size(tensor.type);
  for (size_t i = 0; i < tensor.bytes.size(); i += size)
    std::reverse(tensor.bytes.data() + i, tensor.bytes.data() + i + size);
}

double element(const Tensor& tensor, int64_t index) {
  switch (tensor.type) {
    case Type::f64:
      return tensor.as<double>()[index];
    case Type::f32:
      return static_cast<double>(tensor.as<float>()[index]);
    case Type::bf16:
      return static_cast<double>(float_from_bf16(tensor.as<uint16_t>()[index]));
    case Type::f16:
      return static_cast<double>(float_from_f16(tensor.as<uint16_t>()[index]));
    case Type::i64:
      return static_cast<double>(tensor.as<int64_t>()[index]);
    case Type::i32:
      return tensor.as<int32_t>()[index];
    case Type::u8:
    case Type::boolean:
      break;
  }
  return tensor.as<uint8_t>()[index];
}

Tensor convert(const Tensor& tensor, Type type) {
  if (!is_float(tensor.type) || !is_float(type)) {
    throw Error("tensor " + quote(tensor.name) + ": " + type_name(tensor.type) + " cannot be converted to " +
                type_name(type));
  }
  Tensor result = make_tensor(tensor.name, type, tensor.shape);
  const int64_t count = tensor.count();
  if (tensor.type == type) {
    if (count != 0) std::memcpy(result.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
    return result;
  }
  for (int64_t i = 0; i < count; ++i) {
    const double value = element(tensor, i);
    if (type == Type::f64) {
      result.as<double>()[i] = value;
    } else if (type == Type::f32) {
      result.as<float>()[i] = static_cast<float>(value);
    } else {
      result.as<uint16_t>()[i] = type == Type::bf16 ? bf16_from_double(value) : f16_from_double(value);
    }
  }
  return result;
}

Tensor to_i32(const Tensor& tensor) {
  if (tensor.type != Type::i32 && tensor.type != Type::i64) {
    throw Error("tensor " + quote(tensor.name) + " has type " + type_name(tensor.type) + "; I32 is needed");
  }
  Tensor result = make_tensor(tensor.name, Type::i32, tensor.shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const int64_t value = tensor.type == Type::i32 ? tensor.as<int32_t>()[i] : tensor.as<int64_t>()[i];
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
      throw Error("tensor " + quote(tensor.name) + ": " + std::to_string(value) + " at " + std::to_string(i) +
                  " does not fit into 32 bits");
    }
    result.as<int32_t>()[i] = static_cast<int32_t>(value);
  }
  return result;
}

}  // namespace lanewise::io
