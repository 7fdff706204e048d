// Rules of a case besides causal, window and positions by offset: masks, biases, ALiBi, softcap, sinks, prefix,
// q_positions. Logical arrays [batch, q_heads, q_len, keys]; an axis of size 1 is broadcast by stride 0.
#pragma once

#include <optional>
#include <vector>

#include "array.hpp"
#include "lanewise/lanewise.h"
#include "place.hpp"
#include "run.hpp"

namespace lanewise::test {

struct RuleSet {
  float softcap = 0;
  int64_t prefix_len = 0;
  std::vector<int32_t> q_positions;  // [batch, q_len], or empty
  std::optional<Array> mask;         // 1: attend; keys: the last mask_tail of a sequence, or kv_len
  int32_t mask_type = LW_TYPE_BOOL;
  int64_t mask_tail = 0;
  Layout mask_layout = Layout::kBhld;  // of bool masks
  std::optional<Array> bias;
  int32_t bias_type = LW_TYPE_F32;
  Layout bias_layout = Layout::kBhld;
  std::vector<float> slopes;   // [q_heads] or [batch, q_heads], or empty
  std::vector<float> sinks;    // [q_heads], or empty
  std::optional<Array> tiles;  // 1: listed; [batch, q_heads, tile rows, tile columns]
  int64_t tile_rows = 0, tile_keys = 0;

  // Masks and biases let query i of head h of sequence b, which has kv_len keys, see key j.
  bool lets_see(int64_t b, int64_t h, int64_t i, int64_t j, int64_t kv_len) const;

  // Parts along an axis: 0 batch, 1 query head, 2 query, 3 key.
  RuleSet slice(int axis, int64_t begin, int64_t end, int64_t batch, int64_t q_heads, int64_t q_len) const;

  // Into problem and inputs. offsets: cu_seqlens of ragged queries, else empty.
  void place(Prepared& p, const Surroundings& around, const std::vector<int32_t>& offsets, int64_t batch,
             int64_t q_len) const;
};

// An array's element with axes of size 1 broadcast.
float broadcast_at(const Array& array, int64_t a, int64_t b, int64_t c, int64_t d);

}  // namespace lanewise::test
