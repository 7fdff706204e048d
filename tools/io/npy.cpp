#include "io/npy.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "io/file.hpp"

namespace lanewise::io {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
constexpr uint64_t kLongestNpyHeader = 65536;

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// Reads the header's Python dictionary: exactly the keys descr, fortran_order and shape, in any order, as repr() writes
// them.
class HeaderParser {
 public:
  HeaderParser(const InputFile& file, const std::string& text) : file_(file), text_(text) {}

  Header parse() {
    Header header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      bool* seen = key == "descr"           ? &has_descr
                   : key == "fortran_order" ? &has_order
                   : key == "shape"         ? &has_shape
                                            : nullptr;
      if (seen == nullptr || *seen) fail("has an unexpected key " + quote(key));
      *seen = true;
      if (seen == &has_descr) {
        if (peek() == '[') fail("describes records; only plain arrays are supported");
        header.descr = string();
      } else if (seen == &has_order) {
        header.fortran = boolean();
      } else {
        header.shape = tuple();
      }
      if (!accept(',') && peek() != '}') fail("is malformed at byte " + std::to_string(at_));
    }
    skip_space();
    if (at_ != text_.size()) fail("has something after its dictionary");
    if (!has_descr || !has_order || !has_shape) fail("lacks descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw file_.error("the npy header " + what); }
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("is malformed at byte " + std::to_string(at_));
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("is malformed at byte " + std::to_string(at_));
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) fail("has a string without end");
    const std::string result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  bool boolean() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string word = value ? "True" : "False";
      if (text_.compare(at_, word.size(), word) == 0) {
        at_ += word.size();
        return value;
      }
    }
    fail("has a fortran_order that is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> result;
    expect('(');
    while (!accept(')')) {
      result.push_back(number());
      if (!accept(',') && peek() != ')') fail("has a malformed shape");
    }
    return result;
  }
  int64_t number() {
    skip_space();
    int64_t value = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const int digit = text_[at_] - '0';
      if (value > (std::numeric_limits<int64_t>::max() - digit) / 10) fail("has a shape that overflows");
      value = value * 10 + digit;
    }
    if (at_ == start) fail("has a shape that holds something that is not a size");
    return value;
  }

  const InputFile& file_;
  const std::string& text_;
  size_t at_ = 0;
};

struct Descr {
  const char* code;
  Type type;
};

constexpr Descr kDescrs[] = {{"f8", Type::f64}, {"f4", Type::f32}, {"f2", Type::f16},    {"i8", Type::i64},
                             {"i4", Type::i32}, {"u1", Type::u8},  {"b1", Type::boolean}};

// "<f4" and the like; `foreign` is set where the bytes are in the order that is not the host's. "=" is the host's.
Type type_of(const InputFile& file, const std::string& descr, bool& foreign) {
  for (const Descr& entry : kDescrs) {
    if (descr.size() != 3 || descr.compare(1, 2, entry.code) != 0) continue;
    const bool one_byte = type_size(entry.type) == 1;
    if (descr[0] != '<' && descr[0] != '>' && descr[0] != (one_byte ? '|' : '=')) break;
    foreign = !one_byte && descr[0] == (kHostIsBigEndian ? '<' : '>');
    return entry.type;
  }
  throw file.error("type " + quote(descr) +
                   " is not supported; f8, f4, f2, i8, i4, u1 and b1 are (bf16: use safetensors)");
}

// From Fortran order (first axis fastest) to C order (last axis fastest).
Tensor c_order(const Tensor& from) {
  Tensor to = make_tensor(from.name, from.type, from.shape);
  const size_t size = type_size(from.type);
  const size_t axes = from.shape.size();
  std::vector<int64_t> index(axes, 0);
  std::vector<int64_t> stride(axes, 1);  // of `from`
  for (size_t a = 1; a < axes; ++a) stride[a] = stride[a - 1] * from.shape[a - 1];
  int64_t source = 0;
  for (int64_t i = 0; i < from.count(); ++i) {
    std::memcpy(to.bytes.data() + static_cast<size_t>(i) * size, from.bytes.data() + static_cast<size_t>(source) * size,
                size);
    for (size_t a = axes; a-- > 0;) {
      source += stride[a];
      if (++index[a] < from.shape[a]) break;
      source -= stride[a] * from.shape[a];
      index[a] = 0;
    }
  }
  return to;
}

// Offset of the data, and the header's text.
uint64_t read_header(const InputFile& file, std::string& text) {
  uint8_t start[12] = {};
  if (file.size() < 10) throw file.error("has " + std::to_string(file.size()) + " bytes: too short to be an npy file");
  file.read(0, start, 10);
  if (std::memcmp(start, kMagic, kMagicSize) != 0)
    throw file.error("is not an npy file: it does not start with \\x93NUMPY");
  if (start[6] < 1 || start[6] > 3) {
    throw file.error("is npy version " + std::to_string(start[6]) + "; versions 1 to 3 are supported");
  }
  uint64_t offset = 10;
  uint64_t length = start[8] | static_cast<uint64_t>(start[9]) << 8;
  if (start[6] > 1) {
    file.read(8, start + 8, 4);
    offset = 12;
    length |= static_cast<uint64_t>(start[10]) << 16 | static_cast<uint64_t>(start[11]) << 24;
  }
  if (length > kLongestNpyHeader) {
    throw file.error("header length " + std::to_string(length) + " is over the limit of " +
                     std::to_string(kLongestNpyHeader));
  }
  if (length > file.size() - offset) throw file.error("is truncated: its header is not complete");
  text.resize(static_cast<size_t>(length));
  file.read(offset, text.data(), text.size());
  return offset + length;
}

}  // namespace

Tensor read_npy(const std::string& path, std::string name) {
  const InputFile file(path);
  std::string text;
  const uint64_t offset = read_header(file, text);
  Header header = HeaderParser(file, text).parse();
  bool foreign = false;
  const Type type = type_of(file, header.descr, foreign);
  int64_t count = 0;
  if (!element_count(header.shape, count) || static_cast<uint64_t>(count) > std::numeric_limits<int64_t>::max() / 8) {
    throw file.error("shape " + shape_text(header.shape) + " overflows");
  }
  const uint64_t needed = static_cast<uint64_t>(count) * type_size(type);
  const uint64_t available = file.size() - offset;
  if (needed != available) {
    throw file.error((needed > available ? "is truncated: " : "is too long: ") + std::string("shape ") +
                     shape_text(header.shape) + " of " + type_name(type) + " needs " + std::to_string(needed) +
                     " data bytes, the file has " + std::to_string(available));
  }
  Tensor tensor = make_tensor(std::move(name), type, std::move(header.shape));
  file.read(offset, tensor.bytes.data(), tensor.bytes.size());
  if (foreign) swap_bytes(tensor);
  return header.fortran && tensor.shape.size() > 1 ? c_order(tensor) : std::move(tensor);
}

void write_npy(const std::string& path, const Tensor& tensor) {
  if (tensor.type == Type::bf16) {
    throw Error(path + ": npy has no bf16; write .safetensors, or f32 with --out-dtype f32");
  }
  std::string descr;
  for (const Descr& entry : kDescrs) {
    if (entry.type == tensor.type) descr = (type_size(tensor.type) == 1 ? "|" : "<") + std::string(entry.code);
  }
  std::string shape;
  for (size_t i = 0; i < tensor.shape.size(); ++i) shape += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  if (tensor.shape.size() == 1) shape += ",";
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.append(63 - (10 + text.size()) % 64, ' ');  // the data begin at a multiple of 64
  text += '\n';
  const uint8_t start[4] = {1, 0, static_cast<uint8_t>(text.size() & 255), static_cast<uint8_t>(text.size() >> 8)};
  OutputFile file(path);
  file.write(kMagic, kMagicSize);
  file.write(start, sizeof start);
  file.write(text.data(), text.size());
  write_elements(file, tensor);
  file.commit();
}

}  // namespace lanewise::io
