#include "acceptance.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "group_runs.hpp"
#include "limit.hpp"
#include "src/targets.hpp"
#include "standard_cases.hpp"

namespace lanewise::bench {
namespace {

bool is_at_least(Measure measure) {
  switch (measure) {
    case Measure::kTimeRatio:
    case Measure::kMicroseconds:
    case Measure::kPlanMake:
    case Measure::kIdleTeam:
      return false;
    default:
      return true;
  }
}

const char* unit_of(Measure measure) {
  switch (measure) {
    case Measure::kShareOfReading:
    case Measure::kShareOfLimit:
    case Measure::kReadingRatio:
      return "GB/s";
    case Measure::kReadingGain:
      return "x";
    case Measure::kTimeRatio:
    case Measure::kIdleTeam:
      return "ms";
    case Measure::kMicroseconds:
    case Measure::kPlanMake:
      return "us";
    default:
      return "GF/s";
  }
}

// One promise in one run, in its measure's unit.
struct Found {
  double value = 0, limit = 0;
};

// `a`: the promise's case, or another one of those up to its last.
Found find(const PromiseGroup& group, const Promise& promise, size_t a, const std::vector<CaseRuns>& runs, size_t r) {
  const auto run_of = [&](size_t i) -> const CaseRun& { return runs[i][r]; };
  const auto rate = [&](size_t i) { return flops_of(group.cases[i]) / run_of(i).seconds / 1e9; };
  const auto reading = [&](size_t i) { return key_bytes_of(group.cases[i]) / run_of(i).seconds / 1e9; };
  const CaseRun& run = run_of(a);
  switch (promise.measure) {
    case Measure::kShareOfPeak:
      return {rate(a), run.peak};
    case Measure::kShareOfReading:
      return {reading(a), run.bandwidth};
    case Measure::kShareOfLimit:
      return {reading(a),
              key_bytes_of(group.cases[a]) / 1e9 / limit_of(group.cases[a], run.peak, run.bandwidth).seconds};
    case Measure::kRateRatio:
      return {rate(a), rate(promise.b)};
    case Measure::kReadingRatio:
      return {reading(a), reading(promise.b)};
    case Measure::kReadingGain:
      return {reading(a) / reading(promise.b), run.bandwidth / run_of(promise.b).bandwidth};
    case Measure::kTimeRatio: {
      const double c = promise.c == Promise::kNone ? 0 : run_of(promise.c).seconds;
      return {run.seconds * 1e3, (run_of(promise.b).seconds + c) * 1e3};
    }
    case Measure::kMicroseconds:
      return {run.seconds * 1e6, promise.asked};
    case Measure::kPlanMake:
      return {run.plan_make * 1e6, promise.asked};
    case Measure::kIdleTeam:
      return {run.idle_time * 1e3, promise.asked};
    case Measure::kHostRate:
      return {run.host_after, run.host_before};
  }
  return {};
}

double median(std::array<double, kRuns> values) {
  std::sort(values.begin(), values.end());
  return values[kRuns / 2];
}

// Medians over the runs.
struct Line {
  std::string text;
  double value, limit, share;
};

Line line_of(const PromiseGroup& group, const Promise& promise, size_t a, const std::vector<CaseRuns>& runs) {
  std::array<double, kRuns> values{}, limits{}, shares{};
  for (size_t r = 0; r < kRuns; ++r) {
    const Found found = find(group, promise, a, runs, r);
    values[r] = found.value;
    limits[r] = found.limit;
    shares[r] = found.value / found.limit;
  }
  return {promise.text, median(values), median(limits), median(shares)};
}

Line lowest_line(const PromiseGroup& group, const Promise& promise, const std::vector<CaseRuns>& runs) {
  Line lowest = line_of(group, promise, promise.a, runs);
  if (promise.last == Promise::kNone) return lowest;
  size_t at = promise.a;
  for (size_t i = promise.a + 1; i <= promise.last; ++i) {
    const Line line = line_of(group, promise, i, runs);
    if (line.share >= lowest.share) continue;
    lowest = line;
    at = i;
  }
  lowest.text += " (" + std::to_string(rows_of_kv_head(group.cases[at])) + ")";
  return lowest;
}

// True if the line was held.
bool print_line(const Promise& promise, const Line& line) {
  const bool at_least = is_at_least(promise.measure);
  // Where the limit is what is asked, the share of it is compared with 1.
  const bool limit_is_asked = promise.measure == Measure::kMicroseconds || promise.measure == Measure::kPlanMake ||
                              promise.measure == Measure::kIdleTeam;
  const double asked = limit_is_asked ? 1.0 : promise.asked;
  const bool held = at_least ? line.share >= asked : line.share <= asked;
  std::printf("%-57s %8.2f %8.2f %-4s %6.3f  %s %5.3f  %s\n", line.text.c_str(), line.value, line.limit,
              unit_of(promise.measure), line.share, at_least ? ">=" : "<=", asked, held ? "yes" : "NO");
  std::fflush(stdout);
  return held;
}

}  // namespace

int print_acceptance(const std::vector<PromiseGroup>& groups, const std::string& text, Clock clock) {
  std::printf(
      "Target %s. Medians of %d runs of best-of-%d; limit: the FMA peak measured before, within and after each run, the "
      "best reading of as many passes in turns with its repeats, or the case compared with\n\n",
      target_name(best_target()), kRuns, kRepeats);
  if (clock == Clock::kThread) std::printf("One-thread cases are timed while their thread runs.\n\n");
  std::printf("%-57s %8s %8s %-4s %6s  %-8s  %s\n", "line", "value", "limit", "", "share", "asked", "held");
  int lines = 0, held = 0, failed = 0;
  for (const PromiseGroup& group : groups) {
    std::vector<Promise> wanted;
    for (const Promise& promise : group.promises) {
      if (promise.text.find(text) != std::string::npos) wanted.push_back(promise);
    }
    if (wanted.empty()) continue;
    std::string problem;
    const std::vector<CaseRuns> runs = measure_group(group, wanted, clock, problem);
    if (!problem.empty()) {
      std::printf("%-57s not measured: %s\n", wanted.front().text.c_str(), problem.c_str());
      ++failed;
      continue;
    }
    for (const Promise& promise : wanted) {
      ++lines;
      held += print_line(promise, lowest_line(group, promise, runs)) ? 1 : 0;
    }
  }
  std::printf("\n%d of %d lines held\n", held, lines);
  return failed > 0 || lines == 0 ? 1 : 0;
}

}  // namespace lanewise::bench
