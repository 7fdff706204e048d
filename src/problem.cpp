#include "problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fp_environment.hpp"
#include "status.hpp"

namespace lanewise {
namespace {

constexpr int64_t kMaxLength = INT32_MAX;  // lengths and positions are int32 in arrays
constexpr int64_t kMaxDim = 65536;
constexpr int64_t kMaxOffset = int64_t{1} << 40;  // far beyond any length, far from overflow in sums of positions
constexpr float kMaxScale = 1e38f;

lw_status invalid_size(const char* name, int64_t value, int64_t low, int64_t high) {
  return failure(LW_INVALID_ARGUMENT, "%s is %lld; allowed is %lld ... %lld", name, static_cast<long long>(value),
                 static_cast<long long>(low), static_cast<long long>(high));
}

lw_status unknown_field(const char* name) {
  return failure(LW_UNSUPPORTED, "%s.reserved is not zero: a field this version does not know", name);
}

lw_status not_served(const char* what) { return failure(LW_UNSUPPORTED, "%s: not served by this version of lanewise", what); }

// Copies a caller's struct into this version's: what an older caller's lacks stays zero; a newer caller's extra fields must be zero.
// Every struct opens with its size.
template <class Struct>
lw_status copy_struct(const char* name, const Struct* from, int64_t smallest, Struct& to) {
  if (from == nullptr) return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", name);
  const int64_t size = from->struct_size;
  if (size < smallest || size > 65536) {
    return failure(LW_INVALID_ARGUMENT, "%s.struct_size is %lld; allowed is sizeof(lw_%s) of lanewise 0.1 or newer (%lld ...)", name,
                   static_cast<long long>(size), name, static_cast<long long>(smallest));
  }
  const int64_t known = static_cast<int64_t>(sizeof(Struct));
  for (int64_t i = known; i < size; ++i) {
    if (reinterpret_cast<const char*>(from)[i] != 0) {
      return failure(LW_UNSUPPORTED, "%s uses fields that this version (lanewise %d.%d) does not know", name, LW_VERSION_MAJOR,
                     LW_VERSION_MINOR);
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

bool is_float_type(int32_t type) { return type == LW_TYPE_F32 || type == LW_TYPE_BF16 || type == LW_TYPE_F16; }

// Rules that a run may override.
lw_status check_rules(const lw_problem& p) {
  if (!std::isfinite(p.scale) || std::fabs(p.scale) > kMaxScale) {
    return failure(LW_INVALID_ARGUMENT, "scale is %g; allowed is any finite number of magnitude up to 1e38", static_cast<double>(p.scale));
  }
  if (!(p.softcap == 0.0f || (p.softcap >= 1e-6f && p.softcap <= 1e6f))) {
    return failure(LW_INVALID_ARGUMENT, "softcap is %g; allowed is 0 (off) or 1e-6 ... 1e6", static_cast<double>(p.softcap));
  }
  if (p.softcap != 0.0f) return not_served("softcap");
  if (p.window_left < -1 || p.window_left > kMaxOffset) return invalid_size("window_left", p.window_left, -1, kMaxOffset);
  if (p.window_right < -1 || p.window_right > kMaxOffset) return invalid_size("window_right", p.window_right, -1, kMaxOffset);
  if (p.q_offset < -kMaxOffset || p.q_offset > kMaxOffset) return invalid_size("q_offset", p.q_offset, -kMaxOffset, kMaxOffset);
  return ok();
}

lw_status check_types(const lw_problem& p) {
  const struct {
    const char* name;
    int32_t type;
  } types[] = {{"q_type", p.q_type}, {"k_type", p.k_type}, {"v_type", p.v_type}, {"out_type", p.out_type}};
  for (const auto& t : types) {
    if (!is_float_type(t.type)) {
      return failure(LW_INVALID_ARGUMENT, "%s is %d; allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)", t.name, t.type);
    }
  }
  if (p.mask_type != LW_TYPE_NONE && p.mask_type != LW_TYPE_BOOL && p.mask_type != LW_TYPE_BITS) {
    return failure(LW_INVALID_ARGUMENT, "mask_type is %d; allowed is LW_TYPE_NONE (0), LW_TYPE_BOOL (4) or LW_TYPE_BITS (5)", p.mask_type);
  }
  if (p.bias_type != LW_TYPE_NONE && !is_float_type(p.bias_type)) {
    return failure(LW_INVALID_ARGUMENT, "bias_type is %d; allowed is LW_TYPE_NONE (0), LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)",
                   p.bias_type);
  }
  if (p.arithmetic < LW_ARITHMETIC_CANONICAL || p.arithmetic > LW_ARITHMETIC_BEST) return invalid_size("arithmetic", p.arithmetic, 0, 2);
  if (p.q_layout < LW_LAYOUT_DENSE || p.q_layout > LW_LAYOUT_RAGGED) return invalid_size("q_layout", p.q_layout, 0, 1);
  if (p.kv_layout < LW_LAYOUT_DENSE || p.kv_layout > LW_LAYOUT_PAGED) return invalid_size("kv_layout", p.kv_layout, 0, 2);
  if (p.arithmetic == LW_ARITHMETIC_NATIVE_BF16 && !(p.q_type == LW_TYPE_BF16 && p.k_type == LW_TYPE_BF16 && p.v_type == LW_TYPE_BF16)) {
    return failure(LW_INVALID_ARGUMENT, "arithmetic is native_bf16 with types q %s, k %s, v %s; it takes bf16 for all three",
                   type_name(p.q_type), type_name(p.k_type), type_name(p.v_type));
  }
  for (const auto& t : types) {
    if (t.type != LW_TYPE_F32) return not_served("16-bit storage");
  }
  return ok();
}

// ---- Tensors of a run -------------------------------------------------------------------------------------------------------------

// The four axes' sizes of a tensor and what is known of its elements.
struct Axes {
  int64_t size[4];
};

bool is_empty(const Axes& axes) {
  for (const int64_t size : axes.size) {
    if (size == 0) return true;
  }
  return false;
}

struct Range {
  const char* begin;
  const char* end;  // one past the last byte
  bool dense;       // every byte between belongs to the tensor
};

lw_status check_tensor(const char* name, const void* data, int32_t type, int32_t wanted_type, const int64_t (&stride)[4],
                       const Axes& axes, Range& range) {
  range = Range{nullptr, nullptr, false};
  if (type != wanted_type) {
    return failure(LW_INVALID_ARGUMENT, "%s.type is %s (%d); the problem says %s (%d)", name, type_name(type), type, type_name(wanted_type),
                   wanted_type);
  }
  if (is_empty(axes)) return ok();
  if (data == nullptr) return failure(LW_INVALID_ARGUMENT, "%s.data is a null pointer", name);
  const int64_t element = type_size(type);
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(element) != 0) {
    return failure(LW_INVALID_ARGUMENT, "%s.data is %p; it must be a multiple of %lld, the size of an element", name, data,
                   static_cast<long long>(element));
  }
  int64_t low = 0, high = element, count = element;
  for (int axis = 0; axis < 4; ++axis) {
    if (axes.size[axis] == 1) continue;
    int64_t span = 0;
    if (__builtin_mul_overflow(stride[axis], axes.size[axis] - 1, &span) || __builtin_mul_overflow(span, element, &span) ||
        __builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high) || low < -(INT64_MAX / 2) || high > INT64_MAX / 2) {
      return failure(LW_INVALID_ARGUMENT, "%s.stride[%d] is %lld over %lld elements: the tensor does not fit into the address space", name,
                     axis, static_cast<long long>(stride[axis]), static_cast<long long>(axes.size[axis]));
    }
    if (__builtin_mul_overflow(count, axes.size[axis], &count)) count = INT64_MAX;
  }
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  if ((low < 0 && at < static_cast<uintptr_t>(-low)) || at + static_cast<uintptr_t>(high) < at) {
    return failure(LW_INVALID_ARGUMENT, "%s with its strides runs out of the address space", name);
  }
  range = Range{static_cast<const char*>(data) + low, static_cast<const char*>(data) + high, high - low == count};
  return ok();
}

// No two elements of an output may share an address: ordered by magnitude, each stride must pass over the axes inside it.
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
      return failure(LW_INVALID_ARGUMENT, "%s.stride[%d] is %lld; elements of an output must not overlap, so its magnitude must be above %lld",
                     name, order[i], static_cast<long long>(stride[order[i]]), static_cast<long long>(inner));
    }
    inner += step * (axes.size[order[i]] - 1);
  }
  return ok();
}

// Overlap is refused where it is certain: the same first element, or two tensors without gaps that intersect. (Outputs that interleave
// with other tensors in one buffer are fine, and their extents intersect.)
bool overlaps(const Range& a, const Range& b) {
  if (a.begin == nullptr || b.begin == nullptr) return false;
  if (a.begin == b.begin) return true;
  return a.dense && b.dense && a.begin < b.end && b.begin < a.end;
}

struct NamedRange {
  const char* name;
  Range range;
};

lw_status check_tensors(const Run& run) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const lw_outputs& out = run.outputs;
  // A ragged tensor has one axis of tokens for all sequences, a paged one has pages for sequences.
  const bool ragged_q = p.q_layout == LW_LAYOUT_RAGGED;
  const bool ragged_kv = p.kv_layout == LW_LAYOUT_RAGGED;
  const bool paged = p.kv_layout == LW_LAYOUT_PAGED;
  const int64_t q_outer = ragged_q ? std::min<int64_t>(p.batch, 1) : p.batch;
  const int64_t q_rows = ragged_q ? in.cu_seqlens_q[p.batch] : p.q_len;
  const int64_t kv_outer = paged ? p.page_count : ragged_kv ? std::min<int64_t>(p.batch, 1) : p.batch;
  const int64_t kv_rows = paged ? p.page_size : ragged_kv ? in.cu_seqlens_kv[p.batch] : p.kv_len;
  const Axes q_axes = {{q_outer, p.q_heads, q_rows, p.qk_dim}};
  const Axes k_axes = {{kv_outer, p.kv_heads, kv_rows, p.qk_dim}};
  const Axes v_axes = {{kv_outer, p.kv_heads, kv_rows, p.v_dim}};
  const Axes out_axes = {{q_outer, p.q_heads, q_rows, p.v_dim}};
  const Axes row_axes = {{q_outer, p.q_heads, q_rows, 1}};

  const bool state_in = in.state_max.data != nullptr || in.state_sum.data != nullptr || in.state_acc.data != nullptr;
  const bool state_out = out.state_max.data != nullptr || out.state_sum.data != nullptr || out.state_acc.data != nullptr;
  if (!state_out && out.out.data == nullptr && !is_empty(out_axes)) {
    return failure(LW_INVALID_ARGUMENT, "out.data is a null pointer, and no state is asked for either");
  }
  const struct {
    const char* name;
    const lw_const_tensor& tensor;
    int32_t type;
    const Axes& axes;
    bool given;
  } inputs[] = {{"q", in.q, p.q_type, q_axes, true},
                {"k", in.k, p.k_type, k_axes, true},
                {"v", in.v, p.v_type, v_axes, true},
                {"state_max (input)", in.state_max, LW_TYPE_F32, row_axes, state_in},
                {"state_sum (input)", in.state_sum, LW_TYPE_F32, row_axes, state_in},
                {"state_acc (input)", in.state_acc, LW_TYPE_F32, out_axes, state_in}};
  const struct {
    const char* name;
    const lw_tensor& tensor;
    int32_t type;
    const Axes& axes;
    bool given;
  } outputs[] = {{"out", out.out, p.out_type, out_axes, out.out.data != nullptr},
                 {"lse", out.lse, LW_TYPE_F32, row_axes, out.lse.data != nullptr},
                 {"state_max", out.state_max, LW_TYPE_F32, row_axes, state_out},
                 {"state_sum", out.state_sum, LW_TYPE_F32, row_axes, state_out},
                 {"state_acc", out.state_acc, LW_TYPE_F32, out_axes, state_out}};
  NamedRange input_range[6], output_range[5];
  for (int i = 0; i < 6; ++i) {
    input_range[i] = {inputs[i].name, Range{nullptr, nullptr, false}};
    if (!inputs[i].given) continue;
    const auto& t = inputs[i];
    if (!all_zero(t.tensor.reserved)) return unknown_field(t.name);
    if (const lw_status s = check_tensor(t.name, t.tensor.data, t.tensor.type, t.type, t.tensor.stride, t.axes, input_range[i].range);
        s.code != LW_OK) {
      return s;
    }
  }
  for (int i = 0; i < 5; ++i) {
    output_range[i] = {outputs[i].name, Range{nullptr, nullptr, false}};
    if (!outputs[i].given) continue;
    const auto& t = outputs[i];
    if (!all_zero(t.tensor.reserved)) return unknown_field(t.name);
    if (const lw_status s = check_tensor(t.name, t.tensor.data, t.tensor.type, t.type, t.tensor.stride, t.axes, output_range[i].range);
        s.code != LW_OK) {
      return s;
    }
    if (const lw_status s = check_output_strides(t.name, t.tensor.stride, t.axes); s.code != LW_OK) return s;
    for (const NamedRange& other : input_range) {
      if (overlaps(output_range[i].range, other.range)) {
        return failure(LW_INVALID_ARGUMENT, "%s overlaps %s; outputs must overlap nothing", t.name, other.name);
      }
    }
    for (int j = 0; j < i; ++j) {
      if (overlaps(output_range[i].range, output_range[j].range)) {
        return failure(LW_INVALID_ARGUMENT, "%s overlaps %s; outputs must overlap nothing", t.name, output_range[j].name);
      }
    }
  }
  return ok();
}

lw_status check_array(const char* name, const int32_t* values, int64_t n, int64_t low, int64_t high) {
  if (values == nullptr) return ok();
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] < low || values[i] > high) {
      return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d; allowed is %lld ... %lld", name, static_cast<long long>(i), values[i],
                     static_cast<long long>(low), static_cast<long long>(high));
    }
  }
  return ok();
}

lw_status run_size(const char* name, int64_t given, int64_t capacity, int64_t& resolved) {
  if (given < -1 || given > capacity) {
    return failure(LW_INVALID_ARGUMENT, "%s is %lld; allowed is 0 ... %lld (the plan's capacity), or -1 for all of it", name,
                   static_cast<long long>(given), static_cast<long long>(capacity));
  }
  resolved = given == -1 ? capacity : given;
  return ok();
}

// Prefix offsets of a ragged tensor: from 0, never falling, no sequence above `longest`, all of them within `total`.
lw_status check_offsets(const char* name, const int32_t* offsets, int64_t n, int64_t longest, int64_t total) {
  if (offsets[0] != 0) return failure(LW_INVALID_ARGUMENT, "%s[0] is %d; allowed is 0", name, offsets[0]);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = int64_t{offsets[i + 1]} - offsets[i];
    if (length < 0 || length > longest) {
      return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d after %d; a sequence has 0 ... %lld rows", name, static_cast<long long>(i + 1),
                     offsets[i + 1], offsets[i], static_cast<long long>(longest));
    }
  }
  if (offsets[n] > total) {
    return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d; the plan's capacity is %lld rows", name, static_cast<long long>(n), offsets[n],
                   static_cast<long long>(total));
  }
  return ok();
}

// Every page that holds a key which some row of its sequence may see must exist.
lw_status check_pages(const Run& run) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  for (int64_t b = 0; b < p.batch; ++b) {
    int64_t begin = 0, end = 0;
    run.visible(b, begin, end);
    for (int64_t page = begin / p.page_size; begin < end && page <= (end - 1) / p.page_size; ++page) {
      const int32_t id = in.page_table[b * in.page_table_stride[0] + page * in.page_table_stride[1]];
      if (id < 0 || id >= p.page_count) {
        return failure(LW_INVALID_ARGUMENT, "page_table[%lld][%lld] is %d and holds visible keys; allowed is 0 ... %lld",
                       static_cast<long long>(b), static_cast<long long>(page), id, static_cast<long long>(p.page_count - 1));
      }
    }
  }
  return ok();
}

lw_status check_arrays(const Run& run) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const int64_t n = p.batch;
  if (in.cu_seqlens_q != nullptr) {
    if (const lw_status s = check_offsets("cu_seqlens_q", in.cu_seqlens_q, n, p.q_len, p.total_q); s.code != LW_OK) return s;
  }
  if (in.cu_seqlens_kv != nullptr) {
    if (const lw_status s = check_offsets("cu_seqlens_kv", in.cu_seqlens_kv, n, p.kv_len, p.total_kv); s.code != LW_OK) return s;
    // A sequence may use less than its room.
    for (int64_t b = 0; in.kv_lengths != nullptr && b < n; ++b) {
      const int64_t room = int64_t{in.cu_seqlens_kv[b + 1]} - in.cu_seqlens_kv[b];
      if (in.kv_lengths[b] < 0 || in.kv_lengths[b] > room) {
        return failure(LW_INVALID_ARGUMENT, "kv_lengths[%lld] is %d; its sequence has room for 0 ... %lld keys", static_cast<long long>(b),
                       in.kv_lengths[b], static_cast<long long>(room));
      }
    }
  }
  if (const lw_status s = check_array("q_lengths", in.q_lengths, n, 0, p.q_len); s.code != LW_OK) return s;
  if (const lw_status s = check_array("kv_lengths", in.kv_lengths, n, 0, p.kv_len); s.code != LW_OK) return s;
  if (const lw_status s = check_array("kv_starts", in.kv_starts, n, 0, kMaxLength); s.code != LW_OK) return s;
  if (in.state_max.data != nullptr) {
    for (int64_t b = 0; b < n; ++b) {
      if (run.kv_start(b) % 4096 != 0) {
        return failure(LW_INVALID_ARGUMENT, "kv_starts[%lld] is %lld; a run that continues from a state starts at a multiple of 4096",
                       static_cast<long long>(b), static_cast<long long>(run.kv_start(b)));
      }
    }
  }
  if (in.page_table != nullptr) return check_pages(run);
  return ok();
}

}  // namespace

int64_t type_size(int32_t type) {
  switch (type) {
    case LW_TYPE_F32: return 4;
    case LW_TYPE_BF16:
    case LW_TYPE_F16: return 2;
    case LW_TYPE_BOOL:
    case LW_TYPE_BITS: return 1;
    default: return 0;
  }
}

const char* type_name(int32_t type) {
  switch (type) {
    case LW_TYPE_NONE: return "none";
    case LW_TYPE_F32: return "f32";
    case LW_TYPE_BF16: return "bf16";
    case LW_TYPE_F16: return "f16";
    case LW_TYPE_BOOL: return "bool";
    case LW_TYPE_BITS: return "bits";
    default: return "unknown";
  }
}

lw_status check_problem(const lw_problem* problem, lw_problem& p) {
  if (const lw_status s = copy_struct("problem", problem, static_cast<int64_t>(sizeof(lw_problem)), p); s.code != LW_OK) return s;
  const struct {
    const char* name;
    int64_t value, low, high;
  } sizes[] = {
      {"batch", p.batch, 0, kMaxLength},
      {"q_heads", p.q_heads, 1, kMaxLength},
      {"kv_heads", p.kv_heads, 1, kMaxLength},
      {"q_len", p.q_len, 0, kMaxLength},
      {"kv_len", p.kv_len, 0, kMaxLength},
      {"qk_dim", p.qk_dim, 1, kMaxDim},
      {"v_dim", p.v_dim, 1, kMaxDim},
      {"causal", p.causal, 0, 1},
      {"has_scale", p.has_scale, 0, 1},
      {"has_q_offset", p.has_q_offset, 0, 1},
      {"alibi", p.alibi, 0, 1},
      {"sinks", p.sinks, 0, 1},
      {"total_q", p.total_q, 0, INT64_MAX},
      {"total_kv", p.total_kv, 0, INT64_MAX},
      {"page_size", p.page_size, 0, kMaxLength},
      {"page_count", p.page_count, 0, kMaxLength},
      {"prefix_len", p.prefix_len, 0, kMaxLength},
  };
  for (const auto& size : sizes) {
    if (size.value < size.low || size.value > size.high) return invalid_size(size.name, size.value, size.low, size.high);
  }
  if (p.q_heads % p.kv_heads != 0) {
    return failure(LW_INVALID_ARGUMENT, "q_heads is %lld; it must be a multiple of kv_heads (%lld)", static_cast<long long>(p.q_heads),
                   static_cast<long long>(p.kv_heads));
  }
  if (!all_zero(p.reserved)) return unknown_field("problem");
  if (const lw_status s = check_types(p); s.code != LW_OK) return s;
  if (!p.has_scale) {
    const FpEnvironment environment;  // the host may round otherwise
    p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.qk_dim)));
    p.has_scale = 1;
  }
  if (const lw_status s = check_rules(p); s.code != LW_OK) return s;
  if (p.arithmetic == LW_ARITHMETIC_BEST) p.arithmetic = LW_ARITHMETIC_CANONICAL;
  if (p.q_layout == LW_LAYOUT_RAGGED && p.total_q > kMaxLength) return invalid_size("total_q", p.total_q, 0, kMaxLength);
  if (p.kv_layout == LW_LAYOUT_RAGGED && p.total_kv > kMaxLength) return invalid_size("total_kv", p.total_kv, 0, kMaxLength);
  if (p.kv_layout == LW_LAYOUT_PAGED && p.page_size < 1) return invalid_size("page_size", p.page_size, 1, kMaxLength);
  if (p.mask_type != LW_TYPE_NONE) return not_served("masks");
  if (p.bias_type != LW_TYPE_NONE) return not_served("biases");
  if (p.alibi) return not_served("ALiBi");
  if (p.sinks) return not_served("sinks");
  if (p.prefix_len != 0) return not_served("prefix_len");
  return ok();
}

lw_status check_run(const lw_problem& planned, const lw_inputs* inputs, const lw_outputs* outputs, Run& run) {
  if (const lw_status s = copy_struct("inputs", inputs, static_cast<int64_t>(sizeof(lw_inputs)), run.inputs); s.code != LW_OK) return s;
  if (const lw_status s = copy_struct("outputs", outputs, static_cast<int64_t>(sizeof(lw_outputs)), run.outputs); s.code != LW_OK) return s;
  run.problem = planned;
  lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  if (const lw_status s = run_size("batch", in.batch, planned.batch, p.batch); s.code != LW_OK) return s;
  if (const lw_status s = run_size("q_len", in.q_len, planned.q_len, p.q_len); s.code != LW_OK) return s;
  if (const lw_status s = run_size("kv_len", in.kv_len, planned.kv_len, p.kv_len); s.code != LW_OK) return s;
  if (in.overrides & ~(LW_OVERRIDE_SCALE | LW_OVERRIDE_SOFTCAP | LW_OVERRIDE_WINDOW | LW_OVERRIDE_Q_OFFSET)) {
    return failure(LW_INVALID_ARGUMENT, "overrides is %d; allowed is a sum of LW_OVERRIDE_* bits (0 ... 15)", in.overrides);
  }
  if (in.checks != LW_CHECKS_FULL && in.checks != LW_CHECKS_TRUSTED) return invalid_size("checks", in.checks, 0, 1);
  if (!all_zero(in.reserved)) return unknown_field("inputs");
  if (!all_zero(run.outputs.reserved)) return unknown_field("outputs");
  if (in.overrides & LW_OVERRIDE_SCALE) p.scale = in.scale;
  if (in.overrides & LW_OVERRIDE_SOFTCAP) p.softcap = in.softcap;
  if (in.overrides & LW_OVERRIDE_WINDOW) {
    p.window_left = in.window_left;
    p.window_right = in.window_right;
  }
  if (in.overrides & LW_OVERRIDE_Q_OFFSET) {
    p.q_offset = in.q_offset;
    p.has_q_offset = 1;
  }
  if (in.overrides != 0) {
    if (const lw_status s = check_rules(p); s.code != LW_OK) return s;
  }
  // Arrays that the problem announces must be there, and only those.
  const struct {
    const char* name;
    const void* pointer;
    bool planned;
    bool required;
    const char* field;
  } arrays[] = {{"cu_seqlens_q", in.cu_seqlens_q, p.q_layout == LW_LAYOUT_RAGGED, true, "q_layout ragged"},
                {"cu_seqlens_kv", in.cu_seqlens_kv, p.kv_layout == LW_LAYOUT_RAGGED, true, "kv_layout ragged"},
                {"page_table", in.page_table, p.kv_layout == LW_LAYOUT_PAGED, p.kv_len > 0, "kv_layout paged"},
                {"kv_lengths", in.kv_lengths, true, p.kv_layout == LW_LAYOUT_PAGED, "kv_layout paged"},
                {"q_lengths", in.q_lengths, p.q_layout == LW_LAYOUT_DENSE, false, "q_layout dense"},
                {"mask.data", in.mask.data, p.mask_type != LW_TYPE_NONE, true, "a mask_type"},
                {"bias.data", in.bias.data, p.bias_type != LW_TYPE_NONE, true, "a bias_type"},
                {"alibi_slopes", in.alibi_slopes, p.alibi != 0, true, "alibi = 1"},
                {"sinks", in.sinks, p.sinks != 0, true, "sinks = 1"}};
  for (const auto& array : arrays) {
    if (array.pointer != nullptr && !array.planned) {
      return failure(LW_INVALID_ARGUMENT, "%s is given; that needs %s in the plan's problem", array.name, array.field);
    }
    if (array.pointer == nullptr && array.planned && array.required && p.batch > 0) {
      return failure(LW_INVALID_ARGUMENT, "%s is a null pointer; the plan's problem has %s", array.name, array.field);
    }
  }
  if (in.q_positions != nullptr) return not_served("q_positions");
  if (in.checks == LW_CHECKS_FULL) {
    if (const lw_status s = check_arrays(run); s.code != LW_OK) return s;
  }
  return check_tensors(run);
}

void Run::visible(int64_t b, int64_t& begin, int64_t& end) const {
  begin = end = 0;
  if (q_len(b) == 0) return;
  const int64_t first = q_offset(b) - kv_start(b);  // key row of the first query's own position
  const int64_t last = first + q_len(b) - 1;
  end = kv_len(b);
  if (problem.causal) end = std::clamp<int64_t>(last + 1, 0, end);
  if (problem.window_right >= 0) end = std::clamp<int64_t>(last + problem.window_right + 1, 0, end);
  if (problem.window_left >= 0) begin = std::clamp<int64_t>(first - problem.window_left, 0, end);
}

lw_status check_merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses, int32_t count,
                      const lw_outputs* merged, lw_problem& p, lw_outputs& outputs) {
  if (const lw_status s = check_problem(problem, p); s.code != LW_OK) return s;
  if (const lw_status s = copy_struct("outputs", merged, static_cast<int64_t>(sizeof(lw_outputs)), outputs); s.code != LW_OK) return s;
  if (count < 1 || count > LW_MAX_PARTS) return invalid_size("count", count, 1, LW_MAX_PARTS);
  if (outs == nullptr || lses == nullptr) return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", outs == nullptr ? "outs" : "lses");
  const bool ragged = p.q_layout == LW_LAYOUT_RAGGED;
  const int64_t outer = ragged ? 1 : p.batch;
  const int64_t rows = ragged ? p.total_q : p.q_len;
  const Axes out_axes = {{outer, p.q_heads, rows, p.v_dim}};
  const Axes row_axes = {{outer, p.q_heads, rows, 1}};
  Range unused;
  char name[32];
  for (int32_t i = 0; i < count; ++i) {
    std::snprintf(name, sizeof name, "outs[%d]", i);
    if (const lw_status s = check_tensor(name, outs[i].data, outs[i].type, LW_TYPE_F32, outs[i].stride, out_axes, unused); s.code != LW_OK) {
      return s;
    }
    std::snprintf(name, sizeof name, "lses[%d]", i);
    if (const lw_status s = check_tensor(name, lses[i].data, lses[i].type, LW_TYPE_F32, lses[i].stride, row_axes, unused); s.code != LW_OK) {
      return s;
    }
  }
  const lw_tensor& out = outputs.out;
  if (const lw_status s = check_tensor("out", out.data, out.type, LW_TYPE_F32, out.stride, out_axes, unused); s.code != LW_OK) return s;
  if (const lw_status s = check_output_strides("out", out.stride, out_axes); s.code != LW_OK) return s;
  const lw_tensor& lse = outputs.lse;
  if (lse.data == nullptr) return ok();
  if (const lw_status s = check_tensor("lse", lse.data, lse.type, LW_TYPE_F32, lse.stride, row_axes, unused); s.code != LW_OK) return s;
  return check_output_strides("lse", lse.stride, row_axes);
}

lw_status check_append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim, const lw_const_tensor* rows,
                       int64_t tokens, const int32_t* slots) {
  if (cache == nullptr || rows == nullptr) return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", cache == nullptr ? "cache" : "rows");
  const struct {
    const char* name;
    int64_t value, low, high;
  } sizes[] = {{"pages", pages, 0, kMaxLength},
               {"page_size", page_size, 1, kMaxLength},
               {"heads", heads, 1, kMaxLength},
               {"dim", dim, 1, kMaxDim},
               {"tokens", tokens, 0, kMaxLength}};
  for (const auto& size : sizes) {
    if (size.value < size.low || size.value > size.high) return invalid_size(size.name, size.value, size.low, size.high);
  }
  if (!is_float_type(cache->type)) {
    return failure(LW_INVALID_ARGUMENT, "cache.type is %s (%d); allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)",
                   type_name(cache->type), cache->type);
  }
  if (tokens > 0 && slots == nullptr) return failure(LW_INVALID_ARGUMENT, "slots is a null pointer");
  const Axes cache_axes = {{pages, heads, page_size, dim}};
  const Axes row_axes = {{1, heads, tokens, dim}};
  Range cache_range, row_range;
  if (const lw_status s = check_tensor("cache", cache->data, cache->type, cache->type, cache->stride, cache_axes, cache_range);
      s.code != LW_OK) {
    return s;
  }
  if (const lw_status s = check_output_strides("cache", cache->stride, cache_axes); s.code != LW_OK) return s;
  if (const lw_status s = check_tensor("rows", rows->data, rows->type, cache->type, rows->stride, row_axes, row_range); s.code != LW_OK) {
    return s;
  }
  if (overlaps(cache_range, row_range)) return failure(LW_INVALID_ARGUMENT, "cache overlaps rows");
  return check_array("slots", slots, tokens, -1, std::min(pages * page_size - 1, kMaxLength));
}

lw_status check_workspace(const void* workspace, int64_t size, int64_t needed, int32_t threads) {
  if (needed == 0) return ok();
  if (workspace == nullptr) return failure(LW_INVALID_ARGUMENT, "workspace is a null pointer; %lld bytes are needed", static_cast<long long>(needed));
  if (size < needed) {
    return failure(LW_INVALID_ARGUMENT, "workspace_size is %lld; %d thread%s need%s %lld", static_cast<long long>(size), threads,
                   threads == 1 ? "" : "s", threads == 1 ? "s" : "", static_cast<long long>(needed));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 64 != 0) {
    return failure(LW_INVALID_ARGUMENT, "workspace is %p; it must be a multiple of 64", workspace);
  }
  return ok();
}

lw_status check_executor(const lw_executor* executor, lw_executor& checked) {
  if (executor == nullptr) {
    checked = lw_executor_default();
    return ok();
  }
  if (const lw_status s = copy_struct("executor", executor, static_cast<int64_t>(sizeof(lw_executor)), checked); s.code != LW_OK) return s;
  if (checked.kind < LW_EXECUTOR_OPENMP || checked.kind > LW_EXECUTOR_CALLBACK) return invalid_size("executor.kind", checked.kind, 0, 2);
  if (checked.threads < 0) return invalid_size("executor.threads", checked.threads, 0, INT32_MAX);
  if (checked.kind == LW_EXECUTOR_CALLBACK && checked.parallel_for == nullptr) {
    return failure(LW_INVALID_ARGUMENT, "executor.parallel_for is a null pointer; LW_EXECUTOR_CALLBACK needs it");
  }
  return ok();
}

}  // namespace lanewise
