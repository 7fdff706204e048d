// C++: a plan made once, run many times. 8 query heads share 2 key heads; each sequence of the batch has its own
// length. Nothing is allocated after the plan and the workspace.
#include <lanewise/lanewise.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

constexpr int64_t kBatch = 2, kHeads = 8, kKvHeads = 2, kLen = 100, kDim = 64;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::vector<float> random_numbers(size_t count, uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& x : numbers) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed >> 8)) * 0x1p-23f - 1;
  }
  return numbers;
}

}  // namespace

int main() {
  const std::vector<float> q = random_numbers(kBatch * kHeads * kLen * kDim, 1);
  const std::vector<float> k = random_numbers(kBatch * kKvHeads * kLen * kDim, 2);
  const std::vector<float> v = random_numbers(kBatch * kKvHeads * kLen * kDim, 3);
  std::vector<float> out(q.size()), lse(kBatch * kHeads * kLen);
  const int32_t lengths[kBatch] = {100, 37};

  lanewise::Problem problem;
  problem.batch = kBatch;
  problem.q_heads = kHeads;
  problem.kv_heads = kKvHeads;
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1;

  lanewise::Plan plan;
  if (const lanewise::Status status = lanewise::Plan::make(problem, plan); !status) {
    std::fprintf(stderr, "plan: %s\n", status.message());
    return 1;
  }
  const int32_t threads = 2;
  const int64_t size = plan.workspace_size(threads);
  const std::unique_ptr<void, Free> workspace(std::aligned_alloc(64, static_cast<size_t>(size)));

  lanewise::Inputs inputs;
  inputs.q = lanewise::TensorView<const float>::bhld(q.data(), kHeads, kLen, kDim);
  inputs.k = lanewise::TensorView<const float>::bhld(k.data(), kKvHeads, kLen, kDim);
  inputs.v = lanewise::TensorView<const float>::bhld(v.data(), kKvHeads, kLen, kDim);
  inputs.q_lengths = inputs.kv_lengths = lengths;
  lanewise::Outputs outputs;
  outputs.out = lanewise::TensorView<float>::bhld(out.data(), kHeads, kLen, kDim);
  outputs.lse = lanewise::TensorView<float>::bhl(lse.data(), kHeads, kLen);

  for (int run = 0; run < 3; ++run) {
    const lanewise::Status status =
        plan.run(inputs, outputs, workspace.get(), size, lanewise::Executor::openmp(threads));
    if (!status) {
      std::fprintf(stderr, "run: %s\n", status.message());
      return 1;
    }
  }
  const lw_explanation how = plan.explain(threads);
  std::printf("lanewise %d on %s, %s: out[0] = %g, lse[0] = %g\n", static_cast<int>(lw_version()), how.target,
              how.kernel, static_cast<double>(out[0]), static_cast<double>(lse[0]));
  return out[0] == v[0] ? 0 : 1;  // the first query sees one key
}
