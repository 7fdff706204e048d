// bench_attention: speed of whole calls, each as a share of what this machine can do, measured in the same run.
//
//   bench_attention                               the standard cases
//   bench_attention --benchmark_filter=NAME       any case: attention_case.hpp says how names are made
//   bench_attention --acceptance[=TEXT]           every speed the project promises (those whose line contains TEXT);
//                                                 with --clock=thread, one-thread cases leave out the time that others
//                                                 had the core
//
// Counters: pct_of_limit; limit (GFLOP/s, or GB/s where memory is the limit); gflops over visible scores; gbps over
// keys and values. They are of the fastest iteration, Time is the mean of all: on a shared machine the two differ.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "acceptance.hpp"
#include "attention_case.hpp"
#include "limit.hpp"
#include "prepared_case.hpp"
#include "standard_cases.hpp"
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

// Registers the standard cases and, where the filter is the name of another one, that one too.
void register_cases(std::string& filter, Clock clock) {
  std::vector<AttentionCase> cases = standard_cases();
  AttentionCase asked;
  std::string name = filter;
  if (!name.empty() && name.front() == '^') name.erase(0, 1);
  if (!name.empty() && name.back() == '$') name.pop_back();
  if (parse_name(name, asked)) {
    cases = {asked};
    filter = "^" + name + "$";  // t1 would match t16 as well
  }
  for (const AttentionCase& c : cases) {
    benchmark::RegisterBenchmark(name_of(c).c_str(), [c, clock](benchmark::State& state) {
      run_case(state, c, clock);
    })->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace lanewise::bench

int main(int argc, char** argv) {
  constexpr const char* kFilter = "--benchmark_filter=";
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string filter, lines;
  bool acceptance = false;
  lanewise::bench::Clock clock = lanewise::bench::Clock::kWall;
  for (const std::string& argument : arguments) {
    if (argument.rfind(kFilter, 0) == 0) filter = argument.substr(std::strlen(kFilter));
    if (argument == "--clock=thread") clock = lanewise::bench::Clock::kThread;
    if (argument == "--acceptance" || argument.rfind("--acceptance=", 0) == 0) {
      acceptance = true;
      lines = argument.substr(std::min(argument.size(), std::strlen("--acceptance=")));
    }
  }
  if (acceptance) return lanewise::bench::print_acceptance(lines, clock);

  lanewise::bench::register_cases(filter, clock);
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
    std::fprintf(stderr, "no case matches; `bench_attention --benchmark_list_tests` lists the standard ones\n");
    return 1;
  }
  return 0;
}
