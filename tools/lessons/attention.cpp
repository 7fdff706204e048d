#include "lessons/attention.hpp"

#include <algorithm>
#include <cmath>

#include "io/tensor.hpp"
#include "src/reference.hpp"

namespace lanewise::lessons {
namespace {

using View = lanewise::TensorView<const float>;
using OutView = lanewise::TensorView<float>;

size_t count(const Heads& heads) { return static_cast<size_t>(heads.batch * heads.q_len * heads.kv_len); }

std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

lanewise::Problem problem_of(const Heads& heads) {
  lanewise::Problem problem;
  problem.qk_dim = heads.dim;
  problem.q_len = heads.q_len;
  problem.has_scale = 1;
  problem.scale = heads.scale;
  return problem;
}

}  // namespace

void run(const lw_problem& problem, const lw_inputs& inputs, const lw_outputs& outputs, const std::string& target) {
  lanewise::Options options;
  if (!target.empty()) options.target = target.c_str();
  lanewise::Plan plan;
  lanewise::Status status = lanewise::Plan::make(problem, options, plan);
  if (status) {
    const io::Buffer workspace(static_cast<size_t>(plan.workspace_size(1)));
    status = plan.run(inputs, outputs, workspace.data(), static_cast<int64_t>(workspace.size()),
                      lanewise::Executor::caller());
  }
  if (!status) throw io::Error(status.message());
}

Both scores_of(const Heads& heads, const std::string& target) {
  // The library's batch runs over keys, its heads over our sequences, so that one run gives all scores.
  const int64_t q_len = heads.q_len, kv_len = heads.kv_len, dim = heads.dim;
  lanewise::Problem problem = problem_of(heads);
  problem.batch = kv_len;
  problem.q_heads = problem.kv_heads = heads.batch;
  problem.kv_len = problem.v_dim = 1;
  const float no_value = 0;
  std::vector<float> out(count(heads)), lse(count(heads));
  lanewise::Inputs inputs;
  inputs.q = View::strided(heads.q, 0, q_len * dim, dim, 1);
  inputs.k = View::strided(heads.k, dim, kv_len * dim, dim, 1);
  inputs.v = View::strided(&no_value, 0, 0, 0, 1);
  lanewise::Outputs outputs;
  outputs.out = OutView::strided(out.data(), 1, q_len * kv_len, kv_len, 1);
  outputs.lse = OutView::strided(lse.data(), 1, q_len * kv_len, kv_len, 0);
  run(problem, inputs, outputs, target);

  Both scores = {widened(lse), std::vector<double>(count(heads))};
  const ReferenceResult reference = lanewise::reference(problem, inputs);  // [key, sequence, query]
  const size_t rows = static_cast<size_t>(heads.batch * q_len), keys = static_cast<size_t>(kv_len);
  for (size_t j = 0; j < keys; ++j) {
    for (size_t r = 0; r < rows; ++r) scores.reference[r * keys + j] = reference.lse[j * rows + r];
  }
  return scores;
}

Both weights_of(const Heads& heads, const std::string& target) {
  const int64_t q_len = heads.q_len, kv_len = heads.kv_len, dim = heads.dim;
  lanewise::Problem problem = problem_of(heads);
  problem.batch = heads.batch;
  problem.kv_len = problem.v_dim = kv_len;
  std::vector<float> identity(static_cast<size_t>(kv_len * kv_len)), out(count(heads));
  for (int64_t j = 0; j < kv_len; ++j) identity[static_cast<size_t>(j * kv_len + j)] = 1;
  lanewise::Inputs inputs;
  inputs.q = View::bhld(heads.q, 1, q_len, dim);
  inputs.k = View::bhld(heads.k, 1, kv_len, dim);
  inputs.v = View::strided(identity.data(), 0, 0, kv_len, 1);
  lanewise::Outputs outputs;
  outputs.out = OutView::bhld(out.data(), 1, q_len, kv_len);
  run(problem, inputs, outputs, target);
  return {widened(out), lanewise::reference(problem, inputs).out};
}

Both softmax_of(const std::vector<float>& scores, const std::string& target) {
  const float one = 1;
  Heads heads;
  heads.kv_len = static_cast<int64_t>(scores.size());
  heads.q = &one;
  heads.k = scores.data();
  return weights_of(heads, target);
}

State state_of(const Heads& heads, const std::vector<float>& v, int64_t v_dim, int64_t first, int64_t count,
               const std::string& target) {
  lanewise::Problem problem = problem_of(heads);
  problem.q_len = 1;
  problem.kv_len = count;
  problem.v_dim = v_dim;
  State state = {0, 0, std::vector<float>(static_cast<size_t>(v_dim))};
  const int32_t kv_start = static_cast<int32_t>(first);
  lanewise::Inputs inputs;
  inputs.q = View::bhld(heads.q, 1, 1, heads.dim);
  inputs.k = View::bhld(heads.k + first * heads.dim, 1, count, heads.dim);
  inputs.v = View::bhld(v.data() + first * v_dim, 1, count, v_dim);
  inputs.kv_starts = &kv_start;
  lanewise::Outputs outputs;
  outputs.state_max = OutView::bhl(&state.row_max, 1, 1);
  outputs.state_sum = OutView::bhl(&state.row_sum, 1, 1);
  outputs.state_acc = OutView::bhld(state.acc.data(), 1, 1, v_dim);
  run(problem, inputs, outputs, target);
  return state;
}

State merge(const State& a, const State& b) {
  const float row_max = std::max(a.row_max, b.row_max);
  const auto factor = [&](const State& state) {
    const float n = state.row_max - row_max;
    return n < -125 ? 0.0f : std::ldexp(1.0f, static_cast<int>(n));
  };
  const float fa = factor(a), fb = factor(b);
  State merged = {row_max, std::fma(a.row_sum, fa, b.row_sum * fb), a.acc};
  for (size_t x = 0; x < a.acc.size(); ++x) merged.acc[x] = std::fma(a.acc[x], fa, b.acc[x] * fb);
  return merged;
}

}  // namespace lanewise::lessons
