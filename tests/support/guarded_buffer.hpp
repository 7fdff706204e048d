// Memory whose neighbours fault: the data ends at an inaccessible page, or starts right after one. What is left of the
// pages on the other side holds canaries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lanewise::test {

enum class Edge { kEnd, kStart };  // where the inaccessible page touches the data

class GuardedBuffer {
 public:
  static constexpr uint8_t kCanary = 0xA5;

  GuardedBuffer() = default;
  // alignment: of data(); with kEnd the bytes between the data's end and the page are canaries too.
  GuardedBuffer(size_t bytes, Edge edge, size_t alignment = 1);
  GuardedBuffer(GuardedBuffer&& other) noexcept { swap(other); }
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GuardedBuffer();

  uint8_t* data() const { return data_; }  // filled with canaries at first
  size_t size() const { return size_; }
  bool canaries_intact() const;  // around the data
  bool untouched() const;        // the data is canaries as well

 private:
  void swap(GuardedBuffer& other) noexcept;

  uint8_t* mapping_ = nullptr;
  size_t mapping_size_ = 0;
  uint8_t* open_ = nullptr;  // accessible bytes
  size_t open_size_ = 0;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lanewise::test
