#include "fuzz_abi.hpp"

#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "fuzz_problem.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr int64_t kOdd[] = {
    0,         1,         -1,        2,         7,         64,        65536,     65537,
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 32, 1LL << 40, (1LL << 62) + 1};

// A status is one of the four codes, with a message exactly where it is an error.
std::string odd_status(const lw_status& status) {
  const bool ended = std::memchr(status.message, 0, sizeof status.message) != nullptr;
  if (status.code < LW_OK || status.code > LW_OUT_OF_MEMORY || !ended) return "a status that is none";
  if ((status.code == LW_OK) != (status.message[0] == 0)) return "code and message say different things";
  return "";
}

struct Wrong {
  const char* name;
  // Makes p wrong; false where this problem has no such thing.
  std::function<bool(Prepared& p, Draw& draw)> make;
};

int32_t* ints(const int32_t* array) { return const_cast<int32_t*>(array); }

// A number below `low` or above `high`.
int32_t outside(Draw& draw, int64_t low, int64_t high) {
  const int64_t below[] = {low - 1, INT32_MIN}, above[] = {high + 1, INT32_MAX};
  const bool fits = high < INT32_MAX;
  return static_cast<int32_t>(fits && draw.rarely(2) ? draw.one_of(above) : draw.one_of(below));
}

template <class Tensor>
bool misalign(Tensor& tensor) {
  if (!tensor.data || type_size(tensor.type) < 2) return false;
  using Byte = std::conditional_t<std::is_same_v<Tensor, lw_tensor>, uint8_t, const uint8_t>;
  tensor.data = static_cast<Byte*>(tensor.data) + 1;
  return true;
}

int64_t batch_of(const Prepared& p) { return p.inputs.batch >= 0 ? p.inputs.batch : p.problem.batch; }

bool has_elements(const Prepared& p) {
  const lw_inputs& in = p.inputs;
  const int64_t q_len = in.q_len >= 0 ? in.q_len : p.problem.q_len, kv = in.kv_len >= 0 ? in.kv_len : p.problem.kv_len;
  if (in.cu_seqlens_q && in.cu_seqlens_q[batch_of(p)] == 0) return false;
  if (in.cu_seqlens_kv && in.cu_seqlens_kv[batch_of(p)] == 0) return false;
  return batch_of(p) > 0 && q_len > 0 && kv > 0;
}

const std::vector<Wrong>& wrongs() {
  static const std::vector<Wrong> list = {
      {"inputs.struct_size",
       [](Prepared& p, Draw& d) {
         constexpr int64_t kSizes[] = {0, -1, 8, 100, 65537, INT64_MAX, INT64_MIN};
         return p.inputs.struct_size = d.one_of(kSizes), true;
       }},
      {"outputs.struct_size",
       [](Prepared& p, Draw& d) {
         constexpr int64_t kSizes[] = {0, -1, 8, 100, 65537, INT64_MAX, INT64_MIN};
         return p.outputs.struct_size = d.one_of(kSizes), true;
       }},
      {"inputs.reserved",
       [](Prepared& p, Draw& d) { return p.inputs.reserved[d.below(12)] = d.one_of(kOdd) | 1, true; }},
      {"outputs.reserved",
       [](Prepared& p, Draw& d) { return p.outputs.reserved[d.below(16)] = d.one_of(kOdd) | 1, true; }},
      {"k.reserved", [](Prepared& p, Draw&) { return p.inputs.k.reserved[0] = 1, true; }},
      {"batch", [](Prepared& p, Draw&) { return p.inputs.batch = p.problem.batch + 1, true; }},
      {"q_len", [](Prepared& p, Draw&) { return p.inputs.q_len = -2, true; }},
      {"kv_len", [](Prepared& p, Draw&) { return p.inputs.kv_len = INT64_MAX, true; }},
      {"overrides", [](Prepared& p, Draw& d) { return p.inputs.overrides = 16 << d.below(27), true; }},
      {"checks", [](Prepared& p, Draw&) { return p.inputs.checks = 2, true; }},
      {"scale",
       [](Prepared& p, Draw& d) {
         constexpr float kInf = std::numeric_limits<float>::infinity();
         constexpr float kScales[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 2e38f};
         return p.inputs.overrides = LW_OVERRIDE_SCALE, p.inputs.scale = d.one_of(kScales), true;
       }},
      {"softcap",
       [](Prepared& p, Draw& d) {
         constexpr float kCaps[] = {-1, 1e-7f, 1e7f, std::numeric_limits<float>::quiet_NaN()};
         return p.inputs.overrides = LW_OVERRIDE_SOFTCAP, p.inputs.softcap = d.one_of(kCaps), true;
       }},
      {"window",
       [](Prepared& p, Draw& d) {
         p.inputs.overrides = LW_OVERRIDE_WINDOW;
         (d.rarely(2) ? p.inputs.window_left : p.inputs.window_right) = d.rarely(2) ? -2 : INT64_MAX;
         return true;
       }},
      {"q_offset",
       [](Prepared& p, Draw& d) {
         constexpr int64_t kOffsets[] = {INT64_MIN, INT64_MAX, (1LL << 40) + 1};
         return p.inputs.overrides = LW_OVERRIDE_Q_OFFSET, p.inputs.q_offset = d.one_of(kOffsets), true;
       }},
      {"null q", [](Prepared& p, Draw&) { return p.inputs.q.data = nullptr, has_elements(p); }},
      {"null k", [](Prepared& p, Draw&) { return p.inputs.k.data = nullptr, has_elements(p); }},
      {"null v", [](Prepared& p, Draw&) { return p.inputs.v.data = nullptr, has_elements(p); }},
      {"null outputs", [](Prepared& p, Draw&) { return p.outputs = lw_outputs_default(), has_elements(p); }},
      {"misaligned input",
       [](Prepared& p, Draw& d) {
         lw_const_tensor* const tensors[] = {&p.inputs.q, &p.inputs.k, &p.inputs.v};
         return misalign(*d.one_of(tensors)) && has_elements(p);
       }},
      {"misaligned out", [](Prepared& p, Draw&) { return misalign(p.outputs.out) && has_elements(p); }},
      {"misaligned lse", [](Prepared& p, Draw&) { return misalign(p.outputs.lse) && has_elements(p); }},
      {"type of q",
       [](Prepared& p, Draw& d) { return p.inputs.q.type += static_cast<int32_t>(d.within(1, 99)), true; }},
      {"type of v",
       [](Prepared& p, Draw& d) { return p.inputs.v.type -= static_cast<int32_t>(d.within(1, 99)), true; }},
      {"type of out", [](Prepared& p, Draw&) { return p.outputs.out.type = LW_TYPE_BITS, true; }},
      {"out strides 0",
       [](Prepared& p, Draw&) {
         p.outputs.out.stride[1] = 0;
         return has_elements(p) && p.problem.q_heads > 1;
       }},
      {"stride of q",
       [](Prepared& p, Draw& d) {
         constexpr int64_t kStrides[] = {INT64_MAX, INT64_MIN, 1LL << 62, -(1LL << 62)};
         return p.inputs.q.stride[3] = d.one_of(kStrides), has_elements(p) && p.problem.qk_dim > 1;
       }},
      {"out is q",
       [](Prepared& p, Draw&) {
         p.outputs.out.data = const_cast<void*>(p.inputs.q.data);
         return has_elements(p) && p.problem.out_type == p.problem.q_type;
       }},
      {"lse is k",
       [](Prepared& p, Draw&) {
         p.outputs.lse.data = const_cast<void*>(p.inputs.k.data);
         for (int64_t& stride : p.outputs.lse.stride) stride = 0;
         return has_elements(p) && p.problem.k_type == LW_TYPE_F32 && p.inputs.k.data && p.outputs.lse.type;
       }},
      {"two of three states",
       [](Prepared& p, Draw& d) {
         lw_tensor* const states[] = {&p.outputs.state_max, &p.outputs.state_sum, &p.outputs.state_acc};
         lw_tensor& state = *d.one_of(states);
         if (!state.data) return false;
         return state = lw_tensor(), has_elements(p);
       }},
      {"q_lengths",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.q_lengths) return false;
         const int64_t q_len = p.inputs.q_len >= 0 ? p.inputs.q_len : p.problem.q_len;
         return ints(p.inputs.q_lengths)[d.below(batch_of(p))] = outside(d, 0, q_len), true;
       }},
      {"kv_lengths",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.kv_lengths) return false;
         const int64_t kv_len = p.inputs.kv_len >= 0 ? p.inputs.kv_len : p.problem.kv_len;
         return ints(p.inputs.kv_lengths)[d.below(batch_of(p))] = outside(d, 0, kv_len), true;
       }},
      {"kv_starts",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.kv_starts) return false;
         return ints(p.inputs.kv_starts)[d.below(batch_of(p))] = outside(d, 0, INT32_MAX), true;
       }},
      {"cu_seqlens_q",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.cu_seqlens_q) return false;
         const int64_t at = d.below(batch_of(p) + 1);
         return ints(p.inputs.cu_seqlens_q)[at] = at ? outside(d, 0, p.problem.total_q) : 1, true;
       }},
      {"cu_seqlens_kv",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.cu_seqlens_kv) return false;
         const int64_t at = d.below(batch_of(p) + 1);
         return ints(p.inputs.cu_seqlens_kv)[at] = at ? outside(d, 0, p.problem.total_kv) : 1, true;
       }},
      {"null cu_seqlens_q",
       [](Prepared& p, Draw&) {
         if (!p.inputs.cu_seqlens_q) return false;
         return p.inputs.cu_seqlens_q = nullptr, true;
       }},
      {"null page_table",
       [](Prepared& p, Draw&) {
         if (!p.inputs.page_table) return false;
         return p.inputs.page_table = nullptr, has_elements(p);
       }},
      {"page_table nobody planned",
       [](Prepared& p, Draw&) {
         if (p.problem.kv_layout == LW_LAYOUT_PAGED) return false;
         static const int32_t pages[1] = {0};
         return p.inputs.page_table = pages, true;
       }},
      {"null mask",
       [](Prepared& p, Draw&) {
         if (!p.inputs.mask.data) return false;
         return p.inputs.mask.data = nullptr, true;
       }},
      {"null bias",
       [](Prepared& p, Draw&) {
         if (!p.inputs.bias.data) return false;
         return p.inputs.bias.data = nullptr, true;
       }},
      {"null slopes",
       [](Prepared& p, Draw&) {
         if (!p.inputs.alibi_slopes) return false;
         return p.inputs.alibi_slopes = nullptr, true;
       }},
      {"block_indptr falls",
       [](Prepared& p, Draw&) {
         if (!p.inputs.block_indptr || p.inputs.cu_seqlens_q || p.inputs.q_lengths) return false;
         return ints(p.inputs.block_indptr)[0] = -1, true;
       }},
      {"block_indices",
       [](Prepared& p, Draw& d) {
         if (!p.inputs.block_indptr || p.inputs.cu_seqlens_q || p.inputs.q_lengths) return false;
         const int32_t first = p.inputs.block_indptr[0];
         if (p.inputs.block_indptr[1] <= first) return false;
         return ints(p.inputs.block_indices)[first] = outside(d, 0, (p.problem.kv_len + 23) / 24 + 20), true;
       }},
      {"state at an odd start",
       [](Prepared& p, Draw&) {
         if (!p.inputs.state_max.data || !p.inputs.kv_starts) return false;
         return ints(p.inputs.kv_starts)[0] += 1, true;
       }},
  };
  return list;
}

}  // namespace

std::string check_wrong_problem(Draw& draw) {
  const int64_t oldest = 320;  // bytes in version 0.1
  const int64_t size = draw.rarely(4) ? oldest : static_cast<int64_t>(sizeof(lw_problem));
  lw_problem problem = lw_problem_default();
  problem.q_len = problem.kv_len = 5;
  problem.qk_dim = problem.v_dim = 8;
  GuardedBuffer memory(static_cast<size_t>(size), Edge::kEnd, 8);
  for (int64_t n = draw.within(1, 6); n > 0; --n) {
    // int32 fields are made two at a time, or one of them alone.
    uint8_t* const field = reinterpret_cast<uint8_t*>(&problem) + 8 * draw.within(1, oldest / 8 - 1);
    const int64_t value = draw.one_of(kOdd);
    const bool half = draw.rarely(2);
    std::memcpy(field + (half && draw.rarely(2) ? 4 : 0), &value, half ? 4 : 8);
  }
  constexpr int64_t kSizes[] = {0, -1, 319, 65537, INT64_MAX, INT64_MIN};
  const bool bad_size = draw.rarely(8);
  problem.struct_size = bad_size ? draw.one_of(kSizes) : size;
  std::memcpy(memory.data(), &problem, static_cast<size_t>(size));
  lw_options options = lw_options_default();
  options.target = targets().front().c_str();
  lw_plan* plan = reinterpret_cast<lw_plan*>(1);
  const lw_status status = lw_plan_make(reinterpret_cast<const lw_problem*>(memory.data()), &options, &plan);
  std::string text = odd_status(status);
  if ((status.code == LW_OK) != (plan != nullptr)) text += "; plan and status say different things";
  if (bad_size && status.code == LW_OK) text += "; a struct of no known size is taken";
  int64_t before = 0;
  for (const int32_t threads : {INT32_MIN, 0, 1, 2, 64, INT32_MAX}) {
    const int64_t bytes = lw_plan_workspace_size(plan, threads);
    if (bytes < before) text += "; workspace falls with threads or is negative";
    before = bytes;
  }
  lw_explanation explanation = {};
  explanation.struct_size = sizeof explanation;
  if (plan && lw_plan_explain(plan, 4, &explanation).code != LW_OK) text += "; a plan that cannot be explained";
  char reasons[64];
  lw_plan_reasons(plan, nullptr, 4, reasons, sizeof reasons);
  lw_plan_free(plan);
  count_case(targets().front());
  return text;
}

std::string check_wrong_run(Draw& draw) {
  FuzzProblem problem = draw_problem(draw);
  problem.field[kQLen] = std::min<int64_t>(problem[kQLen], 9);
  problem.field[kNative] = problem.field[kContinued] = problem.field[kContent] = 0;
  Case c = case_of(problem);
  Prepared p = c.prepare(draw.rarely(2) ? Edge::kStart : Edge::kEnd);
  const std::string& target = targets()[static_cast<size_t>(draw.below(static_cast<int64_t>(targets().size())))];
  const PreparedPlan plan(p.problem, target);
  if (plan.status().code != LW_OK) return std::string("a valid problem: ") + plan.status().message;
  const Wrong& wrong = wrongs()[static_cast<size_t>(draw.below(static_cast<int64_t>(wrongs().size())))];
  if (!wrong.make(p, draw)) return "";
  reset_outputs(p);
  const int64_t size = lw_plan_workspace_size(plan.get(), 2);
  GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
  const lw_executor executor = lw_executor_default();
  const lw_status statuses[] = {
      lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor),
      lw_run_part(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, static_cast<int32_t>(draw.below(2)), 1, 2),
      lw_attend(&p.problem, &p.inputs, &p.outputs, &executor)};
  count_case(target);
  std::string text;
  for (const lw_status& status : statuses) {
    if (status.code == LW_OK) text += "; accepted";
    text += odd_status(status);
  }
  if (!outputs_untouched(p)) text += "; an output was written";
  if (!workspace.untouched()) text += "; the workspace was written";
  return text.empty() ? "" : std::string(wrong.name) + " of " + describe(problem) + text;
}

}  // namespace lanewise::test
