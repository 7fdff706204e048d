#include "acceptance.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "acceptance_lines.hpp"
#include "limit.hpp"
#include "prepared_case.hpp"
#include "standard_cases.hpp"
#include "team.hpp"

namespace lanewise::bench {
namespace {

constexpr int kRuns = 3;
constexpr int kRepeats = 20;

// What one run of a group found, by case.
struct GroupRun {
  std::vector<double> seconds;  // best of kRepeats
  std::vector<double> peak;     // GFLOP/s: the better one of before and after
};

double seconds_of_plan_make(const AttentionCase& c) {
  constexpr int kPlans = 100;
  const Problem problem = problem_of(c);
  Options options;
  options.target = c.target.c_str();
  const double start = now();
  for (int i = 0; i < kPlans; ++i) {
    Plan plan;
    (void)Plan::make(problem, options, plan);
  }
  return (now() - start) / kPlans;
}

// The cases of a group that some wanted promise needs, prepared; others stay empty.
class PreparedGroup {
 public:
  PreparedGroup(const PromiseGroup& group, const std::vector<Promise>& wanted, Clock clock)
      : group_(group), clock_(clock) {
    prepared_.resize(group.cases.size());
    runs_.resize(group.cases.size(), 1);
    needs_peak_.resize(group.cases.size(), false);
    for (const Promise& promise : wanted) {
      prepare_case(promise.a);
      if (promise.measure == Measure::kRateRatio || promise.measure == Measure::kTimeRatio) prepare_case(promise.b);
      if (promise.measure == Measure::kShareOfPeak) needs_peak_[promise.a] = true;
      plan_make_ = plan_make_ || promise.measure == Measure::kPlanMake;
    }
  }

  const std::string& problem() const { return problem_; }

  // `plan_make`: seconds of Plan::make for the first case.
  GroupRun measure(double& plan_make) {
    GroupRun run;
    run.seconds.resize(prepared_.size(), std::numeric_limits<double>::infinity());
    run.peak.resize(prepared_.size(), 0.0);
    measure_peaks(run);
    plan_make = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (size_t i = 0; i < prepared_.size(); ++i) {
        if (prepared_[i] != nullptr) run.seconds[i] = std::min(run.seconds[i], measure_case(i));
      }
      if (plan_make_) plan_make = std::min(plan_make, seconds_of_plan_make(group_.cases[0]));
    }
    measure_peaks(run);
    return run;
  }

 private:
  void prepare_case(size_t i) {
    if (prepared_[i] != nullptr) return;
    prepared_[i] = prepare(group_.cases[i], problem_);
    if (prepared_[i] != nullptr) runs_[i] = runs_worth_timing(*prepared_[i]);
  }

  double measure_case(size_t i) const {
    return seconds_of(*prepared_[i], runs_[i], group_.cases[i].threads == 1 ? clock_ : Clock::kWall);
  }

  void measure_peaks(GroupRun& run) const {
    for (size_t i = 0; i < prepared_.size(); ++i) {
      if (needs_peak_[i]) run.peak[i] = std::max(run.peak[i], arithmetic_peak_of(group_.cases[i]));
    }
  }

  const PromiseGroup& group_;
  const Clock clock_;
  std::vector<std::unique_ptr<PreparedCase>> prepared_;
  std::vector<int64_t> runs_;
  std::vector<bool> needs_peak_;
  bool plan_make_ = false;
  std::string problem_;
};

double median(std::array<double, kRuns> values) {
  std::sort(values.begin(), values.end());
  return values[kRuns / 2];
}

// One promise in one run. value and limit are GFLOP/s, or milliseconds or microseconds where times are compared.
struct Found {
  double value = 0, limit = 0, share = 0;
};

Found find(const PromiseGroup& group, const Promise& promise, const GroupRun& run, double plan_make) {
  const auto rate = [&](size_t i) { return flops_of(group.cases[i]) / run.seconds[i] / 1e9; };
  Found found;
  switch (promise.measure) {
    case Measure::kShareOfPeak:
      found = {rate(promise.a), run.peak[promise.a], rate(promise.a) / run.peak[promise.a]};
      break;
    case Measure::kRateRatio:
      found = {rate(promise.a), rate(promise.b), rate(promise.a) / rate(promise.b)};
      break;
    case Measure::kTimeRatio:
      found = {run.seconds[promise.a] * 1e3, run.seconds[promise.b] * 1e3,
               run.seconds[promise.a] / run.seconds[promise.b]};
      break;
    case Measure::kMicroseconds:
      found = {run.seconds[promise.a] * 1e6, promise.asked, run.seconds[promise.a] * 1e6 / promise.asked};
      break;
    case Measure::kPlanMake:
      found = {plan_make * 1e6, promise.asked, plan_make * 1e6 / promise.asked};
      break;
  }
  return found;
}

const char* unit_of(Measure measure) {
  if (measure == Measure::kTimeRatio) return "ms";
  return measure == Measure::kShareOfPeak || measure == Measure::kRateRatio ? "GF/s" : "us";
}

// Prints the line; true if it was held.
bool print_line(const Promise& promise, const std::array<Found, kRuns>& runs) {
  const auto median_of = [&](double Found::*field) { return median({runs[0].*field, runs[1].*field, runs[2].*field}); };
  const bool at_least = promise.measure == Measure::kShareOfPeak || promise.measure == Measure::kRateRatio;
  const bool is_time = promise.measure == Measure::kMicroseconds || promise.measure == Measure::kPlanMake;
  const double value = median_of(&Found::value), limit = median_of(&Found::limit), share = median_of(&Found::share);
  const double asked = is_time ? 1.0 : promise.asked;  // limit is what is asked
  const bool held = at_least ? share >= asked : share <= asked;
  std::printf("%-52s %8.2f %8.2f %-4s %6.3f  %s %5.3f  %s\n", promise.text.c_str(), value, limit,
              unit_of(promise.measure), share, at_least ? ">=" : "<=", asked, held ? "yes" : "NO");
  std::fflush(stdout);
  return held;
}

}  // namespace

int print_acceptance(const std::string& text, Clock clock) {
  std::printf(
      "Target %s. Medians of %d runs of best-of-%d; limit: the FMA peak measured between the runs, or the case "
      "compared with\n\n",
      best_target_name(), kRuns, kRepeats);
  if (clock == Clock::kThread) std::printf("One-thread cases are timed while their thread runs.\n\n");
  std::printf("%-52s %8s %8s %-4s %6s  %-8s  %s\n", "line", "value", "limit", "", "share", "asked", "held");
  int lines = 0, held = 0, failed = 0;
  for (const PromiseGroup& group : promise_groups()) {
    std::vector<Promise> wanted;
    for (const Promise& promise : group.promises) {
      if (promise.text.find(text) != std::string::npos) wanted.push_back(promise);
    }
    if (wanted.empty()) continue;
    PreparedGroup prepared(group, wanted, clock);
    if (!prepared.problem().empty()) {
      std::printf("%-52s not measured: %s\n", wanted.front().text.c_str(), prepared.problem().c_str());
      ++failed;
      continue;
    }
    std::vector<std::array<Found, kRuns>> found(wanted.size());
    for (int i = 0; i < kRuns; ++i) {
      double plan_make = 0;
      const GroupRun run = prepared.measure(plan_make);
      for (size_t w = 0; w < wanted.size(); ++w)
        found[w][static_cast<size_t>(i)] = find(group, wanted[w], run, plan_make);
    }
    for (size_t w = 0; w < wanted.size(); ++w) {
      ++lines;
      held += print_line(wanted[w], found[w]) ? 1 : 0;
    }
  }
  std::printf("\n%d of %d lines held\n", held, lines);
  return failed > 0 || lines == 0 ? 1 : 0;
}

}  // namespace lanewise::bench
