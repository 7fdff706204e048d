// `lanewise explain`: what a plan decides for a problem and why, as `key: value` lines; with --run also how long a run
// should take by this machine's limits, and how long it takes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "command.hpp"
#include "flags.hpp"
#include "predict.hpp"
#include "run_case.hpp"

namespace lanewise::tools {
namespace {

struct ExplainFlags : Flags {
  std::string shape;
  bool run = false;
  std::string clock;  // empty: wall
};

const char* type_text(int32_t type) {
  return type == LW_TYPE_F32 ? "f32" : type == LW_TYPE_BF16 ? "bf16" : type == LW_TYPE_F16 ? "f16" : "none";
}

// q, k and v of --shape as files of --layout would hold them: random numbers, uniform over +-sqrt(3), variance 1.
TensorSet tensors_of_shape(const ExplainFlags& flags, Load load) {
  if (!flags.input.empty() || !flags.npy.empty() || !flags.ignored.empty()) {
    throw Error("--shape and tensors exclude each other");
  }
  const std::vector<int64_t> n = parse_integers("--shape", flags.shape, 7);
  (void)make_plan(make_problem(n, Flags()), "");  // the library's own message about a size, before it becomes memory
  const struct {
    const char* name;
    int64_t heads, len, dim;
  } wanted[] = {{"q", n[1], n[3], n[5]}, {"k", n[2], n[4], n[5]}, {"v", n[2], n[4], n[6]}};
  TensorSet tensors;
  uint32_t state = 1;
  for (const auto& t : wanted) {
    std::vector<int64_t> shape = {n[0], t.heads, t.len, t.dim};
    if (flags.layout == "blhd") std::swap(shape[1], shape[2]);
    io::Tensor& tensor = tensors[t.name];
    tensor = load == Load::sizes ? io::sizes_of(t.name, io::Type::f32, std::move(shape))
                                 : io::make_tensor(t.name, io::Type::f32, std::move(shape));
    for (int64_t i = 0; i < tensor.count(); ++i) {
      state = state * 1664525u + 1013904223u;
      tensor.as<float>()[i] = static_cast<float>(static_cast<int32_t>(state >> 24) - 128) * (1.75f / 128.0f);
    }
  }
  return tensors;
}

// What is explained, and with --run the very case that is run.
ProblemCase case_of(const ExplainFlags& flags) {
  const Load load = flags.run ? Load::everything : Load::sizes;
  return make_case(flags.shape.empty() ? load_tensors(flags, "", load) : tensors_of_shape(flags, load), flags);
}

void print_reasons(const lanewise::Plan& plan, int32_t threads, const lw_inputs& inputs) {
  std::string text(static_cast<size_t>(plan.reasons(threads, nullptr, 0, &inputs)) + 1, '\0');
  (void)plan.reasons(threads, text.data(), static_cast<int64_t>(text.size()), &inputs);
  text.pop_back();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Keys that the lines above have are reasons of those.
    std::printf("%s%s\n", line.rfind("faster: ", 0) == 0 ? "" : "why_", line.c_str());
  }
}

// Measures the machine around the run: on a shared one a single moment says little.
int run(const ProblemCase& c, const lw_explanation& e, RunOptions options, int32_t threads) {
  options.lse = false;
  options.threads = threads;
  options.should_stop = interrupted();
  catch_interrupts();
  double load = 0;
  const bool is_busy = ::getloadavg(&load, 1) == 1 && load > 0.5 && !options.thread_clock;
  MachineLimits limits = measure_limits(c, e, threads, options.thread_clock);
  double best = 0;
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    options.repeat = 1;
    RunResult result = run_case(c, options);
    if (!result.stopped) {
      constexpr double kRound = 0.15;  // seconds
      options.repeat = std::clamp<int64_t>(static_cast<int64_t>(kRound / std::max(result.seconds, 1e-7)), 2, 10000);
      result = run_case(c, options);
    }
    if (result.stopped) return end_by_signal();
    best = round == 0 ? result.seconds : std::min(best, result.seconds);
    limits = best_of(limits, measure_limits(c, e, threads, options.thread_clock));
  }
  const Prediction prediction = predict(c, e, threads, limits);
  const double predicted = prediction.seconds();
  if (is_busy) {
    std::printf(
        "busy: load average %.1f before this run: others may have taken time from it (--threads 1 --clock thread "
        "leaves that out)\n",
        load);
  }
  const char* peak = is_native(e) ? "bf16_dot_peak" : "fma_peak";
  std::printf("%s: %.1f GFLOP/s on %d threads\n", peak, limits.peak / 1e9, threads);
  std::printf("read_bandwidth: %.1f GB/s of these keys and values\n", limits.bandwidth / 1e9);
  std::printf("predicted_time: %s (arithmetic %s, reading %s)\n", seconds_text(predicted).c_str(),
              seconds_text(prediction.arithmetic).c_str(), seconds_text(prediction.memory).c_str());
  std::printf("measured_time: %s\n", seconds_text(best).c_str());
  std::printf("prediction_error: %+.1f %%\n", 100 * (predicted / best - 1));
  return kSuccess;
}

void check_clock(const ExplainFlags& flags, int32_t threads) {
  if (flags.clock.empty()) return;
  if (flags.clock != "wall" && flags.clock != "thread") {
    throw Error("--clock " + io::quote(flags.clock) + ": wall and thread are allowed");
  }
  if (!flags.run) throw Error("--clock goes with --run");
  if (flags.clock == "thread" && threads != 1) {
    throw Error("--clock thread times one thread, and the run has " + std::to_string(threads) +
                ": --threads 1 is needed");
  }
}

int explain(const ExplainFlags& flags) {
  RunOptions options = run_options(flags);
  const int32_t threads = threads_of(options);
  check_clock(flags, threads);
  options.thread_clock = flags.clock == "thread";
  const ProblemCase c = case_of(flags);
  const lanewise::Problem& problem = c.problem;
  const lanewise::Plan plan = make_plan(problem, flags.target);
  const lw_explanation e = plan.explain(threads);
  const auto number = [](const char* key, int64_t value) {
    std::printf("%s: %lld\n", key, static_cast<long long>(value));
  };
  std::printf("shape: %lld,%lld,%lld,%lld,%lld,%lld,%lld\n", static_cast<long long>(problem.batch),
              static_cast<long long>(problem.q_heads), static_cast<long long>(problem.kv_heads),
              static_cast<long long>(problem.q_len), static_cast<long long>(problem.kv_len),
              static_cast<long long>(problem.qk_dim), static_cast<long long>(problem.v_dim));
  std::printf("types: q %s, k %s, v %s, out %s\n", type_text(problem.q_type), type_text(problem.k_type),
              type_text(problem.v_type), type_text(problem.out_type));
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.qk_dim)));
  std::printf("scale: %.9g\n", static_cast<double>(problem.has_scale != 0 ? problem.scale : scale));
  std::printf("causal: %s\n", problem.causal != 0 ? "yes" : "no");
  std::printf("window: %lld,%lld\n", static_cast<long long>(problem.window_left),
              static_cast<long long>(problem.window_right));
  std::printf("target: %s\nkernel: %s\narithmetic: %s\n", e.target, e.kernel, e.arithmetic);
  number("lanes", e.lanes);
  number("tile_rows", e.tile_rows);
  number("tile_keys", e.tile_keys);
  number("row_tiles", e.row_tiles);
  number("tasks", e.tasks);
  number("phases", e.phases);
  number("threads", threads);
  number("workspace", e.workspace);
  std::printf("note: %s\n", e.note != nullptr && e.note[0] != '\0' ? e.note : "none");
  print_reasons(plan, threads, c.inputs);
  return flags.run ? run(c, e, options, threads) : kSuccess;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("explain", "The plan for a problem and its reasons, as key: value lines");
  const auto flags = std::make_shared<ExplainFlags>();
  add_problem_flags(*command, *flags);
  command->add_option("--shape", flags->shape, "batch,q_heads,kv_heads,q_len,kv_len,qk_dim,v_dim, instead of tensors")
      ->option_text("B,H,HK,L,S,D,DV");
  command->add_flag("--run", flags->run, "run it: predicted time by this machine's limits, measured time, error");
  command->add_option("--clock", flags->clock, "of --run: thread leaves out what others took of the core (--threads 1)")
      ->option_text("wall|thread");
  command->footer("Example: lanewise explain --shape 1,32,8,512,4096,128,128 --causal --threads 8");
  command->callback([flags, &chosen] { chosen = [flags] { return explain(*flags); }; });
}

}  // namespace lanewise::tools
