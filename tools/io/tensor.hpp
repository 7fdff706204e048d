// Tensors of the command's files: a name, a type, a shape and owned bytes, row-major, in the host's byte order; conversions
// between the types; the one exception type of the tools. Not here: file formats (safetensors.hpp, npy.hpp), strides,
// attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lanewise::io {

// The files are little-endian.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
inline constexpr bool kHostIsBigEndian = true;
#else
inline constexpr bool kHostIsBigEndian = false;
#endif

// Whatever is wrong with a file, a tensor or an argument: one line that names it, what is wrong and what is allowed.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Type : int32_t { f64, f32, bf16, f16, i64, i32, u8, boolean };

const char* type_name(Type type);  // as in safetensors: "F64", "BF16", "BOOL" ...
bool type_from_name(std::string_view name, Type& type);
size_t type_size(Type type);  // bytes of an element
bool is_float(Type type);

// A name out of a file, in quotes and fit for one line of a message: control characters escaped, long ones cut.
std::string quote(std::string_view text);
std::string shape_text(const std::vector<int64_t>& shape);  // "[1, 12, 61, 32]"

// Product of the dimensions; false if one is negative or the product does not fit. A shape with a 0 has no elements.
bool element_count(const std::vector<int64_t>& shape, int64_t& count);

// Bytes aligned to 64, not initialised. Throws Error where there is no memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size);
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* bytes) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  size_t size_ = 0;
};

struct Tensor {
  std::string name;
  Type type = Type::f32;
  std::vector<int64_t> shape;
  Buffer bytes;  // exactly count() elements

  int64_t count() const { return static_cast<int64_t>(bytes.size() / type_size(type)); }
  // Elem must be the type's C++ form: double, float, uint16_t for BF16 and F16, int64_t, int32_t, uint8_t for U8 and
  // BOOL.
  template <class Elem>
  Elem* as() const {
    return reinterpret_cast<Elem*>(bytes.data());
  }
};

// Without bytes: for a plan, which needs no elements. Throws Error if the sizes overflow.
Tensor sizes_of(std::string name, Type type, std::vector<int64_t> shape);

// A tensor of the given shape, not initialised. Throws Error if the sizes overflow.
Tensor make_tensor(std::string name, Type type, std::vector<int64_t> shape);

// A tensor with these elements; their number must be the shape's.
template <class Elem>
Tensor make_tensor(std::string name, Type type, std::vector<int64_t> shape, const std::vector<Elem>& elements) {
  Tensor tensor = make_tensor(std::move(name), type, std::move(shape));
  if (sizeof(Elem) != type_size(type) || static_cast<int64_t>(elements.size()) != tensor.count()) {
    throw Error("tensor " + quote(tensor.name) + ": elements do not fit shape " + shape_text(tensor.shape));
  }
  if (!elements.empty()) std::memcpy(tensor.bytes.data(), elements.data(), tensor.bytes.size());
  return tensor;
}

// Single values. Widening is exact; narrowing rounds to nearest even once, keeps NaN (as a quiet one) and overflows to
// inf.
float float_from_bf16(uint16_t bits);
float float_from_f16(uint16_t bits);
uint16_t bf16_from_double(double value);
uint16_t f16_from_double(double value);

// Reverses the bytes of every element.
void swap_bytes(Tensor& tensor);

double element(const Tensor& tensor, int64_t index);  // any type, as double
Tensor convert(const Tensor& tensor, Type type);      // between float types
Tensor to_i32(const Tensor& tensor);  // I32 or I64; throws where a value does not fit or for another type

}  // namespace lanewise::io
