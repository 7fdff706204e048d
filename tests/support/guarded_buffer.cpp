#include "guarded_buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lanewise::test {
namespace {

// Mappings to use again, by size: making them and the faults of their first touches take longer than a small problem.
class Mappings {
 public:
  uint8_t* take(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<uint8_t*>& kept = kept_[size];
    if (kept.empty()) return nullptr;
    uint8_t* const mapping = kept.back();
    kept.pop_back();
    bytes_ -= size;
    return mapping;
  }

  // False where there is enough already.
  bool keep(uint8_t* mapping, size_t size) {
    constexpr size_t kMostBytes = size_t{32} << 20;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes_ + size > kMostBytes) return false;
    kept_[size].push_back(mapping);
    bytes_ += size;
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<uint8_t*>> kept_;
  size_t bytes_ = 0;
};

// A few sizes, so that mappings fit again: 1, 2, 3, 4, 6, 8, 12, 16 ... pages.
size_t round_up(size_t bytes, size_t page) {
  size_t size = page;
  while (size < bytes) size += size & (size - 1) ? size / 3 : size < 2 * page ? page : size / 2;
  return size;
}

// Lives as long as the process: buffers of static storage come back late.
Mappings& mappings() {
  static Mappings& all = *new Mappings;
  return all;
}

// Each byte is the one before it: memcmp takes them many at a time.
bool all_canaries(const uint8_t* begin, const uint8_t* end) {
  return begin == end ||
         (*begin == GuardedBuffer::kCanary && std::memcmp(begin, begin + 1, static_cast<size_t>(end - begin) - 1) == 0);
}

uint8_t* map(size_t open_size, size_t page) {
  void* const mapping = mmap(nullptr, open_size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::runtime_error("GuardedBuffer: no memory");
  uint8_t* const bytes = static_cast<uint8_t*>(mapping);
  if (mprotect(bytes + page, open_size, PROT_READ | PROT_WRITE) != 0)
    throw std::runtime_error("GuardedBuffer: mprotect");
  return bytes;
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, Edge edge, size_t alignment) {
  constexpr size_t kCanaryBytes = 256;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_ = bytes;
  open_size_ = round_up(bytes + kCanaryBytes, page);
  mapping_size_ = open_size_ + 2 * page;
  mapping_ = mappings().take(mapping_size_);
  if (!mapping_) mapping_ = map(open_size_, page);
  open_ = mapping_ + page;
  std::memset(open_, kCanary, open_size_);
  data_ = edge == Edge::kStart ? open_ : open_ + (open_size_ - bytes) / alignment * alignment;
}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_ && !mappings().keep(mapping_, mapping_size_)) munmap(mapping_, mapping_size_);
}

bool GuardedBuffer::canaries_intact() const {
  return all_canaries(open_, data_) && all_canaries(data_ + size_, open_ + open_size_);
}

bool GuardedBuffer::untouched() const { return all_canaries(open_, open_ + open_size_); }

void GuardedBuffer::swap(GuardedBuffer& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  std::swap(open_, other.open_);
  std::swap(open_size_, other.open_size_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace lanewise::test
