// Helpers of argument checks: one message form for sizes, structs of older and newer callers. Checks themselves are in
// problem.cpp (problems), run.cpp (runs), tensors.cpp (tensors) and partials.cpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "lanewise/lanewise.h"
#include "status.hpp"

namespace lanewise {

inline constexpr int64_t kMaxLength = INT32_MAX;  // lengths and positions are int32 in arrays
inline constexpr int64_t kMaxDim = 65536;
inline constexpr int64_t kMaxOffset = int64_t{1}
                                      << 40;  // far beyond any length, far from overflow in sums of positions

inline lw_status invalid_size(const char* name, int64_t value, int64_t low, int64_t high) {
  return failure(LW_INVALID_ARGUMENT, "%s is %lld; allowed is %lld ... %lld", name, static_cast<long long>(value),
                 static_cast<long long>(low), static_cast<long long>(high));
}

// Arrays of int32 or float32.
inline lw_status check_alignment(const char* name, const void* array) {
  if (reinterpret_cast<uintptr_t>(array) % 4 == 0) return ok();
  return failure(LW_INVALID_ARGUMENT, "%s is %p; it must be a multiple of 4, the size of an element", name, array);
}

inline lw_status unknown_field(const char* name) {
  return failure(LW_UNSUPPORTED, "%s.reserved is not zero: a field this version does not know", name);
}

// Bytes of a struct in lanewise 0.1, on machines with pointers of 64 bits: what every later version accepts, however far
// the struct has grown (tests/abi). Numbers, since sizeof grows with it.
template <class Struct>
inline constexpr int64_t kOldestSize = sizeof(Struct);
#if INTPTR_MAX == INT64_MAX
template <>
inline constexpr int64_t kOldestSize<lw_problem> = 320;
template <>
inline constexpr int64_t kOldestSize<lw_inputs> = 960;
template <>
inline constexpr int64_t kOldestSize<lw_outputs> = 536;
template <>
inline constexpr int64_t kOldestSize<lw_statistics> = 480;
template <>
inline constexpr int64_t kOldestSize<lw_executor> = 104;
template <>
inline constexpr int64_t kOldestSize<lw_options> = 80;
template <>
inline constexpr int64_t kOldestSize<lw_explanation> = 144;
#endif

// A size that a caller's struct may say it has.
template <class Struct>
lw_status check_struct_size(const char* name, int64_t size) {
  if (size >= kOldestSize<Struct> && size <= 65536) return ok();
  return failure(LW_INVALID_ARGUMENT,
                 "%s.struct_size is %lld; allowed is sizeof(lw_%s) of lanewise 0.1 or newer (%lld ...)", name,
                 static_cast<long long>(size), name, static_cast<long long>(kOldestSize<Struct>));
}

// Copies a caller's struct into this version's: what an older caller's lacks stays zero; a newer caller's extra fields
// must be zero. struct_size opens every such struct.
template <class Struct>
lw_status copy_struct(const char* name, const Struct* from, Struct& to) {
  if (from == nullptr) return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", name);
  const int64_t size = from->struct_size;
  if (const lw_status s = check_struct_size<Struct>(name, size); s.code != LW_OK) return s;
  const int64_t known = static_cast<int64_t>(sizeof(Struct));
  for (int64_t i = known; i < size; ++i) {
    if (reinterpret_cast<const char*>(from)[i] != 0) {
      return failure(LW_UNSUPPORTED, "%s uses fields that this version (lanewise %d.%d) does not know", name,
                     LW_VERSION_MAJOR, LW_VERSION_MINOR);
    }
  }
  if (size < known) std::memset(static_cast<void*>(&to), 0, sizeof to);
  std::memcpy(static_cast<void*>(&to), from, static_cast<size_t>(size < known ? size : known));
  to.struct_size = known;
  return ok();
}

template <size_t n>
bool all_zero(const int64_t (&reserved)[n]) {
  for (const int64_t x : reserved) {
    if (x != 0) return false;
  }
  return true;
}

struct NamedSize {
  const char* name;
  int64_t value, low, high;
};

template <size_t n>
lw_status check_sizes(const NamedSize (&sizes)[n]) {
  for (const NamedSize& size : sizes) {
    if (size.value < size.low || size.value > size.high)
      return invalid_size(size.name, size.value, size.low, size.high);
  }
  return ok();
}

}  // namespace lanewise
