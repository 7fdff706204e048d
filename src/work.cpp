#include "work.hpp"

#include <algorithm>
#include <cstdlib>

#include "problem.hpp"
#include "tensors.hpp"

namespace lanewise {
namespace {

// A kv head's rows of K or V lie in runs too short for memory to be read at its full rate, with other heads' rows
// between them: tokens before heads, or small pages (docs/PERFORMANCE.md: runs of 512 bytes lose a third).
bool heads_interleave(const Run& run, const lw_const_tensor& tensor) {
  constexpr int64_t kLongRun = 32768;  // bytes
  const lw_problem& p = run.problem;
  const bool paged = p.kv_layout == LW_LAYOUT_PAGED;
  const int64_t tokens = paged ? p.page_size : p.kv_layout == LW_LAYOUT_RAGGED ? p.total_kv : p.kv_len;
  if (tokens <= 1) return paged;  // the stride of tokens is not used
  const int64_t head = std::abs(tensor.stride[1]), token = std::abs(tensor.stride[2]);
  return head < token || (paged && p.page_size < kLongRun / std::max<int64_t>(1, token * type_size(tensor.type)));
}

// kv heads whose rows of one token together fill a small page of memory: what is worth reading in one go.
int64_t heads_together_of(const Run& run) {
  constexpr int64_t kWorthReading = 4096;  // bytes
  const lw_inputs& in = run.inputs;
  if (run.problem.kv_heads == 1 || in.k.stride[3] != 1 || in.v.stride[3] != 1) return 1;
  if (!heads_interleave(run, in.k) && !heads_interleave(run, in.v)) return 1;
  const int64_t row = std::min(run.problem.qk_dim, run.problem.v_dim) * type_size(in.k.type);
  return std::clamp<int64_t>((kWorthReading + row - 1) / row, 1, std::min(run.problem.kv_heads, kMaxTogetherRows));
}

// Of the whole run, without rules: enough to tell whether threads are worth waking.
double multiply_adds(const Run& run) {
  const lw_problem& p = run.problem;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += static_cast<double>(run.q_len(b)) * static_cast<double>(run.kv_len(b));
  return pairs * static_cast<double>(p.q_heads) * static_cast<double>(p.qk_dim + p.v_dim);
}

// Decides above which size panels are cut over their keys, where the run is `alike` times what `cut` walks over. The
// cursor comes back from behind the last task, with what all tasks are together.
TaskCursor cut_keys(Cut& cut, double alike, int32_t threads) {
  double total = 0;
  TaskCursor uncut(cut);
  for (; !uncut.at_end(); uncut.next_panel()) total += uncut.panel().cost;
  cut.largest_task = alike * total / static_cast<double>(kPiecesPerThread * std::min(threads, kMaxCutThreads));
  TaskCursor walk(cut);
  while (!walk.at_end()) walk.next_panel();
  return walk;
}

}  // namespace

Work work_of(const lw_plan& plan, const Run& run, void* workspace, int32_t& threads) {
  const bool paged = run.problem.kv_layout == LW_LAYOUT_PAGED;
  // native_bf16 reads keys as they are, and always copies values: it pairs their rows.
  const bool native = run.problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16;
  const bool pack_k = paged || (native ? strides_need_packing(run.inputs.k) : must_pack(run.inputs.k));
  const bool pack_v = paged || must_pack(run.inputs.v);
  threads = threads_worth_waking(multiply_adds(run), threads, plan.work_per_thread);
  const Rules rules = rules_of(run.problem, run.inputs.q_positions != nullptr);
  const int64_t heads_together = rules.plain() && !native ? heads_together_of(run) : 1;
  Cut cut = {plan, run, rules, panel_tiles_of(plan, run.problem, threads), heads_together, kNeverCut};
  int64_t split_panels = 0;
  if (threads > 1) {
    const TaskCursor all = cut_keys(cut, 1, threads);
    split_panels = all.split();
    threads = static_cast<int32_t>(std::max<int64_t>(1, std::min(int64_t{threads}, all.first())));
  }
  const WorkspaceLayout layout = workspace_layout(plan, threads);
  char* const states = static_cast<char*>(workspace);
  char* const arrivals = states + layout.states;
  return {cut,
          pack_k,
          pack_v,
          split_panels,
          states,
          reinterpret_cast<std::atomic<int32_t>*>(arrivals),
          arrivals + layout.arrivals};
}

int64_t tasks_at_capacity(const lw_plan& plan, int32_t threads) {
  constexpr int64_t kMostPanels = 1 << 16;
  const lw_problem& p = plan.problem;
  // All (sequence, kv head) are alike: one is walked.
  Run one = {p, lw_inputs(), lw_outputs()};
  one.problem.batch = std::min<int64_t>(p.batch, 1);
  one.problem.q_heads = group_size(p);
  one.problem.kv_heads = 1;
  const double alike = static_cast<double>(p.batch) * static_cast<double>(p.kv_heads);
  threads = threads_worth_waking(alike * multiply_adds(one), threads, plan.work_per_thread);
  Cut cut = {plan, one, rules_of(p, false), panel_tiles_of(plan, p, threads), 1, kNeverCut};
  int64_t tasks = panels_of(plan, p.q_len, cut.panel_tiles).count;
  if (threads > 1 && tasks <= kMostPanels) tasks = cut_keys(cut, alike, threads).first();
  return saturating_product(p.batch, p.kv_heads, tasks);
}

}  // namespace lanewise
