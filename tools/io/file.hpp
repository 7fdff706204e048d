// Plain files: reading pieces of one, and writing one that appears whole or not at all. Errors are io::Error with the
// path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/tensor.hpp"

namespace lanewise::io {

// A regular file open for reading. Read, not mapped: a file cut short by someone else meanwhile is an error, not a
// signal, and every tensor lies aligned in memory of its own.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Throws if the file does not have these bytes.
  void read(uint64_t offset, void* to, size_t count) const;
  // An Error that opens with the path.
  Error error(const std::string& text) const { return Error(path_ + ": " + text); }

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_;
};

// Writes to a new file beside `path` and renames it in commit(); without a commit nothing is left. An existing file
// keeps its contents until then; a device (/dev/null) is written to directly. At most kMostOutputFiles at a time.
constexpr size_t kMostOutputFiles = 4;
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* from, size_t count);
  void commit();

 private:
  Error error(const char* what) const;  // with the reason the system gave

  std::string path_;       // as given
  std::string target_;     // with links followed, so that a link stays a link
  std::string temporary_;  // empty: writing to the target itself, or committed
  size_t slot_ = 0;        // where a signal finds temporary_'s name
  int descriptor_ = -1;
};

// A tensor's elements, little-endian.
void write_elements(OutputFile& file, const Tensor& tensor);

// From here on a signal that ends the process (hang-up, interrupt, quit, terminate, a closed pipe) first removes what
// OutputFiles have not committed; the process then ends by that signal, as its parent expects. Signals that the parent
// has ignored stay ignored. A limit on the size of files becomes an error of write(). For programs, not libraries.
void remove_unfinished_on_signals();

}  // namespace lanewise::io
