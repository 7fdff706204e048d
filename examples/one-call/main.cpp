// C++: the smallest whole use, one call that plans, takes memory and runs. README shows its middle.
#include <lanewise/lanewise.hpp>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<float> q(32 * 512 * 128, 0.5f), k(8 * 4096 * 128, 0.25f), v(8 * 4096 * 128, 1.0f);
  std::vector<float> out(q.size());

  lanewise::Problem problem;
  problem.q_heads = 32;
  problem.kv_heads = 8;  // query head h reads key head h / 4
  problem.q_len = 512;
  problem.kv_len = 4096;
  problem.qk_dim = problem.v_dim = 128;
  problem.causal = 1;  // the last query is at the last key

  lanewise::Inputs inputs;  // here float32, row-major [batch, heads, len, dim]
  inputs.q = lanewise::TensorView<const float>::bhld(q.data(), 32, 512, 128);
  inputs.k = lanewise::TensorView<const float>::bhld(k.data(), 8, 4096, 128);
  inputs.v = lanewise::TensorView<const float>::bhld(v.data(), 8, 4096, 128);
  lanewise::Outputs outputs;
  outputs.out = lanewise::TensorView<float>::bhld(out.data(), 32, 512, 128);

  const lanewise::Status status = lanewise::attend(problem, inputs, outputs);
  if (!status) std::fprintf(stderr, "%s\n", status.message());

  // All values are 1, so is every weighted mean of them.
  for (const float x : out) {
    if (x != 1) return 1;
  }
  return status ? 0 : 1;
}
