#include "partials.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "check.hpp"
#include "fp_environment.hpp"
#include "kernels/kernel_table.hpp"
#include "problem.hpp"
#include "targets.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

template <class Tensor>
int64_t offset_of(const Tensor& t, int64_t b, int64_t h, int64_t i) {
  return b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
}

// The tensors of a result and where they lie.
struct MergeResult {
  lw_outputs outputs;
  Axes out_axes, lse_axes;
  Range out_range, lse_range;
};

lw_status check_result(const lw_problem& p, MergeResult& result) {
  const lw_outputs& outputs = result.outputs;
  const bool ragged = p.q_layout == LW_LAYOUT_RAGGED;
  const int64_t outer = ragged ? 1 : p.batch;
  const int64_t rows = ragged ? p.total_q : p.q_len;
  result.out_axes = {{outer, p.q_heads, rows, p.v_dim}};
  result.lse_axes = {{outer, p.q_heads, rows, 1}};
  if (!all_zero(outputs.reserved)) return unknown_field("outputs");
  if (outputs.state_max.data != nullptr || outputs.state_sum.data != nullptr || outputs.state_acc.data != nullptr) {
    return failure(LW_INVALID_ARGUMENT, "a state is asked for; lw_merge makes out and lse alone");
  }
  NamedTensor tensors[] = {{"out", outputs.out, LW_TYPE_F32, result.out_axes},
                           {"lse", outputs.lse, LW_TYPE_F32, result.lse_axes, outputs.lse.data != nullptr}};
  if (const lw_status s = check_tensors(nullptr, 0, tensors, 2, Range{}); s.code != LW_OK) return s;
  result.out_range = tensors[0].range;
  result.lse_range = tensors[1].range;
  return ok();
}

// The result may lie over a part element for element: a row's parts are read before the row is written.
bool same_elements(const lw_const_tensor& part, const lw_tensor& result, const Axes& axes) {
  for (int axis = 0; axis < 4; ++axis) {
    if (axes.size[axis] > 1 && part.stride[axis] != result.stride[axis]) return false;
  }
  return part.data == result.data;
}

// `own`: the result that a tensor of this name and these axes may lie over.
lw_status check_part(const char* name, const lw_const_tensor& part, const Axes& axes, const lw_tensor& own,
                     const MergeResult& result) {
  if (!all_zero(part.reserved)) return unknown_field(name);
  Range range;
  if (const lw_status s = check_tensor(name, part.data, part.type, LW_TYPE_F32, part.stride, axes, range);
      s.code != LW_OK)
    return s;
  const struct {
    const char* name;
    const lw_tensor& tensor;
    const Range& range;
  } results[] = {{"out", result.outputs.out, result.out_range}, {"lse", result.outputs.lse, result.lse_range}};
  for (const auto& r : results) {
    if (!overlaps(r.range, range) || (&r.tensor == &own && same_elements(part, own, axes))) continue;
    return failure(LW_INVALID_ARGUMENT, "%s overlaps %s and is not the same tensor", r.name, name);
  }
  return ok();
}

lw_status check_merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses,
                      int32_t count, const lw_outputs* merged, MergeResult& result) {
  lw_problem p;
  if (const lw_status s = check_problem(problem, p); s.code != LW_OK) return s;
  if (const lw_status s = copy_struct("outputs", merged, result.outputs); s.code != LW_OK) return s;
  if (count < 1 || count > LW_MAX_PARTS) return invalid_size("count", count, 1, LW_MAX_PARTS);
  if (outs == nullptr || lses == nullptr)
    return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", outs == nullptr ? "outs" : "lses");
  if (const lw_status s = check_result(p, result); s.code != LW_OK) return s;
  const lw_outputs& own = result.outputs;
  char name[32];
  for (int32_t i = 0; i < count; ++i) {
    std::snprintf(name, sizeof name, "outs[%d]", i);
    if (const lw_status s = check_part(name, outs[i], result.out_axes, own.out, result); s.code != LW_OK) return s;
    std::snprintf(name, sizeof name, "lses[%d]", i);
    if (const lw_status s = check_part(name, lses[i], result.lse_axes, own.lse, result); s.code != LW_OK) return s;
  }
  return ok();
}

lw_status check_append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                       const lw_const_tensor* rows, int64_t tokens, const int32_t* slots) {
  if (cache == nullptr || rows == nullptr)
    return failure(LW_INVALID_ARGUMENT, "%s is a null pointer", cache == nullptr ? "cache" : "rows");
  const NamedSize sizes[] = {{"pages", pages, 0, kMaxLength},
                             {"page_size", page_size, 1, kMaxLength},
                             {"heads", heads, 1, kMaxLength},
                             {"dim", dim, 1, kMaxDim},
                             {"tokens", tokens, 0, kMaxLength}};
  if (const lw_status s = check_sizes(sizes); s.code != LW_OK) return s;
  if (!is_float_type(cache->type)) {
    return failure(LW_INVALID_ARGUMENT,
                   "cache.type is %s (%d); allowed is LW_TYPE_F32 (1), LW_TYPE_BF16 (2) or LW_TYPE_F16 (3)",
                   type_name(cache->type), cache->type);
  }
  if (tokens > 0 && slots == nullptr) return failure(LW_INVALID_ARGUMENT, "slots is a null pointer");
  if (const lw_status s = check_alignment("slots", slots); s.code != LW_OK) return s;
  const Axes cache_axes = {{pages, heads, page_size, dim}};
  const Axes row_axes = {{1, heads, tokens, dim}};
  NamedTensor from = {"rows", *rows, cache->type, row_axes};
  NamedTensor to = {"cache", *cache, cache->type, cache_axes};
  if (const lw_status s = check_tensors(&from, 1, &to, 1, Range{}); s.code != LW_OK) return s;
  const int64_t last = std::min(pages * page_size - 1, kMaxLength);
  for (int64_t t = 0; t < tokens; ++t) {
    if (slots[t] < -1 || slots[t] > last) {
      return failure(LW_INVALID_ARGUMENT, "slots[%lld] is %d; allowed is -1 (skip) ... %lld", static_cast<long long>(t),
                     slots[t], static_cast<long long>(last));
    }
  }
  return ok();
}

}  // namespace

lw_status merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses, int32_t count,
                const lw_outputs* merged) {
  MergeResult result;
  if (const lw_status s = check_merge(problem, outs, lses, count, merged, result); s.code != LW_OK) return s;
  int64_t target = 0;
  if (const lw_status s = choose_target(nullptr, target); s.code != LW_OK) return s;
  const KernelTable kernels = kernels_for(target);
  const FpEnvironment environment;

  const lw_outputs& to = result.outputs;
  const auto [outer, heads, rows, v_dim] = result.out_axes.size;
  const float* out[LW_MAX_PARTS];
  int64_t dim_stride[LW_MAX_PARTS];
  float lse[LW_MAX_PARTS];
  for (int64_t b = 0; b < outer; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int32_t part = 0; part < count; ++part) {
          out[part] = static_cast<const float*>(outs[part].data) + offset_of(outs[part], b, h, i);
          dim_stride[part] = outs[part].stride[3];
          lse[part] = static_cast<const float*>(lses[part].data)[offset_of(lses[part], b, h, i)];
        }
        PartialRows row;
        row.count = count;
        row.out = out;
        row.dim_stride = dim_stride;
        row.lse = lse;
        row.v_dim = v_dim;
        row.merged_out = static_cast<float*>(to.out.data) + offset_of(to.out, b, h, i);
        row.merged_dim_stride = to.out.stride[3];
        if (to.lse.data != nullptr) row.merged_lse = static_cast<float*>(to.lse.data) + offset_of(to.lse, b, h, i);
        kernels.merge_partials(row);
      }
    }
  }
  return ok();
}

lw_status append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                 const lw_const_tensor* rows, int64_t tokens, const int32_t* slots) {
  if (const lw_status s = check_append(cache, pages, page_size, heads, dim, rows, tokens, slots); s.code != LW_OK)
    return s;
  const size_t element = static_cast<size_t>(type_size(cache->type));
  const bool contiguous = cache->stride[3] == 1 && rows->stride[3] == 1;
  for (int64_t t = 0; t < tokens; ++t) {
    if (slots[t] < 0) continue;
    const int64_t page = slots[t] / page_size;
    const int64_t token = slots[t] % page_size;
    for (int64_t h = 0; h < heads; ++h) {
      char* to = static_cast<char*>(cache->data) + offset_of(*cache, page, h, token) * static_cast<int64_t>(element);
      const char* from =
          static_cast<const char*>(rows->data) + offset_of(*rows, 0, h, t) * static_cast<int64_t>(element);
      if (contiguous) {
        std::memcpy(to, from, static_cast<size_t>(dim) * element);
        continue;
      }
      for (int64_t c = 0; c < dim; ++c) {
        std::memcpy(to + c * cache->stride[3] * static_cast<int64_t>(element),
                    from + c * rows->stride[3] * static_cast<int64_t>(element), element);
      }
    }
  }
  return ok();
}

}  // namespace lanewise
