// The exported C functions: null checks, memory of plans, and the way from arguments to schedule.

#include <algorithm>
#include <cstdlib>
#include <new>

#include "alibi.hpp"
#include "convert.hpp"
#include "explain.hpp"
#include "lanewise/lanewise.h"
#include "partials.hpp"
#include "plan.hpp"
#include "run.hpp"
#include "schedule.hpp"
#include "statistics.hpp"
#include "status.hpp"
#include "targets.hpp"

using namespace lanewise;

namespace {

lw_status check_part(int32_t ith, int32_t nth) {
  if (nth < 1) return failure(LW_INVALID_ARGUMENT, "nth is %d; allowed is 1 or more", nth);
  if (ith < 0 || ith >= nth) return failure(LW_INVALID_ARGUMENT, "ith is %d; allowed is 0 ... %d", ith, nth - 1);
  return ok();
}

// What a run on so many threads uses of a workspace.
Range memory_used(const lw_plan& plan, const void* workspace, int64_t bytes, int32_t threads) {
  return memory_at(workspace, std::min(bytes, workspace_size(plan, threads)));
}

bool has_rows(const Run& run) { return run.problem.batch > 0 && run.problem.q_len > 0; }

}  // namespace

extern "C" {

LW_API int32_t lw_version(void) { return LW_VERSION_MAJOR * 10000 + LW_VERSION_MINOR * 100 + LW_VERSION_PATCH; }

LW_API lw_status lw_plan_make(const lw_problem* problem, const lw_options* options, lw_plan** plan) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  *plan = nullptr;
  lw_plan made;
  if (const lw_status s = make_plan(problem, options, made); s.code != LW_OK) return s;
  *plan = new (std::nothrow) lw_plan(made);
  if (*plan == nullptr)
    return failure(LW_OUT_OF_MEMORY, "no memory for a plan of %d bytes", static_cast<int>(sizeof(lw_plan)));
  return ok();
}

LW_API void lw_plan_free(lw_plan* plan) { delete plan; }

LW_API int64_t lw_plan_workspace_size(const lw_plan* plan, int32_t threads) {
  return plan == nullptr ? 0 : workspace_size(*plan, threads);
}

LW_API int32_t lw_plan_phases(const lw_plan* plan) { return plan == nullptr ? 0 : 2; }

LW_API lw_status lw_run(const lw_plan* plan, const lw_inputs* inputs, const lw_outputs* outputs, void* workspace,
                        int64_t workspace_bytes, const lw_executor* executor) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  Run run;
  const Range used = memory_used(*plan, workspace, workspace_bytes, 1);
  if (const lw_status s = check_run(plan->problem, inputs, outputs, used, run); s.code != LW_OK) return s;
  lw_executor checked;
  if (const lw_status s = check_executor(executor, checked); s.code != LW_OK) return s;
  if (!has_rows(run)) return ok();
  if (const lw_status s = check_workspace(workspace, workspace_bytes, workspace_size(*plan, 1), 1); s.code != LW_OK)
    return s;
  const int32_t threads = threads_that_fit(*plan, threads_for(checked), workspace_bytes);
  return execute(*plan, run, workspace, threads, checked);
}

LW_API lw_status lw_run_part(const lw_plan* plan, const lw_inputs* inputs, const lw_outputs* outputs, void* workspace,
                             int64_t workspace_bytes, int32_t phase, int32_t ith, int32_t nth) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  if (phase < 0 || phase > 1) return failure(LW_INVALID_ARGUMENT, "phase is %d; allowed is 0 ... 1", phase);
  if (const lw_status s = check_part(ith, nth); s.code != LW_OK) return s;
  Run run;
  const Range used = memory_used(*plan, workspace, workspace_bytes, nth);
  if (const lw_status s = check_run(plan->problem, inputs, outputs, used, run); s.code != LW_OK) return s;
  if (!has_rows(run)) return ok();
  if (const lw_status s = check_workspace(workspace, workspace_bytes, workspace_size(*plan, nth), nth); s.code != LW_OK)
    return s;
  return execute_part(*plan, run, workspace, phase, ith, nth);
}

LW_API lw_status lw_run_statistics(const lw_plan* plan, const lw_inputs* inputs, const lw_const_tensor* lse,
                                   const lw_statistics* statistics, void* workspace, int64_t workspace_bytes,
                                   const lw_executor* executor) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  StatisticsRun call;
  const Range used = memory_used(*plan, workspace, workspace_bytes, 1);
  if (const lw_status s = check_statistics(plan->problem, inputs, lse, statistics, used, call); s.code != LW_OK)
    return s;
  lw_executor checked;
  if (const lw_status s = check_executor(executor, checked); s.code != LW_OK) return s;
  if (call.run.problem.batch == 0) return ok();
  if (has_rows(call.run)) {
    const lw_status s = check_workspace(workspace, workspace_bytes, workspace_size(*plan, 1), 1);
    if (s.code != LW_OK) return s;
  }
  const int64_t room = plan->task_scratch > 0 ? workspace_bytes / plan->task_scratch : 1;
  const int32_t threads =
      static_cast<int32_t>(std::clamp<int64_t>(threads_for(checked), 1, std::max<int64_t>(1, room)));
  return execute_statistics(*plan, call, workspace, threads, checked);
}

LW_API lw_status lw_run_statistics_part(const lw_plan* plan, const lw_inputs* inputs, const lw_const_tensor* lse,
                                        const lw_statistics* statistics, void* workspace, int64_t workspace_bytes,
                                        int32_t ith, int32_t nth) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  if (const lw_status s = check_part(ith, nth); s.code != LW_OK) return s;
  StatisticsRun call;
  const Range used = memory_used(*plan, workspace, workspace_bytes, nth);
  if (const lw_status s = check_statistics(plan->problem, inputs, lse, statistics, used, call); s.code != LW_OK)
    return s;
  if (call.run.problem.batch == 0) return ok();
  if (has_rows(call.run)) {
    const lw_status s = check_workspace(workspace, workspace_bytes, workspace_size(*plan, nth), nth);
    if (s.code != LW_OK) return s;
  }
  execute_statistics_part(*plan, call, workspace, ith, nth);
  return ok();
}

LW_API lw_status lw_attend(const lw_problem* problem, const lw_inputs* inputs, const lw_outputs* outputs,
                           const lw_executor* executor) {
  lw_plan plan;
  if (const lw_status s = make_plan(problem, nullptr, plan); s.code != LW_OK) return s;
  lw_executor checked;
  if (const lw_status s = check_executor(executor, checked); s.code != LW_OK) return s;
  // Room for those who will have work: a host may ask for INT32_MAX threads.
  const int32_t threads =
      threads_worth_waking(multiply_adds_at_capacity(plan.problem), threads_for(checked), plan.work_per_thread);
  const int64_t size = workspace_size(plan, threads);
  void* workspace = nullptr;
  if (size > 0) {
    workspace = std::aligned_alloc(64, static_cast<size_t>(size));
    if (workspace == nullptr)
      return failure(LW_OUT_OF_MEMORY, "no memory for a workspace of %lld bytes", static_cast<long long>(size));
  }
  const lw_status status = lw_run(&plan, inputs, outputs, workspace, size, &checked);
  std::free(workspace);
  return status;
}

LW_API lw_status lw_plan_explain(const lw_plan* plan, int32_t threads, lw_explanation* explanation) {
  if (plan == nullptr) return failure(LW_INVALID_ARGUMENT, "plan is a null pointer");
  return explain_plan(*plan, threads, explanation);
}

LW_API int64_t lw_plan_reasons(const lw_plan* plan, const lw_inputs* inputs, int32_t threads, char* text,
                               int64_t size) {
  return plan == nullptr ? 0 : plan_reasons(*plan, inputs, threads, text, text == nullptr ? 0 : size);
}

LW_API lw_status lw_merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses,
                          int32_t count, const lw_outputs* merged) {
  return merge(problem, outs, lses, count, merged);
}

LW_API lw_status lw_append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                           const lw_const_tensor* rows, int64_t tokens, const int32_t* slots) {
  return append(cache, pages, page_size, heads, dim, rows, tokens, slots);
}

LW_API lw_status lw_convert(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) {
  return convert_elements(from, from_type, to, to_type, n);
}

LW_API lw_status lw_alibi_slopes(int64_t q_heads, float* slopes) { return fill_alibi_slopes(q_heads, slopes); }

LW_API int32_t lw_target_count(void) { return target_count(); }
LW_API const char* lw_target_name(int32_t index) { return target_name(target_at(index)); }
LW_API int32_t lw_target_supported(int32_t index) { return target_is_supported(target_at(index)) ? 1 : 0; }

}  // extern "C"
