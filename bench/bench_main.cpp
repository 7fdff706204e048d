#include "bench_main.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "acceptance.hpp"
#include "limit.hpp"
#include "prepared_case.hpp"
#include "team.hpp"

namespace lanewise::bench {
namespace {

// Google Benchmark calls a case several times to find its number of iterations: the last one prepared stays.
PreparedCase* prepared_now(const AttentionCase& c, std::string& problem) {
  static std::string name;
  static std::unique_ptr<PreparedCase> prepared;
  if (prepared == nullptr || name != name_of(c)) {
    prepared.reset();  // before the next one: both may be large
    prepared = prepare(c, problem);
    name = name_of(c);
  }
  return prepared.get();
}

// Of runs too short to be timed alone.
constexpr int kBatches = 50;

void run_case(benchmark::State& state, const AttentionCase& c, Clock asked_clock) {
  std::string problem;
  PreparedCase* prepared = prepared_now(c, problem);
  if (prepared == nullptr) {
    state.SkipWithError(problem.c_str());
    return;
  }
  const Clock clock = c.threads == 1 ? asked_clock : Clock::kWall;
  (void)measure_limit(c, *prepared);
  double best = std::numeric_limits<double>::infinity();
  const int64_t runs = runs_worth_timing(*prepared);
  for (auto _ : state) {
    if (runs > 1) {
      prepared->run();  // timed below
    } else {
      best = std::min(best, seconds_of(*prepared, 1, clock));
    }
  }
  for (int i = 0; runs > 1 && i < kBatches; ++i) best = std::min(best, seconds_of(*prepared, runs, clock));
  const Limit limit = measure_limit(c, *prepared);
  state.counters["pct_of_limit"] = 100 * limit.seconds / best;
  state.counters["limit"] = limit.rate;
  state.counters["gflops"] = flops_of(c) / best / 1e9;
  state.counters["gbps"] = key_bytes_of(c) / best / 1e9;
  state.SetLabel(prepared->label() + (limit.by_memory ? ", limit: reading" : ", limit: arithmetic"));
}

// A regular expression that matches this name alone (t1 would match t16 as well).
std::string exactly(const std::string& name) {
  std::string escaped;
  for (const char letter : name) {
    if (letter == '+' || letter == '.') escaped += '\\';
    escaped += letter;
  }
  return "^" + escaped + "$";
}

// Registers the standard cases and, where the filter is the name of another one, that one too.
void register_cases(const BenchProgram& program, std::string& filter, Clock clock) {
  std::vector<AttentionCase> cases = program.cases();
  AttentionCase asked;
  std::string name = filter;
  if (!name.empty() && name.front() == '^') name.erase(0, 1);
  if (!name.empty() && name.back() == '$') name.pop_back();
  if (parse_name(name, asked)) {
    cases = {asked};
    filter = exactly(name);
  }
  for (const AttentionCase& c : cases) {
    benchmark::RegisterBenchmark(name_of(c).c_str(), [c, clock](benchmark::State& state) {
      run_case(state, c, clock);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

int bench_main(int argc, char** argv, const BenchProgram& program) {
  constexpr const char* kFilter = "--benchmark_filter=";
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string filter, lines;
  bool acceptance = false;
  Clock clock = Clock::kWall;
  for (const std::string& argument : arguments) {
    if (argument.rfind(kFilter, 0) == 0) filter = argument.substr(std::strlen(kFilter));
    if (argument == "--clock=thread") clock = Clock::kThread;
    if (argument == "--acceptance" || argument.rfind("--acceptance=", 0) == 0) {
      acceptance = true;
      lines = argument.substr(std::min(argument.size(), std::strlen("--acceptance=")));
    }
  }
  if (acceptance) return print_acceptance(program.promises(), lines, clock);

  register_cases(program, filter, clock);
  std::string new_filter = kFilter + filter;
  std::vector<char*> rewritten;
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], "--clock=", std::strlen("--clock=")) == 0) continue;
    rewritten.push_back(std::strncmp(argv[i], kFilter, std::strlen(kFilter)) == 0 ? new_filter.data() : argv[i]);
  }
  argc = static_cast<int>(rewritten.size());
  benchmark::Initialize(&argc, rewritten.data());
  if (benchmark::ReportUnrecognizedArguments(argc, rewritten.data())) return 1;
  if (benchmark::RunSpecifiedBenchmarks() == 0) {
    std::fprintf(stderr, "no case matches; `%s --benchmark_list_tests` lists the standard ones\n", program.name);
    return 1;
  }
  return 0;
}

}  // namespace lanewise::bench
