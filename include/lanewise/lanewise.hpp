// lanewise for C++17: a header-only wrapper over the C interface (lanewise.h, which documents every field, shape and
// error). Works with -fno-exceptions and -fno-rtti. Nothing here allocates except Plan::make and attend, inside the
// library.
//
//   lanewise::Problem problem;
//   problem.q_heads = 32; problem.kv_heads = 8; problem.q_len = 512; problem.kv_len = 4096;
//   problem.qk_dim = problem.v_dim = 128; problem.causal = 1;
//   lanewise::Plan plan;
//   if (lanewise::Status status = lanewise::Plan::make(problem, plan); !status) return fail(status.message());
//   status = plan.run(inputs, outputs, workspace, plan.workspace_size(threads));
#ifndef LANEWISE_LANEWISE_HPP_
#define LANEWISE_LANEWISE_HPP_

#include <lanewise/lanewise.h>

#include <type_traits>
#include <utility>

namespace lanewise {

// Result of a call: true when it succeeded.
class Status {
 public:
  Status() noexcept : value_() {}
  Status(const lw_status& value) noexcept : value_(value) {}  // implicit on purpose: wraps what the C calls return
  explicit operator bool() const noexcept { return value_.code == LW_OK; }
  bool ok() const noexcept { return value_.code == LW_OK; }
  int32_t code() const noexcept { return value_.code; }
  const char* message() const noexcept { return value_.message; }

 private:
  lw_status value_;
};

struct Problem : lw_problem {
  Problem() noexcept : lw_problem(lw_problem_default()) {}
};

struct Inputs : lw_inputs {
  Inputs() noexcept : lw_inputs(lw_inputs_default()) {}
};

struct Outputs : lw_outputs {
  Outputs() noexcept : lw_outputs(lw_outputs_default()) {}
};

struct Statistics : lw_statistics {
  Statistics() noexcept : lw_statistics(lw_statistics_default()) {}
};

struct Options : lw_options {
  Options() noexcept : lw_options(lw_options_default()) {}
};

struct Executor : lw_executor {
  Executor() noexcept : lw_executor(lw_executor_default()) {}

  // OpenMP with at most `threads` threads; 0: its default.
  static Executor openmp(int32_t threads = 0) noexcept {
    Executor executor;
    executor.threads = threads;
    return executor;
  }
  // The calling thread alone.
  static Executor caller() noexcept {
    Executor executor;
    executor.kind = LW_EXECUTOR_CALLER;
    executor.threads = 1;
    return executor;
  }
  // A thread pool of the caller's: see lw_executor.parallel_for.
  static Executor callback(void* context, void (*parallel_for)(void*, int64_t, lw_share, void*),
                           int32_t threads) noexcept {
    Executor executor;
    executor.kind = LW_EXECUTOR_CALLBACK;
    executor.threads = threads;
    executor.context = context;
    executor.parallel_for = parallel_for;
    return executor;
  }
};

// A tensor given by pointer, storage type and strides in elements. Elem: float for LW_TYPE_F32, uint16_t for the 16-bit
// types (then name the type), const for inputs.
template <class Elem>
struct TensorView {
  static constexpr bool kConst = std::is_const<Elem>::value;
  using Tensor = typename std::conditional<kConst, lw_const_tensor, lw_tensor>::type;

  // Row-major [batch, heads, len, dim].
  static Tensor bhld(Elem* data, int64_t heads, int64_t len, int64_t dim, int32_t type = LW_TYPE_F32) noexcept {
    return strided(data, heads * len * dim, len * dim, dim, 1, type);
  }
  // Row-major [batch, len, heads, dim]: a token's heads lie together.
  static Tensor blhd(Elem* data, int64_t heads, int64_t len, int64_t dim, int32_t type = LW_TYPE_F32) noexcept {
    return strided(data, len * heads * dim, dim, heads * dim, 1, type);
  }
  // Row-major [batch, heads, len]: lse, state_max, state_sum.
  static Tensor bhl(Elem* data, int64_t heads, int64_t len, int32_t type = LW_TYPE_F32) noexcept {
    return strided(data, heads * len, len, 1, 0, type);
  }
  static Tensor strided(Elem* data, int64_t batch_or_page, int64_t head, int64_t len, int64_t dim,
                        int32_t type = LW_TYPE_F32) noexcept {
    Tensor tensor = Tensor();
    tensor.data = data;
    tensor.type = type;
    tensor.stride[0] = batch_or_page;
    tensor.stride[1] = head;
    tensor.stride[2] = len;
    tensor.stride[3] = dim;
    return tensor;
  }
};

// Sizes decided once, run many times. Move-only; const and thread-safe to share.
class Plan {
 public:
  Plan() noexcept = default;
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  Plan& operator=(Plan&& other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { lw_plan_free(plan_); }

  static Status make(const lw_problem& problem, Plan& plan) noexcept { return make(problem, Options(), plan); }
  static Status make(const lw_problem& problem, const lw_options& options, Plan& plan) noexcept {
    lw_plan* made = nullptr;
    const Status status = lw_plan_make(&problem, &options, &made);
    lw_plan_free(std::exchange(plan.plan_, made));
    return status;
  }

  explicit operator bool() const noexcept { return plan_ != nullptr; }
  int64_t workspace_size(int32_t threads) const noexcept { return lw_plan_workspace_size(plan_, threads); }
  int32_t phases() const noexcept { return lw_plan_phases(plan_); }

  Status run(const lw_inputs& inputs, const lw_outputs& outputs, void* workspace, int64_t workspace_size,
             const lw_executor& executor = Executor()) const noexcept {
    return lw_run(plan_, &inputs, &outputs, workspace, workspace_size, &executor);
  }
  Status run_part(const lw_inputs& inputs, const lw_outputs& outputs, void* workspace, int64_t workspace_size,
                  int32_t phase, int32_t ith, int32_t nth) const noexcept {
    return lw_run_part(plan_, &inputs, &outputs, workspace, workspace_size, phase, ith, nth);
  }
  // Weights, column sums, row maxima and entropies of a run whose lse is known: lw_run_statistics.
  Status run_statistics(const lw_inputs& inputs, const lw_const_tensor& lse, const lw_statistics& statistics,
                        void* workspace, int64_t workspace_size,
                        const lw_executor& executor = Executor()) const noexcept {
    return lw_run_statistics(plan_, &inputs, &lse, &statistics, workspace, workspace_size, &executor);
  }
  Status run_statistics_part(const lw_inputs& inputs, const lw_const_tensor& lse, const lw_statistics& statistics,
                             void* workspace, int64_t workspace_size, int32_t ith, int32_t nth) const noexcept {
    return lw_run_statistics_part(plan_, &inputs, &lse, &statistics, workspace, workspace_size, ith, nth);
  }
  lw_explanation explain(int32_t threads) const noexcept {
    lw_explanation explanation = lw_explanation();
    explanation.struct_size = sizeof explanation;
    (void)lw_plan_explain(plan_, threads, &explanation);
    return explanation;
  }
  // Why, and what would be faster, as lines of text: lw_plan_reasons.
  int64_t reasons(int32_t threads, char* text, int64_t size, const lw_inputs* inputs = nullptr) const noexcept {
    return lw_plan_reasons(plan_, inputs, threads, text, size);
  }

 private:
  lw_plan* plan_ = nullptr;
};

// One call for the answer: plan, workspace, run.
inline Status attend(const lw_problem& problem, const lw_inputs& inputs, const lw_outputs& outputs,
                     const lw_executor& executor = Executor()) noexcept {
  return lw_attend(&problem, &inputs, &outputs, &executor);
}

// Combines results over disjoint key ranges: lw_merge.
inline Status merge(const lw_problem& problem, const lw_const_tensor* outs, const lw_const_tensor* lses, int32_t count,
                    const lw_outputs& merged) noexcept {
  return lw_merge(&problem, outs, lses, count, &merged);
}

// Writes new rows of K or V into a cache: lw_append.
inline Status append(const lw_tensor& cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                     const lw_const_tensor& rows, int64_t tokens, const int32_t* slots) noexcept {
  return lw_append(&cache, pages, page_size, heads, dim, &rows, tokens, slots);
}

// The standard ALiBi slopes of q_heads heads: lw_alibi_slopes.
inline Status alibi_slopes(int64_t q_heads, float* slopes) { return lw_alibi_slopes(q_heads, slopes); }

// One storage type to another; widening is exact, narrowing rounds to nearest even: lw_convert.
inline Status convert(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n) noexcept {
  return lw_convert(from, from_type, to, to_type, n);
}

}  // namespace lanewise

#endif  // LANEWISE_LANEWISE_HPP_
