#include "guarded_buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace lanewise::test {

GuardedBuffer::GuardedBuffer(size_t bytes, Edge edge, size_t alignment) {
  constexpr size_t kCanaryBytes = 256;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_ = bytes;
  open_size_ = (bytes + kCanaryBytes + page - 1) / page * page;
  mapping_size_ = open_size_ + 2 * page;
  void* mapping = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::runtime_error("GuardedBuffer: no memory");
  mapping_ = static_cast<uint8_t*>(mapping);
  open_ = mapping_ + page;
  if (mprotect(open_, open_size_, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("GuardedBuffer: mprotect");
  std::memset(open_, kCanary, open_size_);
  data_ = edge == Edge::kStart ? open_ : open_ + (open_size_ - bytes) / alignment * alignment;
}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_) munmap(mapping_, mapping_size_);
}

bool GuardedBuffer::canaries_intact() const {
  const auto is_canary = [](uint8_t byte) { return byte == kCanary; };
  return std::all_of(open_, data_, is_canary) && std::all_of(data_ + size_, open_ + open_size_, is_canary);
}

bool GuardedBuffer::untouched() const {
  return std::all_of(open_, open_ + open_size_, [](uint8_t byte) { return byte == kCanary; });
}

void GuardedBuffer::swap(GuardedBuffer& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  std::swap(open_, other.open_);
  std::swap(open_size_, other.open_size_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace lanewise::test
