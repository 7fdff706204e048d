// Arrays of one storage type to another (lw_convert).

#if defined(LANEWISE_CONVERT_ARRAYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LANEWISE_CONVERT_ARRAYS_INL_H_
#undef LANEWISE_CONVERT_ARRAYS_INL_H_
#else
#define LANEWISE_CONVERT_ARRAYS_INL_H_
#endif

#include <hwy/highway.h>

#include "src/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lanewise {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class From, class To>
HWY_NOINLINE void ConvertArray(const void* from, void* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const int64_t N = static_cast<int64_t>(hn::Lanes(d));
  const From* in = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < n; i += N) {
    const bool whole = i + N <= n;
    const size_t count = static_cast<size_t>(HWY_MIN(N, n - i));
    const auto v = whole ? LoadWide(d, in + i) : LoadWideN(d, in + i, count);
    const auto result = hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, hn::Set(du, 0x7fc00000u)), v);
    if (whole) {
      StoreRounded(result, d, out + i);
    } else {
      StoreRoundedN(result, d, out + i, count);
    }
  }
}

// n elements behind one another. A NaN becomes the positive quiet NaN of the result's type.
static inline void Convert(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) {
  WithElement(from_type, [&](auto in) HWY_ATTR {
    WithElement(to_type, [&](auto out) HWY_ATTR { ConvertArray<decltype(in), decltype(out)>(from, to, n); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lanewise
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
