// Memory on huge pages, where the system has them: with small pages a virtual machine reads at half its speed, and a
// bench would measure page walks.
#pragma once

#include <cstddef>

namespace lanewise::bench {

// Zeroed, aligned to 2 MiB, touched once by the constructing thread. Move-only.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(size_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  void* data() const { return data_; }
  template <class Elem>
  Elem* as() const {
    return static_cast<Elem*>(data_);
  }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;  // as asked for
};

}  // namespace lanewise::bench
