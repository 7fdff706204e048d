#include "run.hpp"

#include <algorithm>
#include <iterator>

#include "check.hpp"
#include "plan.hpp"
#include "problem.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

lw_status check_run_tensors(const Run& run, const Range& workspace) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const lw_outputs& out = run.outputs;
  const RunAxes axes = axes_of(run);
  lw_const_tensor mask = in.mask;
  if (p.mask_type == LW_TYPE_BITS) mask.stride[3] = 1;
  const bool state_in = in.state_max.data != nullptr || in.state_sum.data != nullptr || in.state_acc.data != nullptr;
  const bool state_out =
      out.state_max.data != nullptr || out.state_sum.data != nullptr || out.state_acc.data != nullptr;
  if (!state_out && out.out.data == nullptr && !is_empty(axes.out)) {
    return failure(LW_INVALID_ARGUMENT, "out.data is a null pointer, and no state is asked for either");
  }
  NamedTensor inputs[] = {{"q", in.q, p.q_type, axes.q},
                          {"k", in.k, p.k_type, axes.k},
                          {"v", in.v, p.v_type, axes.v},
                          {"mask", mask, p.mask_type, axes.mask, p.mask_type != LW_TYPE_NONE},
                          {"bias", in.bias, p.bias_type, axes.bias, p.bias_type != LW_TYPE_NONE},
                          {"state_max (input)", in.state_max, LW_TYPE_F32, axes.rows, state_in},
                          {"state_sum (input)", in.state_sum, LW_TYPE_F32, axes.rows, state_in},
                          {"state_acc (input)", in.state_acc, LW_TYPE_F32, axes.out, state_in}};
  NamedTensor outputs[] = {{"out", out.out, p.out_type, axes.out, out.out.data != nullptr},
                           {"lse", out.lse, LW_TYPE_F32, axes.rows, out.lse.data != nullptr},
                           {"state_max", out.state_max, LW_TYPE_F32, axes.rows, state_out},
                           {"state_sum", out.state_sum, LW_TYPE_F32, axes.rows, state_out},
                           {"state_acc", out.state_acc, LW_TYPE_F32, axes.out, state_out}};
  return check_tensors(inputs, static_cast<int>(std::size(inputs)), outputs, static_cast<int>(std::size(outputs)),
                       workspace);
}

lw_status check_array(const char* name, const int32_t* values, int64_t n, int64_t low, int64_t high) {
  if (values == nullptr) return ok();
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] < low || values[i] > high) {
      return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d; allowed is %lld ... %lld", name, static_cast<long long>(i),
                     values[i], static_cast<long long>(low), static_cast<long long>(high));
    }
  }
  return ok();
}

lw_status run_size(const char* name, int64_t given, int64_t capacity, int64_t& resolved) {
  if (given < -1 || given > capacity) {
    return failure(LW_INVALID_ARGUMENT, "%s is %lld; allowed is 0 ... %lld (the plan's capacity), or -1 for all of it",
                   name, static_cast<long long>(given), static_cast<long long>(capacity));
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
      return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d after %d; a sequence has 0 ... %lld rows", name,
                     static_cast<long long>(i + 1), offsets[i + 1], offsets[i], static_cast<long long>(longest));
    }
  }
  if (offsets[n] > total) {
    return failure(LW_INVALID_ARGUMENT, "%s[%lld] is %d; the plan's capacity is %lld rows", name,
                   static_cast<long long>(n), offsets[n], static_cast<long long>(total));
  }
  return ok();
}

// Pages of key rows [begin, end) of sequence b must exist.
lw_status check_pages(const Run& run, int64_t b, int64_t begin, int64_t end) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  for (int64_t page = begin / p.page_size; begin < end && page <= (end - 1) / p.page_size; ++page) {
    const int32_t id = in.page_table[b * in.page_table_stride[0] + page * in.page_table_stride[1]];
    if (id < 0 || id >= p.page_count) {
      return failure(LW_INVALID_ARGUMENT, "page_table[%lld][%lld] is %d and holds visible keys; allowed is 0 ... %lld",
                     static_cast<long long>(b), static_cast<long long>(page), id,
                     static_cast<long long>(p.page_count - 1));
    }
  }
  return ok();
}

// Every page that holds a key which causal, window, prefix and length let some row of its sequence see must exist.
lw_status check_pages(const Run& run) {
  const Rules rules = rules_of(run.problem, run.inputs.q_positions != nullptr);
  for (int64_t b = 0; b < run.problem.batch; ++b) {
    const int64_t rows = run.q_len(b), start = run.kv_start(b), keys = run.kv_len(b);
    if (rows == 0) continue;
    if (const lw_status s = check_pages(run, b, 0, prefix_of(rules, start, keys)); s.code != LW_OK) return s;
    const int32_t* positions = run.q_positions(b);
    int64_t begin = 0, end = 0, unused = 0;
    if (positions == nullptr) {  // bounds never fall with rows
      window_of(rules, run.q_offset(b) - start, keys, begin, unused);
      window_of(rules, run.q_offset(b) + rows - 1 - start, keys, unused, end);
      if (const lw_status s = check_pages(run, b, begin, end); s.code != LW_OK) return s;
      continue;
    }
    int64_t seen_begin = 0, seen_end = 0;  // the last keys looked at: rows are mostly alike
    for (int64_t i = 0; i < rows; ++i) {
      window_of(rules, positions[i * run.inputs.q_positions_stride[1]] - start, keys, begin, end);
      if (begin >= end || (begin >= seen_begin && end <= seen_end)) continue;
      if (const lw_status s = check_pages(run, b, begin, end); s.code != LW_OK) return s;
      const bool together = begin <= seen_end && end >= seen_begin;
      seen_begin = together ? std::min(begin, seen_begin) : begin;
      seen_end = together ? std::max(end, seen_end) : end;
    }
  }
  return ok();
}

// Tiles of a block-sparse mask: offsets that never fall, column numbers that ascend within the keys.
lw_status check_block_mask(const Run& run) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const int64_t columns = (p.kv_len + p.block_mask_keys - 1) / p.block_mask_keys;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t tile_rows = (run.q_len(b) + p.block_mask_rows - 1) / p.block_mask_rows;
    for (int64_t h = 0; h < p.q_heads; ++h) {
      if ((b > 0 && in.block_indptr_stride[0] == 0) || (h > 0 && in.block_indptr_stride[1] == 0)) continue;
      const int32_t* indptr = in.block_indptr + b * in.block_indptr_stride[0] + h * in.block_indptr_stride[1];
      for (int64_t r = 0; r < tile_rows; ++r) {
        if (indptr[r] < 0 || indptr[r + 1] < indptr[r]) {
          return failure(LW_INVALID_ARGUMENT,
                         "block_indptr of tile row %lld is %d ... %d; allowed is offsets >= 0 that never fall",
                         static_cast<long long>(r), indptr[r], indptr[r + 1]);
        }
        for (int64_t n = indptr[r]; n < indptr[r + 1]; ++n) {
          const int64_t least = n > indptr[r] ? int64_t{in.block_indices[n - 1]} + 1 : 0;
          if (in.block_indices[n] < least || in.block_indices[n] >= columns) {
            return failure(LW_INVALID_ARGUMENT,
                           "block_indices[%lld] is %d; allowed is %lld ... %lld: tile columns ascend within kv_len",
                           static_cast<long long>(n), in.block_indices[n], static_cast<long long>(least),
                           static_cast<long long>(columns - 1));
          }
        }
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
    if (const lw_status s = check_offsets("cu_seqlens_q", in.cu_seqlens_q, n, p.q_len, p.total_q); s.code != LW_OK)
      return s;
  }
  if (in.cu_seqlens_kv != nullptr) {
    if (const lw_status s = check_offsets("cu_seqlens_kv", in.cu_seqlens_kv, n, p.kv_len, p.total_kv); s.code != LW_OK)
      return s;
    // A sequence may use less than its room.
    for (int64_t b = 0; in.kv_lengths != nullptr && b < n; ++b) {
      const int64_t room = int64_t{in.cu_seqlens_kv[b + 1]} - in.cu_seqlens_kv[b];
      if (in.kv_lengths[b] < 0 || in.kv_lengths[b] > room) {
        return failure(LW_INVALID_ARGUMENT, "kv_lengths[%lld] is %d; its sequence has room for 0 ... %lld keys",
                       static_cast<long long>(b), in.kv_lengths[b], static_cast<long long>(room));
      }
    }
  }
  if (const lw_status s = check_array("q_lengths", in.q_lengths, n, 0, p.q_len); s.code != LW_OK) return s;
  if (const lw_status s = check_array("kv_lengths", in.kv_lengths, n, 0, p.kv_len); s.code != LW_OK) return s;
  if (const lw_status s = check_array("kv_starts", in.kv_starts, n, 0, kMaxLength); s.code != LW_OK) return s;
  if (in.state_max.data != nullptr) {
    for (int64_t b = 0; b < n; ++b) {
      if (run.kv_start(b) % kSpanKeys != 0) {
        return failure(LW_INVALID_ARGUMENT,
                       "kv_starts[%lld] is %lld; a run that continues from a state starts at a multiple of %lld",
                       static_cast<long long>(b), static_cast<long long>(run.kv_start(b)),
                       static_cast<long long>(kSpanKeys));
      }
    }
  }
  if (in.block_indptr != nullptr) {
    if (const lw_status s = check_block_mask(run); s.code != LW_OK) return s;
  }
  if (in.page_table != nullptr) return check_pages(run);
  return ok();
}

}  // namespace

RunAxes axes_of(const Run& run) {
  const lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  const bool ragged_q = p.q_layout == LW_LAYOUT_RAGGED;
  const bool ragged_kv = p.kv_layout == LW_LAYOUT_RAGGED;
  const bool paged = p.kv_layout == LW_LAYOUT_PAGED;
  const int64_t q_outer = ragged_q ? std::min<int64_t>(p.batch, 1) : p.batch;
  const int64_t q_rows = !ragged_q ? p.q_len : p.batch > 0 ? in.cu_seqlens_q[p.batch] : 0;
  const int64_t kv_outer = paged ? p.page_count : ragged_kv ? std::min<int64_t>(p.batch, 1) : p.batch;
  const int64_t kv_rows = paged ? p.page_size : !ragged_kv ? p.kv_len : p.batch > 0 ? in.cu_seqlens_kv[p.batch] : 0;
  const int64_t mask_keys = p.mask_tail > 0 ? p.mask_tail : p.kv_len;
  RunAxes axes;
  axes.q = {{q_outer, p.q_heads, q_rows, p.qk_dim}};
  axes.k = {{kv_outer, p.kv_heads, kv_rows, p.qk_dim}};
  axes.v = {{kv_outer, p.kv_heads, kv_rows, p.v_dim}};
  axes.out = {{q_outer, p.q_heads, q_rows, p.v_dim}};
  axes.rows = {{q_outer, p.q_heads, q_rows, 1}};
  axes.mask = {{q_outer, p.q_heads, q_rows, p.mask_type == LW_TYPE_BITS ? (mask_keys + 7) / 8 : mask_keys}};
  axes.bias = {{q_outer, p.q_heads, q_rows, p.kv_len}};
  return axes;
}

lw_status check_inputs(const lw_problem& planned, const lw_inputs* inputs, bool scores_alone, Run& run) {
  if (const lw_status s = copy_struct("inputs", inputs, run.inputs); s.code != LW_OK) return s;
  run.problem = planned;
  lw_problem& p = run.problem;
  const lw_inputs& in = run.inputs;
  if (const lw_status s = run_size("batch", in.batch, planned.batch, p.batch); s.code != LW_OK) return s;
  if (const lw_status s = run_size("q_len", in.q_len, planned.q_len, p.q_len); s.code != LW_OK) return s;
  if (const lw_status s = run_size("kv_len", in.kv_len, planned.kv_len, p.kv_len); s.code != LW_OK) return s;
  if (in.overrides & ~(LW_OVERRIDE_SCALE | LW_OVERRIDE_SOFTCAP | LW_OVERRIDE_WINDOW | LW_OVERRIDE_Q_OFFSET)) {
    return failure(LW_INVALID_ARGUMENT, "overrides is %d; allowed is a sum of LW_OVERRIDE_* bits (0 ... 15)",
                   in.overrides);
  }
  if (in.checks != LW_CHECKS_FULL && in.checks != LW_CHECKS_TRUSTED) return invalid_size("checks", in.checks, 0, 1);
  if (!all_zero(in.reserved)) return unknown_field("inputs");
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
  const struct {
    const char* name;
    const void* pointer;
  } numbers[] = {{"q_lengths", in.q_lengths},   {"kv_lengths", in.kv_lengths},     {"q_offsets", in.q_offsets},
                 {"kv_starts", in.kv_starts},   {"cu_seqlens_q", in.cu_seqlens_q}, {"cu_seqlens_kv", in.cu_seqlens_kv},
                 {"page_table", in.page_table}, {"q_positions", in.q_positions},   {"alibi_slopes", in.alibi_slopes},
                 {"sinks", in.sinks},           {"block_indptr", in.block_indptr}, {"block_indices", in.block_indices}};
  uintptr_t bits = 0;
  for (const auto& array : numbers) bits |= reinterpret_cast<uintptr_t>(array.pointer);
  for (int i = 0; bits % 4 != 0; ++i) {
    if (const lw_status s = check_alignment(numbers[i].name, numbers[i].pointer); s.code != LW_OK) return s;
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
                {"sinks", in.sinks, p.sinks != 0, !scores_alone, "sinks = 1"},
                {"block_indptr", in.block_indptr, p.block_mask_rows > 0, true, "block_mask_rows"},
                {"block_indices", in.block_indices, p.block_mask_rows > 0, true, "block_mask_rows"}};
  for (const auto& array : arrays) {
    if (array.pointer != nullptr && !array.planned) {
      return failure(LW_INVALID_ARGUMENT, "%s is given; that needs %s in the plan's problem", array.name, array.field);
    }
    if (array.pointer == nullptr && array.planned && array.required && p.batch > 0) {
      return failure(LW_INVALID_ARGUMENT, "%s is a null pointer; the plan's problem has %s", array.name, array.field);
    }
  }
  return in.checks == LW_CHECKS_FULL ? check_arrays(run) : ok();
}

lw_status check_run(const lw_problem& planned, const lw_inputs* inputs, const lw_outputs* outputs,
                    const Range& workspace, Run& run) {
  if (const lw_status s = copy_struct("outputs", outputs, run.outputs); s.code != LW_OK) return s;
  if (!all_zero(run.outputs.reserved)) return unknown_field("outputs");
  if (const lw_status s = check_inputs(planned, inputs, false, run); s.code != LW_OK) return s;
  return check_run_tensors(run, workspace);
}

lw_status check_workspace(const void* workspace, int64_t size, int64_t needed, int32_t threads) {
  if (needed == 0) return ok();
  if (workspace == nullptr)
    return failure(LW_INVALID_ARGUMENT, "workspace is a null pointer; %lld bytes are needed",
                   static_cast<long long>(needed));
  if (size < needed) {
    return failure(LW_INVALID_ARGUMENT, "workspace_size is %lld; %d thread%s need%s %lld", static_cast<long long>(size),
                   threads, threads == 1 ? "" : "s", threads == 1 ? "s" : "", static_cast<long long>(needed));
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
  if (const lw_status s = copy_struct("executor", executor, checked); s.code != LW_OK) return s;
  if (checked.kind < LW_EXECUTOR_OPENMP || checked.kind > LW_EXECUTOR_CALLBACK)
    return invalid_size("executor.kind", checked.kind, 0, 2);
  if (checked.threads < 0) return invalid_size("executor.threads", checked.threads, 0, INT32_MAX);
  if (checked.kind == LW_EXECUTOR_CALLBACK && checked.parallel_for == nullptr) {
    return failure(LW_INVALID_ARGUMENT, "executor.parallel_for is a null pointer; LW_EXECUTOR_CALLBACK needs it");
  }
  return ok();
}

}  // namespace lanewise
