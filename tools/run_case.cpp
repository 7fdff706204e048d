#include "run_case.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

namespace lanewise::tools {
namespace {

// A simple pool for LW_EXECUTOR_CALLBACK: as many threads as asked for take indices from a counter.
void parallel_for(void* context, int64_t n, lw_share share, void* argument) {
  const int64_t threads = std::min<int64_t>(n, *static_cast<const int32_t*>(context));
  std::atomic<int64_t> next{0};
  on_threads(threads, [&](int64_t) {
    for (int64_t i = next++; i < n; i = next++) share(argument, i);
  });
}

class Runner {
 public:
  Runner(const ProblemCase& c, const RunOptions& options, RunResult& result)
      : case_(c), options_(options), result_(result), plan_(make_plan(c.problem, options.target)) {
    threads_ = threads_of(options);
    const int64_t size = plan_.workspace_size(threads_);
    workspace_ = io::Buffer(static_cast<size_t>(std::max<int64_t>(size, 0)));
    result_.threads = threads_;
    result_.explanation = plan_.explain(threads_);
  }

  // Seconds, or negative when stopped.
  double run(const lanewise::Outputs& outputs) {
    const double start = now();
    const lanewise::Status status = options_.executor == "parts" ? run_parts(outputs) : run_whole(outputs);
    const double taken = now() - start;
    if (status.code() == LW_STOPPED) return -1;
    require(status);
    return taken;
  }

 private:
  double now() const {
    timespec time;
    (void)clock_gettime(options_.thread_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  lanewise::Status run_whole(const lanewise::Outputs& outputs) {
    return plan_.run(case_.inputs, outputs, workspace_.data(), static_cast<int64_t>(workspace_.size()),
                     executor_of(options_, threads_));
  }

  // As an engine's own thread team would: everyone does a part, then waits.
  lanewise::Status run_parts(const lanewise::Outputs& outputs) {
    std::vector<lanewise::Status> statuses(static_cast<size_t>(threads_));
    for (int32_t phase = 0; phase < plan_.phases(); ++phase) {
      on_threads(threads_, [&](int64_t ith) {
        statuses[static_cast<size_t>(ith)] =
            plan_.run_part(case_.inputs, outputs, workspace_.data(), static_cast<int64_t>(workspace_.size()), phase,
                           static_cast<int32_t>(ith), threads_);
      });
      for (const lanewise::Status& status : statuses) {
        if (!status) return status;
      }
    }
    return {};
  }

  const ProblemCase& case_;
  const RunOptions& options_;
  RunResult& result_;
  lanewise::Plan plan_;
  int32_t threads_ = 1;
  io::Buffer workspace_;
};

// Zeros in rows that belong to no sequence: the library leaves those alone.
void clear_unused_rows(io::Tensor& tensor, const ProblemCase& c, bool has_dim) {
  const lw_problem& p = c.problem;
  const RowIndex index = {strides_of(tensor.shape, has_dim ? c.axes : c.row_axes()), nullptr};
  const size_t element = io::type_size(tensor.type);
  const size_t row = (has_dim ? static_cast<size_t>(p.v_dim) : 1) * element;
  const auto clear = [&](int64_t b, int64_t from, int64_t to) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t i = from; i < to; ++i) {
        std::memset(tensor.bytes.data() + static_cast<size_t>(index(b, h, i)) * element, 0, row);
      }
    }
  };
  const int32_t* cu = c.inputs.cu_seqlens_q;
  if (cu != nullptr) {
    clear(0, 0, cu[0]);
    clear(0, cu[p.batch], p.total_q);
  }
  for (int64_t b = 0; b < p.batch && c.inputs.q_lengths != nullptr; ++b) {
    const int64_t first = cu != nullptr ? cu[b] : 0;
    const int64_t end = cu != nullptr ? cu[b + 1] : p.q_len;
    clear(cu != nullptr ? 0 : b, first + c.inputs.q_lengths[b], end);
  }
}

}  // namespace

RunOptions run_options(const Flags& flags) {
  RunOptions options;
  options.executor = flags.executor;
  options.target = flags.target;
  options.threads = flags.threads;
  options.pad = flags.pad;
  for (const char* name : {"openmp", "caller", "callback", "parts"}) {
    if (flags.executor != name) continue;
    if (flags.threads < 0 || flags.threads > 4096) {
      throw Error("--threads " + std::to_string(flags.threads) + ": 0 (OpenMP's default) ... 4096 is allowed");
    }
    return options;
  }
  throw Error("--executor " + io::quote(flags.executor) + ": openmp, caller, callback and parts are allowed");
}

void on_threads(int64_t n, const std::function<void(int64_t)>& work) {
  std::vector<std::thread> threads;
  int64_t i = 1;
  try {
    threads.reserve(static_cast<size_t>(n));
    for (; i < n; ++i) threads.emplace_back(work, i);
  } catch (const std::exception&) {
  }
  work(int64_t{0});
  for (; i < n; ++i) work(i);
  for (std::thread& thread : threads) thread.join();
}

lanewise::Executor executor_of(const RunOptions& options, const int32_t& threads) {
  lanewise::Executor executor = lanewise::Executor::openmp(options.threads);
  if (options.executor == "caller") executor = lanewise::Executor::caller();
  if (options.executor == "callback")
    executor = lanewise::Executor::callback(const_cast<int32_t*>(&threads), parallel_for, threads);
  executor.should_stop = options.should_stop;
  return executor;
}

int32_t threads_of(const RunOptions& options) {
  return options.executor == "caller" ? 1 : options.threads > 0 ? options.threads : default_threads();
}

void require(const lanewise::Status& status) {
  if (status) return;
  const std::string message = status.message();
  // The library's arrays by the names that tensors have here.
  for (const auto& [ours, theirs] : {std::pair<const char*, const char*>{"lengths", "kv_lengths["},
                                     {"kv_start", "kv_starts["},
                                     {"q_offset", "q_offsets["}}) {
    if (message.rfind(theirs, 0) == 0) throw Error(ours + message.substr(std::strlen(theirs) - 1));
  }
  throw Error(message);
}

lanewise::Plan make_plan(const lanewise::Problem& problem, const std::string& target) {
  lanewise::Options options;
  if (!target.empty()) options.target = target.c_str();
  lanewise::Plan plan;
  require(lanewise::Plan::make(problem, options, plan));
  return plan;
}

int32_t default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr) {
    const long value = std::strtol(text, nullptr, 10);
    if (value > 0) return static_cast<int32_t>(std::min(value, 4096L));
  }
#ifdef __linux__
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

RunResult run_case(const ProblemCase& c, const RunOptions& options) {
  RunResult result;
  Runner runner(c, options, result);
  struct Wanted {
    const char* name;
    bool wanted, has_dim;
    lw_tensor lanewise::Outputs::*view;
    io::Tensor RunResult::*to;
    Placed memory;
  };
  Wanted all[] = {{"out", true, true, &lanewise::Outputs::out, &RunResult::out, {}},
                  {"lse", options.lse, false, &lanewise::Outputs::lse, &RunResult::lse, {}},
                  {"state_max", options.state, false, &lanewise::Outputs::state_max, &RunResult::state_max, {}},
                  {"state_sum", options.state, false, &lanewise::Outputs::state_sum, &RunResult::state_sum, {}},
                  {"state_acc", options.state, true, &lanewise::Outputs::state_acc, &RunResult::state_acc, {}}};
  lanewise::Outputs outputs;
  for (Wanted& output : all) {
    if (!output.wanted) continue;
    const io::Type type = output.to == &RunResult::out ? c.out_type : io::Type::f32;
    output.memory = Placed::poisoned(output.name, type, output.has_dim ? c.out_shape : c.lse_shape, options.pad);
    outputs.*output.view = output.memory.output(output.has_dim ? c.axes : c.row_axes());
  }
  for (int64_t i = 0; i < options.repeat; ++i) {
    const double seconds = runner.run(outputs);
    if (seconds < 0) {
      result.stopped = true;
      return result;
    }
    result.seconds = i == 0 ? seconds : std::min(result.seconds, seconds);
  }
  for (Wanted& output : all) {
    if (!output.wanted) continue;
    if (!output.memory.padding_intact())
      throw std::logic_error(std::string("the library wrote into the padding of ") + output.name);
    result.*output.to = std::move(output.memory).without_padding();
    clear_unused_rows(result.*output.to, c, output.has_dim);
  }
  return result;
}

}  // namespace lanewise::tools
