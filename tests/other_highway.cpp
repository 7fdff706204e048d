// A static program of an engine that has a Highway of its own, of another version: the same names, other code. Neither
// may take the other's. Linked by .ci/checks/installation against the installed static library.
#include <lanewise/lanewise.hpp>

#include <cstdio>
#include <cstdlib>

namespace hwy {

// Whoever calls these in place of lanewise's finds no target and no memory.
int64_t SupportedTargets() { return 0; }
const char* TargetName(int64_t) { return "the engine's"; }
void* AllocateAlignedBytes(size_t, void* (*)(void*, size_t), void*) { std::abort(); }
[[noreturn]] void Abort(const char*, int, const char*, ...) { std::abort(); }

struct ChosenTarget {
  static size_t calls;
};
size_t ChosenTarget::calls = 0;
ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  ++ChosenTarget::calls;
  return chosen;
}

}  // namespace hwy

int main() {
  (void)hwy::GetChosenTarget();  // the engine's own use of it
  if (hwy::SupportedTargets() != 0 || hwy::TargetName(1)[0] != 't') return 1;
  const float q = 1, k = 2, v = 3;
  float out = 0;
  lanewise::Problem problem;
  problem.q_len = problem.kv_len = problem.qk_dim = problem.v_dim = 1;
  lanewise::Inputs inputs;
  inputs.q = lanewise::TensorView<const float>::bhld(&q, 1, 1, 1);
  inputs.k = lanewise::TensorView<const float>::bhld(&k, 1, 1, 1);
  inputs.v = lanewise::TensorView<const float>::bhld(&v, 1, 1, 1);
  lanewise::Outputs outputs;
  outputs.out = lanewise::TensorView<float>::bhld(&out, 1, 1, 1);
  const lanewise::Status status = lanewise::attend(problem, inputs, outputs);
  if (!status || out != v || hwy::ChosenTarget::calls != 1) {
    std::printf("%s, out %g, %d calls\n", status.message(), static_cast<double>(out),
                static_cast<int>(hwy::ChosenTarget::calls));
    return 1;
  }
  return 0;
}
