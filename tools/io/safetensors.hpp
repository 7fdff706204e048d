// safetensors files (https://github.com/huggingface/safetensors, "Format"): 8 bytes with the length of a JSON header,
// the header, the tensors' bytes one behind another. The header is checked whole on opening; a tensor's bytes are read
// when asked for.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.hpp"
#include "io/tensor.hpp"

namespace lanewise::io {

// Longest header read: 100,000 tensors fit; a length field of garbage does not.
inline constexpr uint64_t kLongestHeader = uint64_t{16} << 20;

struct TensorEntry {
  std::string name;
  Type type;
  std::vector<int64_t> shape;
  uint64_t offset;  // of the first byte in the file
  uint64_t size;    // in bytes
};

class SafetensorsFile {
 public:
  // Throws Error for anything that is not a whole, consistent file.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* find(std::string_view name) const;  // null: no such tensor
  Tensor read(const TensorEntry& entry) const;
  Tensor read(std::string_view name) const;  // throws if there is no such tensor

 private:
  void parse_header(const std::string& text, uint64_t data_offset);
  void check_layout(uint64_t data_offset) const;

  InputFile file_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes all tensors or no file. Names must differ. Tensors start at multiples of their element size where the order
// given allows.
void write_safetensors(const std::string& path, const std::vector<const Tensor*>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lanewise::io
