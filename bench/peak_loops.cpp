#include "bench/peak_loops.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lanewise::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Chains in flight: latency times pipes, as far as the register file goes (4 x 4 on the widest Arm cores, 4 x 2 on
// x86).
#if (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3) || HWY_TARGET == HWY_EMU128
inline constexpr size_t kChains = 12;
#else
inline constexpr size_t kChains = 16;
#endif

template <class D, class V>
HWY_INLINE void Keep(D d, const V (&chain)[kChains]) {
  V sum = chain[0];
  for (size_t i = 1; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  volatile float kept = hn::GetLane(sum);
  (void)kept;
  (void)d;
}

template <class D>
HWY_INLINE void Start(D d, hn::Vec<D> (&chain)[kChains]) {
  HWY_UNROLL(16)
  for (size_t i = 0; i < kChains; ++i) chain[i] = hn::Set(d, 0.1f * static_cast<float>(i));
}

void Fma(int64_t rounds) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> chain[kChains];
  Start(d, chain);
  volatile float factor = 0.999f;  // converges to 1: no denormals, no overflow
  const auto x = hn::Set(d, factor);
  const auto y = hn::Set(d, 1.0f - factor);
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], x, y);
  }
  Keep(d, chain);
}

#if HWY_NATIVE_DOT_BF16
void Bf16Dot(int64_t rounds) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<hwy::bfloat16_t, decltype(d)> d16;
  hn::Vec<decltype(d)> chain[kChains];
  Start(d, chain);
  // From memory: clang 16 does not survive a broadcast that is used as bf16.
  HWY_ALIGN uint16_t halves[hn::MaxLanes(d16)];
  for (uint16_t& half : halves) half = 0x3f00;  // 0.5
  const uint16_t* volatile from = halves;
  const auto x = hn::Load(d16, reinterpret_cast<const hwy::bfloat16_t*>(from));
  auto unused = hn::Zero(d);
  for (int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(16)
    for (size_t i = 0; i < kChains; ++i) chain[i] = hn::ReorderWidenMulAccumulate(d, x, x, chain[i], unused);
  }
  Keep(d, chain);
}
#endif

void Read(const void* data, size_t bytes) {
  const hn::ScalableTag<uint32_t> d;
  const size_t step = hn::Lanes(d);
  const uint32_t* from = static_cast<const uint32_t*>(data);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (size_t i = 0; i < bytes / sizeof(uint32_t);) {
    HWY_UNROLL(2)
    for (size_t u = 0; u < 2; ++u) {
      sum0 = hn::Or(sum0, hn::Load(d, from + i));
      sum1 = hn::Or(sum1, hn::Load(d, from + i + step));
      sum2 = hn::Or(sum2, hn::Load(d, from + i + 2 * step));
      sum3 = hn::Or(sum3, hn::Load(d, from + i + 3 * step));
      i += 4 * step;
    }
  }
  volatile uint32_t kept = hn::GetLane(hn::Or(hn::Or(sum0, sum1), hn::Or(sum2, sum3)));
  (void)kept;
}

PeakLoops Loops() {
  const double lanes = static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
  PeakLoops loops;
  loops.fma = &Fma;
  loops.fma_flops = 2.0 * lanes * static_cast<double>(kChains);
#if HWY_NATIVE_DOT_BF16
  loops.bf16_dot = &Bf16Dot;
  loops.bf16_dot_flops = 4.0 * lanes * static_cast<double>(kChains);
#endif
  loops.read = &Read;
  static_assert(kReadStep % (8 * hn::MaxLanes(hn::ScalableTag<float>()) * sizeof(float)) == 0,
                "Read takes whole steps");
  return loops;
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lanewise::bench {
HWY_EXPORT(Loops);

PeakLoops peak_loops_for(int64_t target) {
#if HWY_TARGETS & (HWY_TARGETS - 1)
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Loops)[chosen.GetIndex()]();
#else
  (void)target;  // the only one
  return HWY_STATIC_DISPATCH(Loops)();
#endif
}
}  // namespace lanewise::bench
#endif  // HWY_ONCE
