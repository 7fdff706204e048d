#include "io/file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace lanewise::io {
namespace {

// Linux moves at most about 2 GB in a call.
constexpr size_t kLargestTransfer = size_t{1} << 30;

std::string reason(int error) { return std::strerror(error); }

// open that leaves nothing behind in a child process and never waits for the other end of a pipe.
int open_file(const std::string& path, int flags) {
  if (path.find('\0') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// Names of files to remove where a signal ends the process. Memory of their own, never given back: the handler may run on
// another thread while a name is taken out.
struct Unfinished {
  std::atomic<bool> owned{false}, listed{false};
  char path[PATH_MAX] = {};
};
Unfinished unfinished[kMostOutputFiles];

size_t take_slot() {
  for (size_t slot = 0; slot < kMostOutputFiles; ++slot) {
    if (!unfinished[slot].owned.exchange(true)) return slot;
  }
  throw Error("more than " + std::to_string(kMostOutputFiles) + " output files at a time");
}

// Before the file is there, so that no moment is left in which nobody would remove it. A path too long is one that cannot
// be opened either.
void list(size_t slot, const std::string& path) {
  unfinished[slot].listed = false;
  if (path.size() >= sizeof unfinished[slot].path) return;
  std::memcpy(unfinished[slot].path, path.c_str(), path.size() + 1);
  unfinished[slot].listed = true;
}

void give_back(size_t slot) {
  unfinished[slot].listed = false;
  unfinished[slot].owned = false;
}

extern "C" void remove_unfinished(int number) {
  for (const Unfinished& file : unfinished) {
    if (file.listed) ::unlink(file.path);
  }
  ::raise(number);  // held back until this handler returns; by then it has its default effect again
}

}  // namespace

void remove_unfinished_on_signals() {
  struct sigaction action = {};
  action.sa_handler = remove_unfinished;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) {
    struct sigaction before;
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
      ::sigaction(number, &action, nullptr);
    }
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(open_file(path, O_RDONLY | O_NONBLOCK)), size_(0) {
  if (descriptor_ < 0) throw error("cannot be opened: " + reason(errno));
  struct stat info;
  const bool known = ::fstat(descriptor_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    throw error(known && S_ISDIR(info.st_mode) ? "is a directory, not a file" : "is not a regular file");
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(uint64_t offset, void* to, size_t count) const {
  uint8_t* next = static_cast<uint8_t*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, std::min(count, kLargestTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw error("cannot be read: " + reason(errno));
    if (got == 0) throw error("is truncated: it ends at byte " + std::to_string(offset));
    next += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<size_t>(got);
  }
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(path) {
  if (path.empty()) throw Error("the output file has an empty name");
  if (std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free); resolved) {
    target_ = resolved.get();
  }
  struct stat info;
  if (::stat(target_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) throw Error(path_ + ": is a directory, not a file");
    descriptor_ = open_file(target_, O_WRONLY | O_NONBLOCK);
    if (descriptor_ < 0) throw error("cannot be written");
    return;
  }
  slot_ = take_slot();
  for (int attempt = 0; descriptor_ < 0 && attempt < 100; ++attempt) {
    temporary_ = target_ + ".tmp" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    list(slot_, temporary_);
    descriptor_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ >= 0) return;
  const Error failure = error("cannot be written");
  give_back(slot_);
  throw failure;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (temporary_.empty()) return;
  if (descriptor_ >= 0) ::unlink(temporary_.c_str());
  give_back(slot_);
}

Error OutputFile::error(const char* what) const { return Error(path_ + ": " + what + ": " + reason(errno)); }

void OutputFile::write(const void* from, size_t count) {
  const uint8_t* next = static_cast<const uint8_t*>(from);
  while (count > 0) {
    const ssize_t put = ::write(descriptor_, next, std::min(count, kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw error("cannot be written");
    next += put;
    count -= static_cast<size_t>(put);
  }
}

void OutputFile::commit() {
  if (!temporary_.empty() && std::rename(temporary_.c_str(), target_.c_str()) != 0) throw error("cannot be written");
  // Closed after the rename: until then the destructor removes the temporary file. Some file systems report a full disk
  // only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) throw error("cannot be written");
}

void write_elements(OutputFile& file, const Tensor& tensor) {
  if (!kHostIsBigEndian || type_size(tensor.type) == 1) {
    file.write(tensor.bytes.data(), tensor.bytes.size());
    return;
  }
  Tensor swapped = make_tensor(tensor.name, tensor.type, tensor.shape);
  std::memcpy(swapped.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
  swap_bytes(swapped);
  file.write(swapped.bytes.data(), swapped.bytes.size());
}

}  // namespace lanewise::io
