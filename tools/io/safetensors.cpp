#include "io/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace lanewise::io {
namespace {

using Json = nlohmann::json;

// Deepest nesting of a header: object of tensors, a tensor, its list.
constexpr int kDeepest = 3;

// The header as JSON. nlohmann keeps the last of equal keys, so duplicates are looked for while parsing.
Json parse_json(const InputFile& file, const std::string& text) {
  std::vector<std::set<std::string>> seen(kDeepest + 1);
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const size_t level = static_cast<size_t>(depth);
    if (depth > kDeepest) throw file.error("the header is nested too deeply to be a safetensors header");
    if (event == Json::parse_event_t::object_start && level < kDeepest) seen[level + 1].clear();
    if (event == Json::parse_event_t::key && !seen[level].insert(parsed.get<std::string>()).second) {
      throw file.error("the header has the name " + quote(parsed.get<std::string>()) + " twice");
    }
    return true;
  };
  try {
    return Json::parse(text, callback);
  } catch (const Json::parse_error& failure) {
    throw file.error("the header is not valid JSON (at its byte " + std::to_string(failure.byte) + ")");
  } catch (const Json::exception&) {
    throw file.error("the header is not valid JSON");
  }
}

bool as_int64(const Json& value, int64_t& result) {
  if (!value.is_number_unsigned()) return false;
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  result = static_cast<int64_t>(number);
  return true;
}

// One tensor of the header. Sizes and offsets are checked against the file here, against each other later.
TensorEntry parse_entry(const InputFile& file, const std::string& name, const Json& value, uint64_t data_offset) {
  const std::string where = "tensor " + quote(name) + ": ";
  if (!value.is_object()) throw file.error(where + "its header entry is not an object");
  const auto type = value.find("dtype");
  const auto shape = value.find("shape");
  const auto offsets = value.find("data_offsets");
  if (type == value.end() || shape == value.end() || offsets == value.end() || value.size() != 3) {
    throw file.error(where + "its header entry must have dtype, shape and data_offsets and nothing else");
  }
  TensorEntry entry;
  entry.name = name;
  if (!type->is_string()) throw file.error(where + "dtype is not a string");
  if (!type_from_name(type->get_ref<const std::string&>(), entry.type)) {
    throw file.error(where + "dtype " + quote(type->get_ref<const std::string&>()) +
                     " is not supported; F64, F32, BF16, F16, I64, I32, U8 and BOOL are");
  }
  if (!shape->is_array()) throw file.error(where + "shape is not a list");
  for (const Json& item : *shape) {
    int64_t dimension = 0;
    if (!as_int64(item, dimension)) throw file.error(where + "shape holds something that is not a size");
    entry.shape.push_back(dimension);
  }
  int64_t begin = 0;
  int64_t end = 0;
  if (!offsets->is_array() || offsets->size() != 2 || !as_int64((*offsets)[0], begin) ||
      !as_int64((*offsets)[1], end)) {
    throw file.error(where + "data_offsets is not a pair of byte offsets");
  }
  const uint64_t available = file.size() - data_offset;
  const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end) throw file.error(where + range + " end before they begin");
  if (static_cast<uint64_t>(end) > available) {
    throw file.error(where + range + " reach beyond the " + std::to_string(available) +
                     " data bytes of the file (truncated?)");
  }
  int64_t count = 0;
  const int64_t unit = static_cast<int64_t>(type_size(entry.type));
  if (!element_count(entry.shape, count) || count > std::numeric_limits<int64_t>::max() / unit) {
    throw file.error(where + "shape " + shape_text(entry.shape) + " overflows");
  }
  if (end - begin != count * unit) {
    throw file.error(where + range + " hold " + std::to_string(end - begin) + " bytes, but shape " +
                     shape_text(entry.shape) + " of " + type_name(entry.type) + " needs " +
                     std::to_string(count * unit));
  }
  entry.offset = data_offset + static_cast<uint64_t>(begin);
  entry.size = static_cast<uint64_t>(end - begin);
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < 8) {
    throw file_.error("has " + std::to_string(file_.size()) + " bytes: too short to be a safetensors file");
  }
  uint8_t bytes[8];
  file_.read(0, bytes, sizeof bytes);
  if (std::memcmp(bytes, "\x93NUMPY", 6) == 0)
    throw file_.error(
        "is an npy file, not a safetensors file (attend, explain and weights take npy files by --q, --k, --v ...)");
  uint64_t length = 0;
  for (int n = 7; n >= 0; --n) length = length << 8 | bytes[n];
  if (length > kLongestHeader) {
    throw file_.error("header length " + std::to_string(length) + " is over the limit of " +
                      std::to_string(kLongestHeader) + ": not a safetensors file?");
  }
  if (length > file_.size() - 8) {
    throw file_.error("is truncated: its header has " + std::to_string(length) + " bytes, the file " +
                      std::to_string(file_.size()));
  }
  std::string text(static_cast<size_t>(length), '\0');
  file_.read(8, text.data(), text.size());
  if (text.empty() || text[0] != '{')
    throw file_.error("is not a safetensors file: its header does not start with '{'");
  parse_header(text, 8 + length);
  check_layout(8 + length);
}

void SafetensorsFile::parse_header(const std::string& text, uint64_t data_offset) {
  const Json header = parse_json(file_, text);
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      entries_.push_back(parse_entry(file_, name, value, data_offset));
      continue;
    }
    if (!value.is_object()) throw file_.error("__metadata__ is not an object");
    for (const auto& [key, item] : value.items()) {
      if (!item.is_string()) throw file_.error("__metadata__ " + quote(key) + " is not a string");
      metadata_[key] = item.get<std::string>();
    }
  }
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.size < b.size;
  });
}

// The format allows no gaps and no overlaps: the tensors cover the data exactly.
void SafetensorsFile::check_layout(uint64_t data_offset) const {
  uint64_t expected = data_offset;
  for (const TensorEntry& entry : entries_) {
    if (entry.offset != expected) {
      throw file_.error("tensor " + quote(entry.name) + (entry.offset < expected ? " overlaps" : " leaves a gap to") +
                        " the tensor before it");
    }
    expected += entry.size;
  }
  if (expected != file_.size()) {
    throw file_.error("has " + std::to_string(file_.size() - expected) + " bytes that belong to no tensor at its end");
  }
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  for (const TensorEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Tensor SafetensorsFile::read(const TensorEntry& entry) const {
  Tensor tensor = make_tensor(entry.name, entry.type, entry.shape);
  file_.read(entry.offset, tensor.bytes.data(), static_cast<size_t>(entry.size));
  if (kHostIsBigEndian) swap_bytes(tensor);
  return tensor;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw file_.error("has no tensor " + quote(name));
  return read(*entry);
}

void write_safetensors(const std::string& path, const std::vector<const Tensor*>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Tensor* tensor : tensors) {
    if (header.contains(tensor->name) || tensor->name == "__metadata__") {
      throw Error(path + ": tensor " + quote(tensor->name) + " cannot be written: the name is taken");
    }
    const uint64_t end = offset + tensor->bytes.size();
    header[tensor->name] = {
        {"dtype", type_name(tensor->type)}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw Error(path + ": a tensor name or metadata is not valid UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  if (length > kLongestHeader) throw Error(path + ": too many tensors for one file");
  OutputFile file(path);
  uint8_t bytes[8];
  for (int n = 0; n < 8; ++n) bytes[n] = static_cast<uint8_t>(length >> (8 * n));
  file.write(bytes, sizeof bytes);
  file.write(text.data(), text.size());
  for (const Tensor* tensor : tensors) write_elements(file, *tensor);
  file.commit();
}

}  // namespace lanewise::io
