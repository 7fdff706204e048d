// Random problems and random wrong calls, from a seed: a small number of each in every run of the suite, and as many as
// one likes:
//
//   test_fuzz 'random problems*' --problems 1000000 --seconds 3600 --seed 7
//
// A failure prints its seed and a description made as small as it gets, which goes into kCorpus.
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <functional>

#include "corpus.hpp"
#include "fuzz_abi.hpp"
#include "fuzz_problem.hpp"
#include "support/targets.hpp"

namespace {

struct Budget {
  int64_t problems = 20000;
  double seconds = 25;
  uint64_t seed = 1;
} budget;

}  // namespace

namespace lanewise::test {
namespace {

// Calls try_one(seed) for one seed after another until the budget is used up.
void spend(const char* what, const std::function<std::string(uint64_t)>& try_one) {
  require_some_target();
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  int64_t done = 0;
  for (; done < budget.problems && elapsed() < budget.seconds; ++done) {
    const uint64_t seed = budget.seed + static_cast<uint64_t>(done);
    INFO("--seed " << seed << " --problems 1");
    const std::string text = try_one(seed);
    if (!text.empty()) FAIL(text);
  }
  std::fprintf(stderr, "%lld %s from seed %llu, %.1f s\n", static_cast<long long>(done), what,
               static_cast<unsigned long long>(budget.seed), elapsed());
  CHECK(done > 0);
}

TEST_CASE("random problems: both kernels, all targets, the canonical bits and the reference") {
  spend("problems", [](uint64_t seed) {
    Draw draw(seed);
    const FuzzProblem problem = draw_problem(draw);
    const std::string text = check_problem(problem);
    if (text.empty()) return text;
    const FuzzProblem small = shrink(problem);
    return describe(problem) + "\n" + text + "\nsmaller: " + describe(small) + "\n" + check_problem(small);
  });
}

TEST_CASE("random wrong problems are a status") {
  spend("wrong problems", [](uint64_t seed) {
    Draw draw(seed);
    return check_wrong_problem(draw);
  });
}

TEST_CASE("random wrong runs are a status, and write nothing") {
  spend("wrong runs", [](uint64_t seed) {
    Draw draw(seed);
    return check_wrong_run(draw);
  });
}

TEST_CASE("problems that failed once, and some of each kind") {
  require_some_target();
  for (const char* text : kCorpus) {
    INFO(text);
    CHECK(check_problem(parse_problem(text)) == "");
  }
}

TEST_CASE("wrong problems that failed once") {
  require_some_target();
  for (const auto& choices : kWrongProblems) {
    Draw draw(reinterpret_cast<const uint8_t*>(choices), sizeof choices - 1);
    CHECK(check_wrong_problem(draw) == "");
  }
}

TEST_CASE("a described problem is the problem") {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    Draw draw(seed);
    const FuzzProblem problem = draw_problem(draw);
    CHECK(parse_problem(describe(problem)).field == problem.field);
  }
  count_case(targets().at(0));
}

}  // namespace
}  // namespace lanewise::test

int main(int argc, char** argv) {
  Catch::Session session;
  using Catch::Clara::Opt;
  session.cli(session.cli() | Opt(budget.problems, "count")["--problems"]("most random problems of a test case") |
              Opt(budget.seconds, "seconds")["--seconds"]("most seconds of a test case") |
              Opt(budget.seed, "seed")["--seed"]("of the first problem"));
  if (const int code = session.applyCommandLine(argc, argv); code != 0) return code;
  return session.run();
}
