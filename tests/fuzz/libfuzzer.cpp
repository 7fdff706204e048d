// The same checks behind libFuzzer's entry, for coverage-guided runs (CONTRIBUTING.md, "Fuzzing").
#include <cstdio>
#include <cstdlib>

#include "fuzz_abi.hpp"
#include "fuzz_problem.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace lanewise::test;
  if (size == 0) return 0;
  Draw draw(bytes + 1, size - 1);
  std::string text;
  switch (bytes[0] % 3) {
    case 0: {
      const FuzzProblem problem = draw_problem(draw);
      text = check_problem(problem);
      if (!text.empty()) text = describe(problem) + ": " + text;
      break;
    }
    case 1:
      text = check_wrong_problem(draw);
      break;
    default:
      text = check_wrong_run(draw);
  }
  if (text.empty()) return 0;
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}
