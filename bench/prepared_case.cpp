#include "prepared_case.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "case_tensors.hpp"
#include "huge_buffer.hpp"
#include "lanewise/lanewise.hpp"
#include "onednn_case.hpp"
#include "src/plan.hpp"

namespace lanewise::bench {
namespace {

struct FreePlan {
  void operator()(lw_plan* plan) const { lw_plan_free(plan); }
};
using PlanPointer = std::unique_ptr<lw_plan, FreePlan>;

class LanewiseCase : public PreparedCase {
 public:
  LanewiseCase(const AttentionCase& c, PlanPointer plan)
      : plan_(std::move(plan)),
        tensors_(c),
        workspace_(static_cast<size_t>(lw_plan_workspace_size(plan_.get(), c.threads))),
        executor_(c.threads == 1 ? Executor::caller() : Executor::openmp(c.threads)),
        threads_(c.threads) {}

  Status first_run() { return run_once(); }
  void run() override { (void)run_once(); }

  std::string label() const override {
    lw_explanation e = lw_explanation();
    e.struct_size = sizeof e;
    (void)lw_plan_explain(plan_.get(), threads_, &e);
    return std::string(e.target) + " " + e.kernel + " " + std::to_string(e.tile_rows) + "x" +
           std::to_string(e.tile_keys);
  }

  std::vector<Region> read_regions() const override {
    std::vector<Region> regions = {{tensors_.k.data(), tensors_.k.size()}};
    if (tensors_.v.size() > 0) regions.push_back({tensors_.v.data(), tensors_.v.size()});
    return regions;
  }

 private:
  Status run_once() {
    return lw_run(plan_.get(), &tensors_.inputs, &tensors_.outputs, workspace_.data(),
                  static_cast<int64_t>(workspace_.size()), &executor_);
  }

  PlanPointer plan_;
  CaseTensors tensors_;
  HugeBuffer workspace_;
  Executor executor_;
  int32_t threads_;
};

// Statistics of the weights of a run, which gives the lse once.
class StatisticsCase : public PreparedCase {
 public:
  StatisticsCase(const AttentionCase& c, PlanPointer plan)
      : plan_(std::move(plan)),
        tensors_(c),
        workspace_(static_cast<size_t>(lw_plan_workspace_size(plan_.get(), c.threads))),
        executor_(c.threads == 1 ? Executor::caller() : Executor::openmp(c.threads)) {
    int64_t queries = 0, longest = 0, keys = 0;  // of all sequences, of one
    for (const Sequence& sequence : sequences_of(c)) {
      queries += sequence.q_len;
      keys += sequence.kv_len;
      longest = std::max(longest, sequence.kv_len);
    }
    const int64_t rows = c.decodes > 0 ? queries : c.q_len, columns = c.decodes > 0 ? keys : c.kv_len;
    lse_.resize(static_cast<size_t>(c.q_heads * queries));
    tensors_.outputs.lse = TensorView<float>::bhl(lse_.data(), c.q_heads, rows);
    const auto buffer = [&](int64_t floats) {
      buffers_.emplace_back(static_cast<size_t>(floats) * sizeof(float));
      return buffers_.back().as<float>();
    };
    if (c.computes == Computes::kColumnSums)
      statistics_.column_sums = TensorView<float>::bhl(buffer(c.q_heads * keys), c.q_heads, columns);
    if (c.computes == Computes::kWeights)
      statistics_.weights = TensorView<float>::bhld(buffer(c.q_heads * queries * longest), c.q_heads, rows, longest);
    if (c.computes != Computes::kRowStatistics) return;
    statistics_.row_max = TensorView<float>::bhl(buffer(c.q_heads * queries), c.q_heads, rows);
    statistics_.row_entropy = TensorView<float>::bhl(buffer(c.q_heads * queries), c.q_heads, rows);
  }

  Status first_run() {
    const Status status = lw_run(plan_.get(), &tensors_.inputs, &tensors_.outputs, workspace_.data(),
                                 static_cast<int64_t>(workspace_.size()), &executor_);
    return status ? run_once() : status;
  }
  void run() override { (void)run_once(); }
  std::string label() const override { return "statistics"; }
  std::vector<Region> read_regions() const override { return {{tensors_.k.data(), tensors_.k.size()}}; }

 private:
  Status run_once() {
    lw_const_tensor lse = lw_const_tensor();
    lse.data = lse_.data();
    lse.type = LW_TYPE_F32;
    std::copy_n(tensors_.outputs.lse.stride, 4, lse.stride);
    return lw_run_statistics(plan_.get(), &tensors_.inputs, &lse, &statistics_, workspace_.data(),
                             static_cast<int64_t>(workspace_.size()), &executor_);
  }

  PlanPointer plan_;
  CaseTensors tensors_;
  HugeBuffer workspace_;
  std::vector<HugeBuffer> buffers_;
  std::vector<float> lse_;
  Statistics statistics_;
  Executor executor_;
};

template <class Prepared>
std::unique_ptr<PreparedCase> prepare_as(const AttentionCase& c, PlanPointer plan, Status& status) {
  auto prepared = std::make_unique<Prepared>(c, std::move(plan));
  status = prepared->first_run();
  return prepared;
}

}  // namespace

std::unique_ptr<PreparedCase> prepare(const AttentionCase& c, std::string& problem) {
  if (c.onednn) return prepare_onednn(c, problem);
  Options options;
  options.target = c.target.c_str();
  const Problem p = problem_of(c);
  lw_plan* made = nullptr;
  Status status = lw_plan_make(&p, &options, &made);
  PlanPointer plan(made);
  std::unique_ptr<PreparedCase> prepared;
  if (status) {
    // Both kernels give the same bits, so this is the plan's own choice to change.
    if (c.kernel == Kernel::kKeysInLanes) plan->kernels.few_rows = kMaxFewRows;
    if (c.kernel == Kernel::kRowsInLanes) plan->kernels.few_rows = 0;
    prepared = c.computes == Computes::kAttention ? prepare_as<LanewiseCase>(c, std::move(plan), status)
                                                  : prepare_as<StatisticsCase>(c, std::move(plan), status);
  }
  if (status) return prepared;
  problem = status.message();
  return nullptr;
}

double seconds_of(PreparedCase& prepared, int64_t runs, Clock clock) {
  const double start = now(clock);
  for (int64_t i = 0; i < runs; ++i) prepared.run();
  return (now(clock) - start) / static_cast<double>(runs);
}

int64_t runs_worth_timing(PreparedCase& prepared) {
  constexpr double kEnough = 200e-6;
  (void)seconds_of(prepared, 1);
  const double once = std::min(seconds_of(prepared, 1), seconds_of(prepared, 1));
  return std::max<int64_t>(1, std::llround(kEnough / std::max(once, 1e-8)));
}

}  // namespace lanewise::bench
