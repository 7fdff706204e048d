#include "fp_environment.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace lanewise {

#if defined(__x86_64__) || defined(__i386__)

// All exceptions masked, nearest even, no flush-to-zero, no denormals-are-zero. MXCSR holds the flags as well.
__attribute__((noinline)) FpEnvironment::FpEnvironment() : control_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
__attribute__((noinline)) FpEnvironment::~FpEnvironment() { _mm_setcsr(static_cast<unsigned>(control_)); }

#elif defined(__aarch64__)

__attribute__((noinline)) FpEnvironment::FpEnvironment() {
  asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control_), "=r"(status_));
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
}
__attribute__((noinline)) FpEnvironment::~FpEnvironment() {
  asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(control_), "r"(status_) : "memory");
}

#else  // portable: rounding, traps and flags; denormal modes have no standard switch

namespace {
thread_local fenv_t saved;  // tasks do not nest
}
__attribute__((noinline)) FpEnvironment::FpEnvironment() {
  feholdexcept(&saved);
  fesetround(FE_TONEAREST);
}
__attribute__((noinline)) FpEnvironment::~FpEnvironment() { fesetenv(&saved); }

#endif

}  // namespace lanewise
