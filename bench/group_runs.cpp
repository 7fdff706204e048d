#include "group_runs.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "case_tensors.hpp"
#include "lanewise/lanewise.hpp"
#include "limit.hpp"
#include "peaks.hpp"
#include "prepared_case.hpp"

namespace lanewise::bench {
namespace {

// What the promises need to know of a case.
struct Needs {
  bool time = false, peak = false, bandwidth = false, plan_make = false, idle = false;
  bool any() const { return time || idle; }
};

std::vector<Needs> needs_of(const PromiseGroup& group, const std::vector<Promise>& wanted) {
  std::vector<Needs> needs(group.cases.size());
  for (const Promise& promise : wanted) {
    const size_t last = promise.last == Promise::kNone ? promise.a : promise.last;
    for (size_t i = promise.a; i <= last; ++i) {
      const Measure m = promise.measure;
      needs[i].time = true;
      if (m == Measure::kShareOfPeak || m == Measure::kShareOfLimit) needs[i].peak = true;
      if (m == Measure::kShareOfReading || m == Measure::kShareOfLimit) needs[i].bandwidth = true;
      if (m == Measure::kPlanMake) needs[i].plan_make = true;
      if (m == Measure::kIdleTeam || m == Measure::kHostRate) needs[i].idle = true;
    }
    for (const size_t i : {promise.b, promise.c}) {
      if (i != Promise::kNone) needs[i].time = true;
    }
    if (promise.measure == Measure::kReadingGain) needs[promise.a].bandwidth = needs[promise.b].bandwidth = true;
  }
  return needs;
}

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

double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A case, ready to be measured.
class MeasuredCase {
 public:
  MeasuredCase(const AttentionCase& c, const Needs& needs, Clock clock, std::string& problem)
      : case_(c), needs_(needs), clock_(c.threads == 1 ? clock : Clock::kWall) {
    if (needs.idle) host_before_ = arithmetic_peak_of(c);
    prepared_ = prepare(c, problem);
    if (prepared_ != nullptr) runs_ = runs_worth_timing(*prepared_);
  }

  void time_once(CaseRun& run) const {
    run.seconds = std::min(run.seconds, seconds_of(*prepared_, runs_, clock_));
    if (needs_.plan_make) run.plan_make = std::min(run.plan_make, seconds_of_plan_make(case_));
  }
  void read_once(CaseRun& run) const {
    if (needs_.bandwidth)
      run.bandwidth = std::max(run.bandwidth, read_bandwidth_once(prepared_->read_regions(), case_.threads, clock_));
  }
  void measure_peak(CaseRun& run) const {
    if (needs_.peak) run.peak = std::max(run.peak, arithmetic_peak_of(case_));
  }
  void measure_idle(CaseRun& run) const {
    if (!needs_.idle) return;
    prepared_->run();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const double start = processor_time();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    run.idle_time = processor_time() - start;
    run.host_before = host_before_;
    run.host_after = arithmetic_peak_of(case_);
  }

 private:
  const AttentionCase& case_;
  const Needs needs_;
  const Clock clock_;
  std::unique_ptr<PreparedCase> prepared_;
  int64_t runs_ = 1;
  double host_before_ = 0;
};

// All runs of the cases first ... last - 1 that are needed, in turns.
void measure_cases(const PromiseGroup& group, const std::vector<Needs>& needs, size_t first, size_t last, Clock clock,
                   std::vector<CaseRuns>& runs, std::string& problem) {
  std::vector<std::unique_ptr<MeasuredCase>> cases(group.cases.size());
  for (size_t i = first; i < last && problem.empty(); ++i) {
    if (needs[i].any()) cases[i] = std::make_unique<MeasuredCase>(group.cases[i], needs[i], clock, problem);
  }
  if (!problem.empty()) return;
  const auto for_each = [&](int run, void (MeasuredCase::*measure)(CaseRun&) const) {
    for (size_t i = first; i < last; ++i) {
      if (cases[i] != nullptr) (*cases[i].*measure)(runs[i][static_cast<size_t>(run)]);
    }
  };
  for (int run = 0; run < kRuns; ++run) {
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      if (repeat % (kRepeats / 2) == 0) for_each(run, &MeasuredCase::measure_peak);
      for_each(run, &MeasuredCase::time_once);
      for_each(run, &MeasuredCase::read_once);
    }
    for_each(run, &MeasuredCase::measure_peak);
    for_each(run, &MeasuredCase::measure_idle);
  }
}

}  // namespace

std::vector<CaseRuns> measure_group(const PromiseGroup& group, const std::vector<Promise>& wanted, Clock clock,
                                    std::string& problem) {
  const std::vector<Needs> needs = needs_of(group, wanted);
  const size_t cases = group.cases.size();
  std::vector<CaseRuns> runs(cases);
  const size_t step = group.in_turns ? cases : 1;
  for (size_t i = 0; i < cases && problem.empty(); i += step) {
    measure_cases(group, needs, i, i + step, clock, runs, problem);
  }
  return runs;
}

}  // namespace lanewise::bench
