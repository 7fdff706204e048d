// The same checks behind libFuzzer's entry, for coverage-guided runs (CONTRIBUTING.md, "Fuzzing"). LANEWISE_ENTRY names
// one of them: a fuzzer a check, as an input that is good for one says nothing about another.
#include <cstdio>
#include <cstdlib>

#include "fuzz_abi.hpp"
#include "fuzz_problem.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace lanewise::test {
namespace {

[[maybe_unused]] std::string problem(Draw& draw) {
  const FuzzProblem problem = draw_problem(draw);
  const std::string text = check_problem(problem);
  return text.empty() ? text : describe(problem) + ": " + text;
}
[[maybe_unused]] std::string wrong_problem(Draw& draw) { return check_wrong_problem(draw); }
[[maybe_unused]] std::string wrong_run(Draw& draw) { return check_wrong_run(draw); }

}  // namespace
}  // namespace lanewise::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  lanewise::test::Draw draw(bytes, size);
  const std::string text = lanewise::test::LANEWISE_ENTRY(draw);
  if (text.empty()) return 0;
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}
