#include "huge_buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace lanewise::bench {

HugeBuffer::HugeBuffer(size_t bytes) : size_(bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (whole == 0) return;
  data_ = std::aligned_alloc(kHugePage, whole);
  if (data_ == nullptr) throw std::bad_alloc();
#if defined(__linux__)
  (void)madvise(data_, whole, MADV_HUGEPAGE);  // advice: without it the numbers are lower, not wrong
#endif
  std::memset(data_, 0, whole);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeBuffer::~HugeBuffer() { std::free(data_); }

}  // namespace lanewise::bench
