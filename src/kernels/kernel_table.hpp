// All that the rest of src/ sees of the kernels: plain structs and function pointers, one table a target. Kernels know tiles of one
// (sequence, kv head); they know no problem, no batch and no threads, and never allocate.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lanewise {

// Keys of one block and of one span, at absolute positions of the key axis: part of the numeric contract (docs/NUMERICS.md).
inline constexpr int64_t kBlockKeys = 256;
inline constexpr int64_t kSpanKeys = 16 * kBlockKeys;

// Most row tiles that one task works on, so that they share each block of K and V.
inline constexpr int64_t kMaxPanelTiles = 8;

// Strides are in elements of the tensor's type everywhere in this file.

// Query-side tensor of one (sequence, kv head): element (head of the group, query, dim) is at
// data[head * head_stride + query * len_stride + dim * dim_stride].
struct QueryTensor {
  const void* data = nullptr;
  int32_t type = 0;  // LW_TYPE_*
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;
};

struct ResultTensor {
  void* data = nullptr;  // nullptr: not wanted
  int32_t type = 0;
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;
};

// K or V of one (sequence, kv head): key row j, dim c is at data[j * len_stride + c * dim_stride]; with pages, at
// data[page_table[j / page_size * page_table_stride] * page_stride + j % page_size * len_stride + c * dim_stride].
struct KeyTensor {
  const void* data = nullptr;
  int32_t type = 0;
  int64_t len_stride = 0, dim_stride = 0;
  const int32_t* page_table = nullptr;  // nullptr: no pages
  int64_t page_table_stride = 0, page_size = 0, page_stride = 0;
};

// Which keys a row may see and what happens to its scores (docs/NUMERICS.md). Constants are in log2 units.
struct Rules {
  float factor = 0;           // scale * log2(e), rounded once
  bool causal = false;        // position p sees keys at positions <= p
  int64_t window_left = -1;   // ... >= p - window_left; -1: open
  int64_t window_right = -1;  // ... <= p + window_right; -1: open
};

// The unnormalised online-softmax state of rows: reference maximum, sum of probs, output. f32.
struct StateTensors {
  ResultTensor max, sum, acc;
  bool given() const { return max.data != nullptr; }
};
struct ConstStateTensors {
  QueryTensor max, sum, acc;
  bool given() const { return max.data != nullptr; }
};

// Rows row_begin ... row_end - 1 of one (sequence, kv head) over all its keys. Row r is query r / group_size of query head
// r % group_size of the group: the heads of a group share each load of K and V.
struct RowsTask {
  int64_t qk_dim = 0, v_dim = 0, group_size = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t kv_start = 0;  // position of key row 0 on the key axis
  int64_t kv_len = 0;    // key rows
  int64_t q_offset = 0;  // position of query 0 on the key axis
  QueryTensor q;
  KeyTensor k, v;
  ConstStateTensors state_in;
  ResultTensor out, lse;
  StateTensors state_out;
  const Rules* rules = nullptr;
  bool pack_k = false, pack_v = false;  // copy blocks into scratch first: strides that the tiles cannot or should not read
  void* scratch = nullptr;              // 64-byte aligned, at least scratch_size bytes
};

// Rows of a panel are cut into tiles of at most rows_max_vectors vectors, as evenly as can be.
struct KernelTable {
  int64_t lanes = 0;             // float32 lanes of a vector
  bool fma = false;              // multiply-add rounds once: the canonical bits
  int64_t rows_max_vectors = 0;  // vectors of query rows in a full tile of rows-in-lanes
  int64_t rows_tile_keys = 0;    // keys of a register tile of a full tile
  // Bytes of scratch of a task of `tiles` row tiles.
  size_t (*rows_scratch_size)(int64_t qk_dim, int64_t v_dim, int64_t tiles, bool pack_k, bool pack_v) = nullptr;
  void (*rows_in_lanes)(const RowsTask& task) = nullptr;
};

// Tile t of n over `vectors` vectors begins at this vector: sizes differ by at most one.
inline int64_t tile_begin_vector(int64_t vectors, int64_t n, int64_t t) { return vectors * t / n; }

// Highway's bits of the targets compiled in, and the kernels of one of them.
int64_t compiled_targets();
KernelTable kernels_for(int64_t target);

}  // namespace lanewise
