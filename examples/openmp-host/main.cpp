// A host that uses OpenMP itself, and forks. Inside a parallel region of the host each call stays on its thread; in a
// child forked later it stays on the calling thread, where the OpenMP runtime could hang. Same bits everywhere.
//
//   c++ -std=c++17 -fopenmp main.cpp $(pkg-config --cflags --libs lanewise) -o host && ./host
#include <lanewise/lanewise.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr int64_t kHeads = 4, kLen = 200, kDim = 64, kElements = kHeads * kLen * kDim;
constexpr int kCalls = 6;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Workspace = std::unique_ptr<void, Free>;

struct Engine {
  lanewise::Plan plan;  // constant: shared by all threads
  std::vector<float> q = std::vector<float>(kElements), k = q, v = q;

  // Whatever thread calls it: a workspace of its own, and the default executor.
  lanewise::Status attend(std::vector<float>& out) const {
    const int64_t size = plan.workspace_size(2);
    const Workspace workspace(std::aligned_alloc(64, static_cast<size_t>(size)));
    lanewise::Inputs inputs;
    inputs.q = lanewise::TensorView<const float>::bhld(q.data(), kHeads, kLen, kDim);
    inputs.k = lanewise::TensorView<const float>::bhld(k.data(), kHeads, kLen, kDim);
    inputs.v = lanewise::TensorView<const float>::bhld(v.data(), kHeads, kLen, kDim);
    lanewise::Outputs outputs;
    outputs.out = lanewise::TensorView<float>::bhld(out.data(), kHeads, kLen, kDim);
    return plan.run(inputs, outputs, workspace.get(), size);
  }
};

}  // namespace

int main() {
  Engine engine;
  for (size_t i = 0; i < engine.q.size(); ++i) {
    engine.q[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    engine.k[i] = static_cast<float>(i * 53 % 103) / 50 - 1;
    engine.v[i] = static_cast<float>(i * 71 % 107) / 50 - 1;
  }
  lanewise::Problem problem;
  problem.q_heads = problem.kv_heads = kHeads;
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  if (const lanewise::Status status = lanewise::Plan::make(problem, engine.plan); !status) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  // On OpenMP threads of lanewise's choice.
  std::vector<float> first(kElements);
  if (!engine.attend(first)) return 1;

  // Called by the host's threads, all at once.
  std::vector<std::vector<float>> outs(kCalls, std::vector<float>(kElements));
  int failures = 0;
#pragma omp parallel for reduction(+ : failures)
  for (int call = 0; call < kCalls; ++call) {
    const lanewise::Status status = engine.attend(outs[static_cast<size_t>(call)]);
    if (!status || std::memcmp(outs[static_cast<size_t>(call)].data(), first.data(), kElements * sizeof(float)) != 0) {
      ++failures;
    }
  }

  // In a child: lanewise was loaded before the fork, so OpenMP runs stay on the calling thread.
  const pid_t child = fork();
  if (child == 0) {
    std::vector<float> out(kElements);
    const lanewise::Status status = engine.attend(out);
    _exit(status && std::memcmp(out.data(), first.data(), kElements * sizeof(float)) == 0 ? 0 : 1);
  }
  int result = 1;
  if (child < 0 || waitpid(child, &result, 0) != child) return 1;
  std::printf("%d calls from the host's parallel region: %d with other bits; in a forked child: %s\n", kCalls, failures,
              result == 0 ? "the same bits" : "failed");
  return failures == 0 && result == 0 ? 0 : 1;
}
