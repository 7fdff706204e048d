#include "tensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "check.hpp"
#include "status.hpp"

namespace lanewise {

int64_t type_size(int32_t type) {
  switch (type) {
    case LW_TYPE_F32:
      return 4;
    case LW_TYPE_BF16:
    case LW_TYPE_F16:
      return 2;
    case LW_TYPE_BOOL:
    case LW_TYPE_BITS:
      return 1;
    default:
      return 0;
  }
}

const char* type_name(int32_t type) {
  switch (type) {
    case LW_TYPE_NONE:
      return "none";
    case LW_TYPE_F32:
      return "f32";
    case LW_TYPE_BF16:
      return "bf16";
    case LW_TYPE_F16:
      return "f16";
    case LW_TYPE_BOOL:
      return "bool";
    case LW_TYPE_BITS:
      return "bits";
    default:
      return "unknown";
  }
}

bool is_float_type(int32_t type) { return type == LW_TYPE_F32 || type == LW_TYPE_BF16 || type == LW_TYPE_F16; }

bool is_empty(const Axes& axes) {
  for (const int64_t size : axes.size) {
    if (size == 0) return true;
  }
  return false;
}

lw_status check_tensor(const char* name, const void* data, int32_t type, int32_t wanted_type,
                       const int64_t (&stride)[4], const Axes& axes, Range& range) {
  range = Range{nullptr, nullptr, false};
  if (type != wanted_type) {
    return failure(LW_INVALID_ARGUMENT, "%s.type is %s (%d); the problem says %s (%d)", name, type_name(type), type,
                   type_name(wanted_type), wanted_type);
  }
  if (is_empty(axes)) return ok();
  if (data == nullptr) return failure(LW_INVALID_ARGUMENT, "%s.data is a null pointer", name);
  const int64_t element = type_size(type);
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element) != 0) {
    return failure(LW_INVALID_ARGUMENT, "%s.data is %p; it must be a multiple of %lld, the size of an element", name,
                   data, static_cast<long long>(element));
  }
  int64_t low = 0, high = element, count = element;
  for (int axis = 0; axis < 4; ++axis) {
    if (axes.size[axis] == 1) continue;
    int64_t span = 0;
    if (__builtin_mul_overflow(stride[axis], axes.size[axis] - 1, &span) ||
        __builtin_mul_overflow(span, element, &span) ||
        __builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high) || low < -(INT64_MAX / 2) ||
        high > INT64_MAX / 2) {
      return failure(LW_INVALID_ARGUMENT,
                     "%s.stride[%d] is %lld over %lld elements: the tensor does not fit into the address space", name,
                     axis, static_cast<long long>(stride[axis]), static_cast<long long>(axes.size[axis]));
    }
    // Broadcast elements are there once.
    if (stride[axis] != 0 && __builtin_mul_overflow(count, axes.size[axis], &count)) count = INT64_MAX;
  }
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  if ((low < 0 && at < static_cast<uintptr_t>(-low)) || at + static_cast<uintptr_t>(high) < at) {
    return failure(LW_INVALID_ARGUMENT, "%s with its strides runs out of the address space", name);
  }
  range = Range{static_cast<const char*>(data) + low, static_cast<const char*>(data) + high, high - low == count, data};
  return ok();
}

// Ordered by magnitude, each stride must pass over the axes inside it.
lw_status check_output_strides(const char* name, const int64_t (&stride)[4], const Axes& axes) {
  if (is_empty(axes)) return ok();
  int order[4] = {0, 1, 2, 3};
  int n = 0;
  for (int axis = 0; axis < 4; ++axis) {
    if (axes.size[axis] > 1) order[n++] = axis;
  }
  for (int i = 1; i < n; ++i) {
    for (int j = i; j > 0 && std::llabs(stride[order[j]]) < std::llabs(stride[order[j - 1]]); --j) {
      const int swap = order[j];
      order[j] = order[j - 1];
      order[j - 1] = swap;
    }
  }
  int64_t inner = 0;  // distance of the last element of the axes so far
  for (int i = 0; i < n; ++i) {
    const int64_t step = std::llabs(stride[order[i]]);
    if (step <= inner) {
      return failure(
          LW_INVALID_ARGUMENT,
          "%s.stride[%d] is %lld; elements of an output must not overlap, so its magnitude must be above %lld", name,
          order[i], static_cast<long long>(stride[order[i]]), static_cast<long long>(inner));
    }
    inner += step * (axes.size[order[i]] - 1);
  }
  return ok();
}

Range memory_at(const void* data, int64_t size) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  if (data == nullptr || size <= 0 || at + static_cast<uintptr_t>(size) < at) return {nullptr, nullptr, false};
  return {static_cast<const char*>(data), static_cast<const char*>(data) + size, true, data};
}

bool overlaps(const Range& a, const Range& b) {
  if (a.begin >= b.end || b.begin >= a.end) return false;  // nor does what is not there overlap
  if (a.begin == b.begin || a.first == b.first) return true;
  const auto holds = [](const Range& all, const Range& other) {
    const char* const elements[] = {other.begin, other.end - 1, static_cast<const char*>(other.first)};
    return all.dense && std::any_of(std::begin(elements), std::end(elements),
                                    [&all](const char* at) { return all.begin <= at && at < all.end; });
  };
  return holds(a, b) || holds(b, a);
}

lw_status check_tensors(NamedTensor* inputs, int input_count, NamedTensor* outputs, int output_count,
                        const Range& workspace) {
  const auto check = [&workspace](NamedTensor& t) {
    if (!all_zero(*t.reserved)) return unknown_field(t.name);
    if (const lw_status s = check_tensor(t.name, t.data, t.type, t.wanted, *t.stride, t.axes, t.range);
        s.code != LW_OK) {
      return s;
    }
    if (!overlaps(t.range, workspace)) return ok();
    return failure(LW_INVALID_ARGUMENT, "workspace overlaps %s; it must overlap nothing", t.name);
  };
  for (int i = 0; i < input_count; ++i) {
    if (!inputs[i].given) continue;
    if (const lw_status s = check(inputs[i]); s.code != LW_OK) return s;
  }
  for (int i = 0; i < output_count; ++i) {
    NamedTensor& t = outputs[i];
    if (!t.given) continue;
    if (const lw_status s = check(t); s.code != LW_OK) return s;
    if (const lw_status s = check_output_strides(t.name, *t.stride, t.axes); s.code != LW_OK) return s;
    const auto apart_from = [&t](const NamedTensor& other) {
      if (!overlaps(t.range, other.range)) return ok();
      return failure(LW_INVALID_ARGUMENT, "%s overlaps %s; outputs must overlap nothing", t.name, other.name);
    };
    for (int j = 0; j < input_count; ++j) {
      if (const lw_status s = apart_from(inputs[j]); s.code != LW_OK) return s;
    }
    for (int j = 0; j < i; ++j) {
      if (const lw_status s = apart_from(outputs[j]); s.code != LW_OK) return s;
    }
  }
  return ok();
}

}  // namespace lanewise
