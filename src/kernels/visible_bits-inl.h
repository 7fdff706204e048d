// Which keys of a block each row sees, as bits: reach (causal, window, prefix, length) AND mask AND block mask AND a
// bias above -1e38. Both kernels read visibility from here where it is not one interval a row.
//
// Bit i % 32 of word i / 32 is key row first + i. Reads exactly the columns of masks and biases that stand for the keys
// asked for, of rows that reach into them.

#if defined(LANEWISE_VISIBLE_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_VISIBLE_BITS_INL_H_
#undef LANEWISE_VISIBLE_BITS_INL_H_
#else
#define LANEWISE_VISIBLE_BITS_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "lanewise/lanewise.h"
#include "src/kernels/convert-inl.h"
#include "src/kernels/kernel_table.hpp"
#include "src/kernels/rows_io-inl.h"
#include "src/kernels/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kBlockWords = kBlockKeys / 32;

struct KeyBits {
  uint32_t word[kBlockWords];
};

HWY_INLINE bool HasBit(const KeyBits& bits, int64_t i) { return (bits.word[i / 32] >> (i % 32) & 1) != 0; }

// Bits [0, n) of a word.
HWY_INLINE uint32_t LowBits(int64_t n) { return n <= 0 ? 0 : n >= 32 ? ~uint32_t{0} : (uint32_t{1} << n) - 1; }

HWY_INLINE void AddRange(KeyBits& bits, int64_t begin, int64_t end) {
  for (int64_t w = 0; w < kBlockWords; ++w) bits.word[w] |= LowBits(end - 32 * w) & ~LowBits(begin - 32 * w);
}

HWY_INLINE void Keep(KeyBits& bits, const KeyBits& other) {
  for (int64_t w = 0; w < kBlockWords; ++w) bits.word[w] &= other.word[w];
}
HWY_INLINE void Add(KeyBits& bits, const KeyBits& other) {
  for (int64_t w = 0; w < kBlockWords; ++w) bits.word[w] |= other.word[w];
}

// The first bit at or after `from` that is set (or clear: of the complement); kBlockKeys if there is none.
HWY_INLINE int64_t NextBit(const KeyBits& bits, int64_t from, bool set) {
  for (int64_t w = from / 32; w < kBlockWords; ++w) {
    uint32_t word = set ? bits.word[w] : ~bits.word[w];
    if (w == from / 32) word &= ~LowBits(from % 32);
    if (word != 0) return 32 * w + static_cast<int64_t>(__builtin_ctz(word));
  }
  return kBlockKeys;
}
HWY_INLINE int64_t EndOfBits(const KeyBits& bits) {
  for (int64_t w = kBlockWords - 1; w >= 0; --w) {
    if (bits.word[w] != 0) return 32 * w + 32 - static_cast<int64_t>(__builtin_clz(bits.word[w]));
  }
  return 0;
}

// ---- One row's mask, bias and block mask ----------------------------------------------------------------------------

// Up to 8 bytes, the first lowest: the order of bits in masks.
HWY_INLINE uint64_t FromBytes(const uint8_t* bytes, size_t n) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes, n);
  return HWY_IS_BIG_ENDIAN ? __builtin_bswap64(bits) : bits;
}

// Which of up to 64 lanes hold.
template <class D>
HWY_INLINE uint64_t MaskToBits(D d, hn::Mask<D> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  const uint64_t bits = FromBytes(bytes, sizeof bytes);
  return hn::MaxLanes(d) < 8 ? bits & ((uint64_t{1} << hn::MaxLanes(d)) - 1) : bits;
}

HWY_INLINE void PutBits(KeyBits& to, int64_t at, uint64_t bits) {
  // Vectors of 4 ... 64 lanes never straddle a word but by whole words.
  to.word[at / 32] |= static_cast<uint32_t>(bits << (at % 32));
  if (at % 32 == 0 && (bits >> 32) != 0) to.word[at / 32 + 1] |= static_cast<uint32_t>(bits >> 32);
}

// Flags of n bytes.
static inline HWY_NOINLINE void BitsOfBytes(const uint8_t* flags, int64_t n, KeyBits& to) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + N <= n; i += N) PutBits(to, i, MaskToBits(d, hn::Ne(hn::LoadU(d, flags + i), hn::Zero(d))));
  for (; i < n; ++i) to.word[i / 32] |= uint32_t{flags[i] != 0} << (i % 32);
}

// n bits from bit `from` of `bytes`: reads no byte that holds none of them.
static inline HWY_NOINLINE void BitsOfBits(const uint8_t* bytes, int64_t from, int64_t n, KeyBits& to) {
  const int64_t last = (from + n - 1) / 8;
  for (int64_t w = 0; 32 * w < n; ++w) {
    const int64_t byte = (from + 32 * w) / 8;
    const uint64_t bits = FromBytes(bytes + byte, static_cast<size_t>(HWY_MIN(int64_t{5}, last - byte + 1)));
    to.word[w] = static_cast<uint32_t>(bits >> ((from + 32 * w) % 8)) & LowBits(n - 32 * w);
  }
}

HWY_INLINE float BiasValue(const QueryTensor& bias, const char* row, int64_t column) {
  const int64_t at = column * bias.dim_stride;
  return WithElement(bias.type,
                     [&](auto element) HWY_ATTR { return Widen(reinterpret_cast<const decltype(element)*>(row)[at]); });
}

// A vector of biases of columns that lie together.
template <class D>
HWY_INLINE hn::Vec<D> LoadBiases(D d, const QueryTensor& bias, const char* row, int64_t column) {
  return WithElement(bias.type, [&](auto element) HWY_ATTR {
    return LoadWide(d, reinterpret_cast<const decltype(element)*>(row) + column);
  });
}

// Biases of n columns that do not hide their key; none before column 0.
static inline HWY_NOINLINE void BitsOfBias(const QueryTensor& bias, const char* row, int64_t column, int64_t n,
                                           KeyBits& to) {
  const hn::ScalableTag<float> d;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = HWY_MAX(int64_t{0}, -column);
  if (i == 0 && bias.dim_stride == 1) {
    for (; i + N <= n; i += N) {
      PutBits(to, i, MaskToBits(d, hn::Not(hn::Le(LoadBiases(d, bias, row, column + i), hn::Set(d, kHides)))));
    }
  }
  for (; i < n; ++i) to.word[i / 32] |= uint32_t{!(BiasValue(bias, row, column + i) <= kHides)} << (i % 32);
}

HWY_INLINE const char* BiasRow(const Task& task, int64_t row) {
  return static_cast<const char*>(task.bias.data) +
         RowOffset(task.bias, row, task.group_size) * storage_size(task.bias.type);
}

// Keys that the mask lets the row see.
static inline HWY_NOINLINE void BitsOfMask(const Task& task, const uint8_t* row, int64_t first, int64_t n,
                                           KeyBits& to) {
  const bool bits = task.mask.type == LW_TYPE_BITS;
  const int64_t column = first - task.mask_begin;
  if (column >= 0 && bits) return BitsOfBits(row, column, n, to);
  if (column >= 0 && task.mask.dim_stride == 1) return BitsOfBytes(row + column, n, to);
  for (int64_t i = 0; i < n; ++i) {  // strided, or the mask begins within this block
    const int64_t at = column + i;
    const bool visible = at < 0 || (bits ? row[at / 8] >> (at % 8) & 1 : row[at * task.mask.dim_stride]) != 0;
    to.word[i / 32] |= uint32_t{visible} << (i % 32);
  }
}

// Key rows of the listed tiles: indices ascend.
static inline HWY_NOINLINE void BitsOfTiles(const BlockMask& mask, const int32_t* list, int64_t count, int64_t first,
                                            int64_t n, KeyBits& to) {
  int64_t low = 0, high = count;  // the first tile that ends behind `first`
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if ((list[middle] + int64_t{1}) * mask.block_keys > first) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  for (; low < count && list[low] * mask.block_keys < first + n; ++low) {
    const int64_t begin = list[low] * mask.block_keys - first;
    AddRange(to, begin, HWY_MIN(n, begin + mask.block_keys));
  }
}

// Rows often share what they read (heads of a group, broadcast axes, tiles): it is then read once.
struct SharedBits {
  const void* from = nullptr;  // where `bits` were read
  KeyBits bits;

  template <class Read>
  HWY_INLINE const KeyBits& Get(const void* at, const Read& read) {
    if (at != from) {
      bits = KeyBits();
      read(bits);
      from = at;
    }
    return bits;
  }
};
struct SharedRowBits {
  SharedBits mask, bias, tiles;
};

// Keys of [first, first + n) that row `row` of the task sees, of which it reaches `reach`.
static inline HWY_NOINLINE void RowBits(const Task& task, int64_t row, const Reach& reach, int64_t first, int64_t n,
                                        SharedRowBits& shared, KeyBits& to) {
  to = KeyBits();
  AddRange(to, reach.begin - first, HWY_MIN(n, reach.end - first));
  if (reach.prefix > 0) AddRange(to, -first, HWY_MIN(n, reach.prefix - first));
  if (EndOfBits(to) == 0) return;
  const int64_t query = row / task.group_size, head = row % task.group_size;
  if (task.block_mask.indptr != nullptr) {
    const BlockMask& mask = task.block_mask;
    const int32_t* at = mask.indptr + query / mask.block_rows + head * mask.head_stride;
    const auto read = [&](KeyBits& bits)
                          HWY_ATTR { BitsOfTiles(mask, mask.indices + at[0], at[1] - at[0], first, n, bits); };
    Keep(to, shared.tiles.Get(at, read));
    if (EndOfBits(to) == 0) return;
  }
  if (task.mask.data != nullptr) {
    const uint8_t* at = static_cast<const uint8_t*>(task.mask.data) + RowOffset(task.mask, row, task.group_size);
    const auto read = [&](KeyBits& bits) HWY_ATTR { BitsOfMask(task, at, first, n, bits); };
    Keep(to, shared.mask.Get(at, read));
    if (EndOfBits(to) == 0) return;
  }
  if (task.bias.data != nullptr) {
    const char* at = BiasRow(task, row);
    const auto read = [&](KeyBits& bits) HWY_ATTR { BitsOfBias(task.bias, at, first, n, bits); };
    Keep(to, shared.bias.Get(at, read));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
