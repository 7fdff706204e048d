// The calling thread's floating-point mode, as a host may have set it: rounding, flush to zero, denormals as zero,
// traps.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace lanewise::test {

#if defined(__SSE2__)
constexpr uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kRoundUp = 0x4000;
// Invalid, division by zero, overflow and underflow trap. The inexact flag is set by any arithmetic, of the plan's too.
constexpr uint32_t kTrapButInexactAndDenormal = 0x1f80 & ~(0x0080u | 0x0200u | 0x0400u | 0x0800u);
constexpr uint64_t kInexact = 0x20, kFlags = 0x3f;
inline uint64_t float_mode() { return _mm_getcsr(); }
inline void set_float_mode(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
#elif defined(__aarch64__)
// One bit does both; rounding mode in bits 22-23. There are no traps to speak of.
constexpr uint64_t kFlushToZero = uint64_t{1} << 24, kDenormalsAreZero = 0, kRoundUp = uint64_t{1} << 22;
constexpr uint64_t kInexact = 0, kFlags = 0;  // flags are in another register
inline uint64_t float_mode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void set_float_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
constexpr uint64_t kFlushToZero = 0, kDenormalsAreZero = 0, kRoundUp = 0, kInexact = 0, kFlags = 0;
inline uint64_t float_mode() { return 0; }
inline void set_float_mode(uint64_t) {}
#endif

}  // namespace lanewise::test
