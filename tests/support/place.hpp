// Logical arrays placed in guarded memory: strides, gaps and unused places full of poison, pages scattered over a pool.
#pragma once

#include <functional>
#include <vector>

#include "array.hpp"
#include "guarded_buffer.hpp"
#include "lanewise/lanewise.h"

namespace lanewise::test {

// Memory orders of a [batch or page, head, len, dim] tensor.
enum class Layout {
  kBhld,         // row-major
  kBlhd,         // a token's heads lie together
  kLbhd,         // time first
  kTransposed,   // [batch, head, dim, len]
  kPaddedRows,   // row-major, rows of dim + 3
  kSpread,       // row-major, every second element
  kReversedLen,  // row-major, the last row first: a negative stride
};
std::array<int64_t, 4> strides_of(Layout layout, const Shape& shape);

// A tensor over memory of the caller's.
lw_const_tensor tensor_at(const void* data, int32_t type, const std::array<int64_t, 4>& stride);

// What a buffer looks like to a kernel that reads too much.
struct Surroundings {
  Edge edge;
  float poison;
};

// Rows (first axis, len) that hold poison in place of their values.
using Hidden = std::function<bool(int64_t, int64_t)>;

// A tensor of `shape` in a new buffer full of canaries; its data pointer is element [0, 0, 0, 0].
void place_output(lw_tensor& tensor, GuardedBuffer& buffer, const Shape& shape, Layout layout, int32_t type, Edge edge);
// The array's values in a new buffer, poison everywhere else.
void place_input(lw_const_tensor& tensor, GuardedBuffer& buffer, const Array& array, Layout layout, int32_t type,
                 const Surroundings& around, const Hidden& hidden);
const int32_t* place_ints(GuardedBuffer& buffer, const std::vector<int32_t>& values, Edge edge);

// Sequences of [batch, heads, len, dim] one behind another: [1, heads, tokens, dim], with `spare` rows of 0 at the end.
// cu_seqlens: batch + 1 offsets.
Array join_sequences(const Array& array, const std::vector<int32_t>& cu_seqlens, int64_t spare);

// Where the keys of [batch, heads, len, dim] tensors lie in a pool of pages.
class PagePool {
 public:
  // seen(b, j): key j of sequence b must exist. Pages without such a key have no place in the pool: their table entries
  // are -1, INT32_MAX and the id of an unused page in turn. seed: which pages.
  PagePool(int64_t batch, int64_t kv_len, int64_t page_size, const Hidden& seen, uint64_t seed);

  int64_t pages() const { return static_cast<int64_t>(source_.size()) / page_size_; }
  int64_t table_width() const { return table_width_; }
  const std::vector<int32_t>& table() const { return table_; }  // [batch, table_width]
  Array scatter(const Array& array) const;                      // [pages, heads, page_size, dim]
  // b * kv_len + j of the key in a slot; -1: none.
  int64_t source(int64_t page, int64_t slot) const { return source_[static_cast<size_t>(page * page_size_ + slot)]; }

 private:
  int64_t page_size_, kv_len_, table_width_;
  std::vector<int32_t> table_;
  std::vector<int64_t> source_;  // a pool slot's b * kv_len + j, or -1
};

}  // namespace lanewise::test
