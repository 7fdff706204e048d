// Tensors that tests of the command put into its files and find in its results.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.hpp"

namespace lanewise::test {

using io::Tensor;
using io::Type;

// Numbers without pattern in -2 ... 2.
inline Tensor numbers(const std::string& name, std::vector<int64_t> shape) {
  Tensor tensor = io::make_tensor(name, Type::f32, std::move(shape));
  uint32_t state = static_cast<uint32_t>(name[0]);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.as<float>()[i] = static_cast<float>(static_cast<double>(state) * 0x1p-30 - 2);
  }
  return tensor;
}

inline void write(const std::string& path, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  io::write_safetensors(path, pointers);
}

inline void write_qkv(const std::string& path, std::vector<int64_t> q, std::vector<int64_t> k, std::vector<int64_t> v) {
  std::vector<Tensor> tensors;
  tensors.push_back(numbers("q", std::move(q)));
  tensors.push_back(numbers("k", std::move(k)));
  tensors.push_back(numbers("v", std::move(v)));
  write(path, tensors);
}

inline Tensor part(const Tensor& from, int64_t begin, int64_t end) {  // of axis 0
  std::vector<int64_t> shape = from.shape;
  const size_t row = from.bytes.size() / static_cast<size_t>(shape[0]);
  shape[0] = end - begin;
  Tensor result = io::make_tensor(from.name, from.type, shape);
  std::memcpy(result.bytes.data(), from.bytes.data() + static_cast<size_t>(begin) * row, result.bytes.size());
  return result;
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

}  // namespace lanewise::test
