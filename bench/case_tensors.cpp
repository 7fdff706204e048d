#include "case_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <hwy/base.h>

namespace lanewise::bench {
namespace {

size_t bytes_of(int32_t type, int64_t elements) { return static_cast<size_t>(element_size(type) * elements); }

uint32_t next_random(uint32_t& state) { return state = state * 1664525u + 1013904223u; }

// Uniform over +-sqrt(3), variance 1; few bits, so that every type holds the same numbers.
HugeBuffer random_tensor(int32_t type, int64_t elements, uint32_t seed) {
  HugeBuffer buffer(bytes_of(type, elements));
  uint32_t state = seed;
  for (int64_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(static_cast<int32_t>(next_random(state) >> 24) - 128) * (1.75f / 128.0f);
    if (type == LW_TYPE_F32) {
      buffer.as<float>()[i] = value;
    } else if (type == LW_TYPE_BF16) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      buffer.as<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
    } else {
      const hwy::float16_t half = hwy::F16FromF32(value);
      std::memcpy(buffer.as<uint16_t>() + i, &half, sizeof half);
    }
  }
  return buffer;
}

// len: of a sequence, of all sequences together where they are ragged, or of a page.
template <class Tensor, class Elem>
Tensor tensor_of(Elem* data, int32_t type, bool tokens_first, bool transposed, int64_t heads, int64_t len,
                 int64_t dim) {
  Tensor tensor = Tensor();
  tensor.data = data;
  tensor.type = type;
  tensor.stride[0] = heads * len * dim;
  tensor.stride[1] = tokens_first && !transposed ? dim : len * dim;
  tensor.stride[2] = tokens_first ? heads * dim : dim;
  tensor.stride[3] = 1;
  if (transposed) {  // [batch, head, dim, len] whatever the other tensors are
    tensor.stride[2] = 1;
    tensor.stride[3] = len;
  }
  return tensor;
}

struct Sizes {
  int64_t sequences = 0;
  int64_t most_q = 0, most_kv = 0;    // of one sequence
  int64_t total_q = 0, total_kv = 0;  // of all
  int64_t pages = 0, most_pages = 0;
};

Sizes sizes_of(const AttentionCase& c) {
  Sizes sizes;
  for (const Sequence& sequence : sequences_of(c)) {
    ++sizes.sequences;
    sizes.most_q = std::max(sizes.most_q, sequence.q_len);
    sizes.most_kv = std::max(sizes.most_kv, sequence.kv_len);
    sizes.total_q += sequence.q_len;
    sizes.total_kv += sequence.kv_len;
    if (c.page_size == 0) continue;
    const int64_t pages = (sequence.kv_len + c.page_size - 1) / c.page_size;
    sizes.pages += pages;
    sizes.most_pages = std::max(sizes.most_pages, pages);
  }
  return sizes;
}

// Rows of K and V of one head in memory.
int64_t key_rows(const AttentionCase& c, const Sizes& sizes) {
  return c.page_size > 0 ? sizes.pages * c.page_size : sizes.total_kv;
}

// Page ids of all sequences, [sequence, page], no two near each other: as a pool is after hours of serving.
std::vector<int32_t> random_pages(const AttentionCase& c, const Sizes& sizes) {
  std::vector<int32_t> ids(static_cast<size_t>(sizes.pages));
  std::iota(ids.begin(), ids.end(), 0);
  uint32_t state = 4;
  for (size_t i = ids.size(); i > 1; --i) {
    const uint64_t other = (uint64_t{next_random(state)} * i) >> 32;
    std::swap(ids[i - 1], ids[static_cast<size_t>(other)]);
  }
  std::vector<int32_t> table;
  size_t next = 0;
  for (const Sequence& sequence : sequences_of(c)) {
    const int64_t pages = (sequence.kv_len + c.page_size - 1) / c.page_size;
    for (int64_t i = 0; i < sizes.most_pages; ++i) table.push_back(i < pages ? ids[next++] : -1);
  }
  return table;
}

// [q_len, kv_len] flags, of which every tile of kMaskTile x kMaskTile is seen or hidden.
constexpr int64_t kMaskTile = 128;
HugeBuffer mask_of_tiles(const AttentionCase& c) {
  HugeBuffer mask(static_cast<size_t>(c.q_len * c.kv_len));
  for (int64_t i = 0; i < c.q_len; ++i) {
    for (int64_t j = 0; j < c.kv_len; ++j) {
      // Evenly spread over each row of tiles, another way in each.
      const int64_t tile = j / kMaskTile + i / kMaskTile;
      const bool hidden = (tile + 1) * c.masked_percent / 100 > tile * c.masked_percent / 100;
      mask.as<uint8_t>()[i * c.kv_len + j] = hidden ? 0 : 1;
    }
  }
  return mask;
}

}  // namespace

CaseTensors::CaseTensors(const AttentionCase& c) {
  const Sizes sizes = sizes_of(c);
  const bool ragged = c.decodes > 0;
  const int64_t keys = key_rows(c, sizes);
  q = random_tensor(c.q_type, c.q_heads * sizes.total_q * c.qk_dim, 1);
  k = random_tensor(c.kv_type, c.kv_heads * keys * c.qk_dim, 2);
  if (!c.v_in_k) v = random_tensor(c.kv_type, c.kv_heads * keys * c.v_dim, 3);
  out = HugeBuffer(bytes_of(c.q_type, c.q_heads * sizes.total_q * c.v_dim));

  const int64_t q_rows = ragged ? sizes.total_q : c.q_len;
  const int64_t kv_rows = c.page_size > 0 ? c.page_size : ragged ? sizes.total_kv : c.kv_len;
  inputs.q = tensor_of<lw_const_tensor>(q.data(), c.q_type, c.tokens_first, false, c.q_heads, q_rows, c.qk_dim);
  inputs.k =
      tensor_of<lw_const_tensor>(k.data(), c.kv_type, c.tokens_first, c.k_transposed, c.kv_heads, kv_rows, c.qk_dim);
  inputs.v =
      tensor_of<lw_const_tensor>(v.data(), c.kv_type, c.tokens_first, c.v_transposed, c.kv_heads, kv_rows, c.v_dim);
  if (c.v_in_k) inputs.v = inputs.k;
  outputs.out =
      tensor_of<lw_tensor>(out.data(), c.q_type, c.tokens_first, c.out_transposed, c.q_heads, q_rows, c.v_dim);

  if (c.masked_percent >= 0) {
    mask = mask_of_tiles(c);
    inputs.mask = tensor_of<lw_const_tensor>(mask.data(), LW_TYPE_BOOL, false, false, 1, c.q_len, c.kv_len);
    inputs.mask.stride[0] = inputs.mask.stride[1] = 0;
  }
  if (c.bias_type != LW_TYPE_NONE) {
    bias = random_tensor(c.bias_type, c.q_heads * c.q_len * c.kv_len, 5);
    inputs.bias = tensor_of<lw_const_tensor>(bias.data(), c.bias_type, false, false, c.q_heads, c.q_len, c.kv_len);
    inputs.bias.stride[0] = 0;
  }
  for (int64_t h = 0; h < c.q_heads; ++h) {
    slopes.push_back(1.0f / static_cast<float>(h + 2));
    sinks.push_back(static_cast<float>(h % 3));
  }
  if (c.alibi) inputs.alibi_slopes = slopes.data();
  if (c.sinks) inputs.sinks = sinks.data();

  if (ragged) cu_seqlens_q = cu_seqlens_kv = {0};
  for (const Sequence& sequence : sequences_of(c)) {
    if (ragged) cu_seqlens_q.push_back(cu_seqlens_q.back() + static_cast<int32_t>(sequence.q_len));
    if (ragged) cu_seqlens_kv.push_back(cu_seqlens_kv.back() + static_cast<int32_t>(sequence.kv_len));
    kv_lengths.push_back(static_cast<int32_t>(sequence.kv_len));
  }
  if (ragged) inputs.cu_seqlens_q = cu_seqlens_q.data();
  if (c.page_size > 0) {
    page_table = random_pages(c, sizes);
    inputs.page_table = page_table.data();
    inputs.page_table_stride[0] = sizes.most_pages;
    inputs.page_table_stride[1] = 1;
    inputs.kv_lengths = kv_lengths.data();
  } else if (ragged) {
    inputs.cu_seqlens_kv = cu_seqlens_kv.data();
  }
}

Problem problem_of(const AttentionCase& c) {
  const Sizes sizes = sizes_of(c);
  Problem p;
  p.batch = sizes.sequences;
  p.q_heads = c.q_heads;
  p.kv_heads = c.kv_heads;
  p.q_len = sizes.most_q;
  p.kv_len = sizes.most_kv;
  p.qk_dim = c.qk_dim;
  p.v_dim = c.v_dim;
  p.q_type = p.out_type = c.q_type;
  p.k_type = p.v_type = c.kv_type;
  p.arithmetic = c.arithmetic;
  p.causal = c.causal ? 1 : 0;
  p.window_left = c.window_left;
  p.window_right = c.window_right;
  if (c.masked_percent >= 0) p.mask_type = LW_TYPE_BOOL;
  p.bias_type = c.bias_type;
  if (c.softcap) p.softcap = 30.0f;
  p.alibi = c.alibi ? 1 : 0;
  p.sinks = c.sinks ? 1 : 0;
  if (c.decodes > 0) {
    p.q_layout = p.kv_layout = LW_LAYOUT_RAGGED;
    p.total_q = sizes.total_q;
    p.total_kv = sizes.total_kv;
  }
  if (c.page_size > 0) {
    p.kv_layout = LW_LAYOUT_PAGED;
    p.total_kv = 0;
    p.page_size = c.page_size;
    p.page_count = sizes.pages;
  }
  return p;
}

}  // namespace lanewise::bench
