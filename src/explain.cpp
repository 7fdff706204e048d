#include "explain.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "check.hpp"
#include "plan.hpp"
#include "problem.hpp"
#include "status.hpp"
#include "targets.hpp"
#include "work.hpp"

namespace lanewise {
namespace {

bool keys_in_lanes(const lw_plan& plan) {
  return plan.problem.q_len * group_size(plan.problem) <= plan.kernels.few_rows;
}

int64_t panel_count(const lw_plan& plan, int32_t threads) {
  const lw_problem& p = plan.problem;
  return saturating_product(p.batch, p.kv_heads,
                            panels_of(plan, p.q_len, panel_tiles_of(plan, p, std::max(threads, 1))).count);
}

bool is_native(const lw_plan& plan) { return plan.problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16; }

lw_explanation explanation_of(const lw_plan& plan, int32_t threads) {
  const lw_problem& p = plan.problem;
  lw_explanation explanation = lw_explanation();
  explanation.target = target_name(plan.target);
  explanation.kernel = keys_in_lanes(plan) ? "keys-in-lanes" : "rows-in-lanes";
  explanation.arithmetic = is_native(plan) ? "native_bf16" : "canonical";
  explanation.note =
      plan.kernels.fma ? "" : "this target has no fused multiply-add: results differ in bits from targets that have";
  explanation.lanes = static_cast<int32_t>(plan.kernels.lanes);
  explanation.tile_rows = static_cast<int32_t>(plan.kernels.lanes * plan.kernels.rows_max_vectors);
  explanation.tile_keys = static_cast<int32_t>(plan.kernels.rows_tile_keys);
  explanation.phases = 2;
  explanation.row_tiles = panels_of(plan, p.q_len, 1).count;
  explanation.tasks = tasks_at_capacity(plan, std::max(threads, 1));
  explanation.workspace = workspace_size(plan, threads);
  return explanation;
}

// Text that may be longer than the memory for it: what fits is written, the length counted on.
class Text {
 public:
  Text(char* memory, int64_t size) : memory_(memory), size_(std::max<int64_t>(size, 0)) {
    if (size_ > 0) memory_[0] = '\0';
  }
  __attribute__((format(printf, 2, 3))) void line(const char* pattern, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(line, sizeof line - 1, pattern, arguments);
    va_end(arguments);
    std::strcat(line, "\n");
    const int64_t length = static_cast<int64_t>(std::strlen(line));
    if (length_ < size_ - 1) {
      const int64_t fits = std::min(length, size_ - 1 - length_);
      std::memcpy(memory_ + length_, line, static_cast<size_t>(fits));
      memory_[length_ + fits] = '\0';
    }
    length_ += length;
  }
  int64_t length() const { return length_; }

 private:
  char* memory_;
  int64_t size_;
  int64_t length_ = 0;
};

long long number(int64_t value) { return static_cast<long long>(value); }

void target_reasons(const lw_plan& plan, Text& text) {
  const int64_t best = best_target();
  const char* name = target_name(plan.target);
  if (plan.target != best) {
    text.line("target: %s, as asked for by option or LANEWISE_TARGET; the best of this CPU is %s", name,
              target_name(best));
    text.line("faster: target %s, with vectors of %lld float32", target_name(best), number(kernels_for(best).lanes));
  } else if (target_at(0) != best) {
    text.line("target: %s, the best that this CPU runs (%s is compiled in, but this CPU lacks it)", name,
              target_name(target_at(0)));
  } else {
    text.line("target: %s, the best that is compiled in", name);
  }
  if (!plan.kernels.fma) {
    text.line("faster: a CPU with fused multiply-add; %s multiplies and adds in two steps, and its bits differ", name);
  }
}

void kernel_reasons(const lw_plan& plan, Text& text) {
  const lw_problem& p = plan.problem;
  const KernelTable& k = plan.kernels;
  const Panels panels = panels_of(plan, p.q_len, 1);
  const char* rows = "rows of a kv head (queries x heads that share it)";
  if (keys_in_lanes(plan)) {
    text.line("kernel: keys-in-lanes, since %lld %s are at most %lld: too few to fill lanes, so keys do",
              number(panels.rows), rows, number(k.few_rows));
    text.line("tile: %lld keys a vector; all %lld rows share each load of k and v", number(k.lanes),
              number(panels.rows));
    return;
  }
  text.line("kernel: rows-in-lanes, since %lld %s are more than %lld", number(panels.rows), rows, number(k.few_rows));
  text.line("tile: %lld rows x %lld keys: %lld vectors of %lld rows, so %lld accumulators stay in registers",
            number(k.rows_max_vectors * k.lanes), number(k.rows_tile_keys), number(k.rows_max_vectors), number(k.lanes),
            number(k.rows_max_vectors * k.rows_tile_keys));
  // Sizes may be absurd: a hundred times the rows need not fit.
  const int64_t lanes = std::max<int64_t>(1, panels.vectors * k.lanes);
  const int64_t in_use = static_cast<int64_t>(100.0 * static_cast<double>(panels.rows) / static_cast<double>(lanes));
  text.line("lanes: %lld %% in use (%lld rows in %lld vectors of %lld)", number(in_use), number(panels.rows),
            number(panels.vectors), number(k.lanes));
  if (in_use < 80) {
    text.line("faster: more queries in one call; lanes without a row compute for nothing");
  }
}

void split_reasons(const lw_plan& plan, int32_t threads, Text& text) {
  const lw_problem& p = plan.problem;
  threads = std::max(threads, 1);
  const int64_t panels = panel_count(plan, threads);
  const int64_t panel_tiles = panel_tiles_of(plan, p, threads);
  const int64_t tasks = tasks_at_capacity(plan, threads);
  const int32_t worth = threads_worth_waking(multiply_adds_at_capacity(p), threads, plan.work_per_thread);
  if (threads == 1) {
    text.line("split: %lld panels of up to %lld row tiles, one after another on one thread", number(panels),
              number(panel_tiles));
  } else if (worth < threads) {
    text.line("split: %lld panels; run by at most %d of %d threads: one more is woken for each million multiply-adds",
              number(panels), worth, threads);
  } else if (tasks == panels) {
    text.line("split: %lld panels of up to %lld row tiles for %d threads; none is cut over keys", number(panels),
              number(panel_tiles), threads);
  } else {
    text.line(
        "split: %lld panels are few for %d threads, so they are cut over keys into %lld tasks, of whole blocks "
        "(%lld) or spans (%lld keys), merged by whichever task finishes last",
        number(panels), threads, number(tasks), number(kBlockKeys), number(kSpanKeys));
  }
  const int64_t most = saturating_product(panels, p.kv_len / kBlockKeys + 1, 1);
  if (most > 0 && most < threads) {
    text.line("faster: a larger batch; there are never more than %lld tasks for %d threads", number(most), threads);
  }
}

void rule_reasons(const lw_plan& plan, Text& text) {
  const lw_problem& p = plan.problem;
  if (p.mask_type != LW_TYPE_NONE || p.bias_type != LW_TYPE_NONE) {
    text.line("faster: causal, window, lengths or a block mask where the %s says the same: those skip keys unread",
              p.mask_type != LW_TYPE_NONE ? "mask" : "bias");
  }
}

void type_reasons(const lw_plan& plan, Text& text) {
  const lw_problem& p = plan.problem;
  const bool bf16 = p.q_type == LW_TYPE_BF16 && p.k_type == LW_TYPE_BF16 && p.v_type == LW_TYPE_BF16;
  if (is_native(plan)) {
    text.line(
        "arithmetic: native_bf16, the CPU's bf16 pair dot: a row has the same bits for any threads, batch and chunks "
        "on "
        "targets of its class");
  } else {
    text.line("arithmetic: canonical: a row has the same bits for any threads, batch, chunks and target with FMA");
  }
  if (!is_native(plan) && bf16 && plan.kernels.native_rows_in_lanes != nullptr) {
    text.line(
        "faster: arithmetic native_bf16 (or best), at other bits and an error of up to 2^-8 of the largest value");
  } else if (!is_native(plan) && bf16) {
    text.line("arithmetic native_bf16 is not to be had: the target %s has no bf16 pair dot", target_name(plan.target));
  }
  if (keys_in_lanes(plan) && p.k_type == LW_TYPE_F32) {
    text.line("faster: k and v in bf16 or f16, half as much to read where they come from memory");
  }
}

void tensor_reasons(const lw_plan& plan, const char* name, const lw_const_tensor& tensor, int64_t dim, Text& text) {
  const lw_problem& p = plan.problem;
  const int64_t element = tensor.type == LW_TYPE_F32 ? 4 : 2;
  if (tensor.stride[3] != 1 && dim > 1) {
    text.line("faster: %s with a contiguous last axis (its stride is %lld, so each block is copied first)", name,
              number(tensor.stride[3]));
  } else if (p.kv_layout == LW_LAYOUT_PAGED && !keys_in_lanes(plan)) {
    text.line("%s: each block is copied out of its pages of %lld tokens first; about a row tile's work a panel", name,
              number(p.page_size));
  } else if (!keys_in_lanes(plan) && must_pack(tensor) && element == 4 && p.kv_len > 1) {
    text.line(
        "faster: %s with rows not %lld bytes apart, a multiple of 4096: they share cache sets, so each block is "
        "copied first; heads before tokens, or 16 elements of padding, avoid that",
        name, number(tensor.stride[2] * element));
  }
  const bool whole_lines = tensor.stride[2] * element % 64 == 0;
  if (whole_lines && reinterpret_cast<uintptr_t>(tensor.data) % 64 != 0) {
    text.line("faster: %s at an address that is a multiple of 64 (pages too); now every vector crosses a cache line",
              name);
  }
}

}  // namespace

int64_t plan_reasons(const lw_plan& plan, const lw_inputs* inputs, int32_t threads, char* memory, int64_t size) {
  Text text(memory, size);
  target_reasons(plan, text);
  kernel_reasons(plan, text);
  split_reasons(plan, threads, text);
  rule_reasons(plan, text);
  type_reasons(plan, text);
  if (inputs != nullptr && inputs->struct_size >= kOldestSize<lw_inputs>) {
    tensor_reasons(plan, "k", inputs->k, plan.problem.qk_dim, text);
    tensor_reasons(plan, "v", inputs->v, plan.problem.v_dim, text);
  }
  return text.length();
}

lw_status explain_plan(const lw_plan& plan, int32_t threads, lw_explanation* explanation) {
  if (explanation == nullptr) return failure(LW_INVALID_ARGUMENT, "explanation is a null pointer");
  const int64_t size = explanation->struct_size;
  if (const lw_status s = check_struct_size<lw_explanation>("explanation", size); s.code != LW_OK) return s;
  const lw_explanation filled = explanation_of(plan, threads);
  // As much as the caller's struct holds; what only a newer one has stays zero.
  std::memset(static_cast<void*>(explanation), 0, static_cast<size_t>(size));
  std::memcpy(static_cast<void*>(explanation), &filled, std::min(sizeof filled, static_cast<size_t>(size)));
  explanation->struct_size = size;
  return ok();
}

}  // namespace lanewise
