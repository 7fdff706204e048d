// All that the rest of src/ sees of the kernels: plain structs and function pointers, one table a target. Kernels know
// tiles of one (sequence, kv head); they know no problem, no batch and no threads, and never allocate.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/kernels/storage.hpp"

namespace lanewise {

// Keys of one block and of one span, at absolute positions of the key axis: part of the numeric contract
// (docs/NUMERICS.md).
inline constexpr int64_t kBlockKeys = 256;
inline constexpr int64_t kSpanKeys = 16 * kBlockKeys;

// Most row tiles that one task works on, so that they share each block of K and V.
inline constexpr int64_t kMaxPanelTiles = 8;

// Strides are in elements of the tensor's type everywhere in this file.

// Query-side tensor of one (sequence, kv head): element (head of the group, query, dim) is at
// data[head * head_stride + query * len_stride + dim * dim_stride].
struct QueryTensor {
  const void* data = nullptr;
  int32_t type = LW_TYPE_F32;  // or BF16, F16
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;
};

struct ResultTensor {
  void* data = nullptr;  // nullptr: not wanted
  int32_t type = LW_TYPE_F32;
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;
};

// K or V of one (sequence, kv head): key row j, dim c is at data[j * len_stride + c * dim_stride]; with pages, at
// data[page_table[j / page_size * page_table_stride] * page_stride + j % page_size * len_stride + c * dim_stride].
struct KeyTensor {
  const void* data = nullptr;
  int32_t type = LW_TYPE_F32;
  int64_t head_stride = 0, len_stride = 0, dim_stride = 0;  // head: to the next kv head of the task
  const int32_t* page_table = nullptr;                      // nullptr: no pages
  int64_t page_table_stride = 0, page_size = 0, page_stride = 0;
};

// Which keys a row may see and what happens to its scores (docs/NUMERICS.md). Constants are in log2 units.
struct Rules {
  float factor = 0;           // scale * log2(e), rounded once
  bool causal = false;        // position p sees keys at positions <= p
  int64_t window_left = -1;   // ... >= p - window_left; -1: open
  int64_t window_right = -1;  // ... <= p + window_right; -1: open
  int64_t prefix_len = 0;     // positions below it are seen whatever causal and window say
  float cap = 0;              // softcap * log2(e), rounded once; 0: off
  float cap_inverse = 0;      // 1 / (softcap * log2(e)), rounded once
  // Scores change after the dot product: softcap, ALiBi, bias.
  bool change_scores = false;
  // What a row sees is not one interval whose bounds never fall with rows: masks, biases, a prefix beside a window,
  // q_positions.
  bool see_by_bits = false;
  bool plain() const { return !change_scores && !see_by_bits; }
};

// Tiles of block_rows queries x block_keys key rows; those listed are seen: tiles of row tile t of the group's head h are
// indices[i], indptr[t + h * head_stride] <= i < indptr[t + 1 + h * head_stride], ascending.
struct BlockMask {
  const int32_t* indptr = nullptr;  // nullptr: not given
  const int32_t* indices = nullptr;
  int64_t head_stride = 0;
  int64_t block_rows = 0, block_keys = 0;
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

// Memory that will be read soon: fetched a little at a time while a task computes. A hint; 0 lines: none.
struct FetchAhead {
  const char* data = nullptr;
  int64_t lines = 0;  // of 64 bytes
};

// Key rows [begin, end) of k will be read soon: the first that a task reads of each of its kv heads. A hint, maybe empty.
struct NextKeys {
  KeyTensor k;
  int64_t begin = 0, end = 0;
};

// A task on all visible keys makes results. A task on a range of them delivers the unnormalised state of each block, or
// of each span, of its range instead, and merge_pieces makes results of all of a row's states in key order. Nothing but
// whole blocks or whole spans is ever delivered, so where a sequence is cut does not change a bit.
enum class Deliver { kResults, kBlocks, kSpans };

// Rows row_begin ... row_end - 1 of one (sequence, kv head) against a range of its keys. Row r is query r / group_size
// of query head r % group_size of the group: the heads of a group share each load of K and V.
// A task may have these rows of several neighbouring kv heads, whose keys lie together in memory; they follow one
// another in states and scratch.
struct Task {
  int64_t qk_dim = 0, v_dim = 0, group_size = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t kv_heads = 1;  // more than one: keys-in-lanes only
  int64_t kv_start = 0;  // position of key row 0 on the key axis
  int64_t kv_len = 0;    // key rows
  int64_t q_offset = 0;  // position of query 0 on the key axis
  QueryTensor q;
  KeyTensor k, v;
  ConstStateTensors state_in;
  ResultTensor out, lse;
  StateTensors state_out;
  const Rules* rules = nullptr;
  const int32_t* q_positions = nullptr;  // of the sequence's queries, in place of q_offset + i
  int64_t q_positions_stride = 0;
  // Flags and additive terms of (head of the group, query, key row): dims are the key axis. Column 0 of the mask is key
  // row mask_begin, below 0 too; key rows before it are not masked.
  QueryTensor mask, bias;
  int64_t mask_begin = 0;
  BlockMask block_mask;
  const float* slopes = nullptr;  // ALiBi, one a head of the group
  const float* sinks = nullptr;   // one a head of the group
  // Key rows of this task: at least all that its rows may see (kResults), or cut from those at blocks or spans of the
  // key axis.
  int64_t key_begin = 0, key_end = 0;
  Deliver deliver = Deliver::kResults;
  float* states =
      nullptr;  // delivered states of the task's blocks or spans, one after another: piece_state_size floats each
  // Copy blocks into scratch first: types and strides that the tiles cannot or should not read. Rows-in-lanes only.
  bool pack_k = false, pack_v = false;
  bool native_bf16 = false;  // arithmetic on pairs of bf16; q, k and v are bf16
  bool streams = false;      // K and V come from memory, not from a cache: fetch them ahead. Rows-in-lanes only.
  FetchAhead ahead[3];       // q, k and v that the worker's next task reads: rows-in-lanes
  NextKeys next_keys;        // that it reads first: keys-in-lanes
  void* scratch = nullptr;   // 64-byte aligned, as large as the kernel's scratch_size says
};

// Weights of the rows of a task whose log-sum-exp is known, and what is made of them; outputs without data are not
// wanted. Of the task: lengths, rules, rows, keys [key_begin, key_end) cut at blocks, q, k, pack_k and scratch (as for
// rows_in_lanes, with tiles for its rows, up to four); no values, states or results. Column sums are of these rows, row
// statistics of these keys.
struct WeightTask {
  Task rows;
  QueryTensor lse;           // f32
  ResultTensor weights;      // dims are the key axis
  ResultTensor column_sums;  // of (head of the group, key row): len_stride is along keys
  bool accumulate = false;   // column sums go on from what is there
  ResultTensor row_max, row_entropy;
};

// Rows of a task, of all its kv heads.
inline int64_t task_rows(const Task& task) { return (task.row_end - task.row_begin) * task.kv_heads; }

// Floats of one delivered state: max[rows], sum[rows], acc[rows][v_dim].
inline int64_t piece_state_size(int64_t rows, int64_t v_dim) { return rows * (v_dim + 2); }

// Position on the key axis of a row of the task.
inline int64_t position_of(const Task& task, int64_t row) {
  const int64_t query = row / task.group_size;
  return task.q_positions != nullptr ? task.q_positions[query * task.q_positions_stride] : task.q_offset + query;
}

// Key rows that causal, window, prefix and length let a query see: [0, prefix) and [begin, end). prefix = 0 wherever one
// interval says it.
struct Reach {
  int64_t prefix = 0, begin = 0, end = 0;
};

// Key rows [begin, end) that causal, window and length let a query see. own: key row of the query's own position. Neither
// bound falls where own does not.
inline void window_of(const Rules& rules, int64_t own, int64_t kv_len, int64_t& begin, int64_t& end) {
  const auto clamp = [](int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; };
  begin = 0;
  end = kv_len;
  if (rules.window_right >= 0) end = clamp(own + rules.window_right + 1, 0, end);
  if (rules.causal) end = clamp(own + 1, 0, end);
  if (rules.window_left >= 0) begin = clamp(own - rules.window_left, 0, end);
}

// Key rows [0, n) that every query sees by prefix_len.
inline int64_t prefix_of(const Rules& rules, int64_t kv_start, int64_t kv_len) {
  const int64_t keys = rules.prefix_len - kv_start;
  return keys < 0 ? 0 : keys > kv_len ? kv_len : keys;
}

inline Reach reach_of(const Rules& rules, int64_t own, int64_t kv_start, int64_t kv_len) {
  Reach reach;
  window_of(rules, own, kv_len, reach.begin, reach.end);
  const int64_t prefix = prefix_of(rules, kv_start, kv_len);
  if (prefix == 0) return reach;
  if (reach.begin >= reach.end) return {0, 0, prefix};
  if (reach.begin > prefix) return {prefix, reach.begin, reach.end};
  return {0, 0, prefix > reach.end ? prefix : reach.end};
}

inline Reach row_reach(const Task& task, int64_t row) {
  return reach_of(*task.rules, position_of(task, row) - task.kv_start, task.kv_start, task.kv_len);
}

// Most rows of a task for keys-in-lanes, of one kv head and of all.
inline constexpr int64_t kMaxFewRows = 16;
inline constexpr int64_t kMaxTogetherRows = 32;

// One row of several partial results, and where the combined one goes (lw_merge).
struct PartialRows {
  int64_t count = 0;
  const float* const* out = nullptr;    // [count]: the row of each part
  const int64_t* dim_stride = nullptr;  // [count]
  const float* lse = nullptr;           // [count]
  int64_t v_dim = 0;
  float* merged_out = nullptr;
  int64_t merged_dim_stride = 0;
  float* merged_lse = nullptr;  // nullptr: not wanted
};

// Rows of a panel are cut into tiles of at most rows_max_vectors vectors, as evenly as can be.
struct KernelTable {
  int64_t lanes = 0;             // float32 lanes of a vector
  bool fma = false;              // multiply-add rounds once: the canonical bits
  int64_t rows_max_vectors = 0;  // vectors of query rows in a full tile of rows-in-lanes
  int64_t rows_tile_keys = 0;    // keys of a register tile of a full tile
  int64_t few_rows = 0;          // up to this many rows keys-in-lanes is the faster kernel (docs/PERFORMANCE.md)
  // Bytes of scratch of a task of `tiles` row tiles; of `rows` rows.
  size_t (*rows_scratch_size)(int64_t qk_dim, int64_t v_dim, int64_t tiles, bool pack_k, bool pack_v) = nullptr;
  size_t (*keys_scratch_size)(int64_t qk_dim, int64_t v_dim, int64_t rows) = nullptr;
  void (*rows_in_lanes)(const Task& task) = nullptr;
  void (*native_rows_in_lanes)(const Task& task) = nullptr;  // nullptr: the target has no bf16 pair dot
  void (*keys_in_lanes)(const Task& task) = nullptr;         // at most kMaxFewRows rows a kv head; both arithmetics
  // Results of the task's rows from `count` delivered states (task.states, task.deliver) over all their keys. first:
  // number on the key axis of the block or span of the first state. Scratch: keys_scratch_size for all rows of the
  // task.
  void (*merge_pieces)(const Task& task, int64_t first, int64_t count) = nullptr;
  void (*merge_partials)(const PartialRows& row) = nullptr;
  void (*weights)(const WeightTask& weights) = nullptr;
  // n elements of LW_TYPE_F32, BF16 or F16 to another of them.
  void (*convert)(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) = nullptr;
};

// Tile t of n over `vectors` vectors begins at this vector: sizes differ by at most one.
inline int64_t tile_begin_vector(int64_t vectors, int64_t n, int64_t t) { return vectors * t / n; }

// Highway's bits of the targets compiled in, and the kernels of one of them.
int64_t compiled_targets();
KernelTable kernels_for(int64_t target);

}  // namespace lanewise
