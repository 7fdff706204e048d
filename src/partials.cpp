#include "partials.hpp"

#include <cstring>

#include "fp_environment.hpp"
#include "kernels/kernel_table.hpp"
#include "problem.hpp"
#include "status.hpp"
#include "targets.hpp"

namespace lanewise {
namespace {

template <class Tensor>
int64_t offset_of(const Tensor& t, int64_t b, int64_t h, int64_t i) {
  return b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
}

}  // namespace

lw_status merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses, int32_t count,
                const lw_outputs* merged) {
  lw_problem p;
  lw_outputs to;
  if (const lw_status s = check_merge(problem, outs, lses, count, merged, p, to); s.code != LW_OK) return s;
  int64_t target = 0;
  if (const lw_status s = choose_target(nullptr, target); s.code != LW_OK) return s;
  const KernelTable kernels = kernels_for(target);
  const FpEnvironment environment;

  const bool ragged = p.q_layout == LW_LAYOUT_RAGGED;
  const int64_t outer = ragged ? 1 : p.batch;
  const int64_t rows = ragged ? p.total_q : p.q_len;
  const float* out[LW_MAX_PARTS];
  int64_t dim_stride[LW_MAX_PARTS];
  float lse[LW_MAX_PARTS];
  for (int64_t b = 0; b < outer; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
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
        row.v_dim = p.v_dim;
        row.merged_out = static_cast<float*>(to.out.data) + offset_of(to.out, b, h, i);
        row.merged_dim_stride = to.out.stride[3];
        if (to.lse.data != nullptr) row.merged_lse = static_cast<float*>(to.lse.data) + offset_of(to.lse, b, h, i);
        kernels.merge_partials(row);
      }
    }
  }
  return ok();
}

lw_status append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim, const lw_const_tensor* rows,
                 int64_t tokens, const int32_t* slots) {
  if (const lw_status s = check_append(cache, pages, page_size, heads, dim, rows, tokens, slots); s.code != LW_OK) return s;
  const size_t element = static_cast<size_t>(type_size(cache->type));
  const bool contiguous = cache->stride[3] == 1 && rows->stride[3] == 1;
  for (int64_t t = 0; t < tokens; ++t) {
    if (slots[t] < 0) continue;
    const int64_t page = slots[t] / page_size;
    const int64_t token = slots[t] % page_size;
    for (int64_t h = 0; h < heads; ++h) {
      char* to = static_cast<char*>(cache->data) + offset_of(*cache, page, h, token) * static_cast<int64_t>(element);
      const char* from = static_cast<const char*>(rows->data) + offset_of(*rows, 0, h, t) * static_cast<int64_t>(element);
      if (contiguous) {
        std::memcpy(to, from, static_cast<size_t>(dim) * element);
        continue;
      }
      for (int64_t c = 0; c < dim; ++c) {
        std::memcpy(to + c * cache->stride[3] * static_cast<int64_t>(element), from + c * rows->stride[3] * static_cast<int64_t>(element),
                    element);
      }
    }
  }
  return ok();
}

}  // namespace lanewise
