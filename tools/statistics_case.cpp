#include "statistics_case.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>

namespace lanewise::tools {
namespace {

bool ragged_q(const ProblemCase& c) { return c.problem.q_layout == LW_LAYOUT_RAGGED; }
bool ragged_kv(const ProblemCase& c) { return c.problem.kv_layout == LW_LAYOUT_RAGGED; }

std::vector<int64_t> weights_shape(const ProblemCase& c) {
  const lw_problem& p = c.problem;
  if (ragged_q(c)) return {p.q_heads, p.total_q, p.kv_len};
  return {p.batch, p.q_heads, p.q_len, p.kv_len};
}
Axes weights_axes(const ProblemCase& c) { return ragged_q(c) ? Axes{-1, 0, 1, 2} : Axes{0, 1, 2, 3}; }

std::vector<int64_t> columns_shape(const ProblemCase& c) {
  const lw_problem& p = c.problem;
  if (ragged_kv(c)) return {p.q_heads, p.total_kv};
  return {p.batch, p.q_heads, p.kv_len};
}
Axes columns_axes(const ProblemCase& c) { return ragged_kv(c) ? Axes{-1, 0, 1, -1} : Axes{0, 1, 2, -1}; }

int64_t from_start(int64_t at, int64_t n) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); }

int64_t parse_integer(const std::string& text, int64_t otherwise, const std::string& whole) {
  if (text.empty()) return otherwise;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  const bool digit = text[0] == '-' || (text[0] >= '0' && text[0] <= '9');
  if (!digit || *end != '\0' || errno != 0) {
    throw Error("--statistic-rows " + io::quote(whole) + ": two integers A:B are needed, either may be left out");
  }
  return value;
}

lanewise::Status run_once(const lanewise::Plan& plan, const ProblemCase& c, const lw_const_tensor& lse,
                          const lanewise::Statistics& statistics, io::Buffer& workspace, const RunOptions& options,
                          const int32_t& threads) {
  const int64_t size = static_cast<int64_t>(workspace.size());
  if (options.executor != "parts") {
    return plan.run_statistics(c.inputs, lse, statistics, workspace.data(), size, executor_of(options, threads));
  }
  std::vector<lanewise::Status> statuses(static_cast<size_t>(threads));
  on_threads(threads, [&](int64_t ith) {
    statuses[static_cast<size_t>(ith)] =
        plan.run_statistics_part(c.inputs, lse, statistics, workspace.data(), size, static_cast<int32_t>(ith), threads);
  });
  for (const lanewise::Status& status : statuses) {
    if (!status) return status;
  }
  return {};
}

}  // namespace

void parse_rows(const std::string& text, StatisticsWanted& wanted) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw Error("--statistic-rows " + io::quote(text) + ": two integers A:B are needed, either may be left out");
  wanted.row_begin = parse_integer(text.substr(0, colon), 0, text);
  wanted.row_end = parse_integer(text.substr(colon + 1), LW_TO_END, text);
}

StatisticsResult run_statistics(const ProblemCase& c, const RunOptions& options, const io::Tensor& lse,
                                const StatisticsWanted& wanted) {
  StatisticsResult result;
  const lanewise::Plan plan = make_plan(c.problem, options.target);
  const int32_t threads = threads_of(options);
  io::Buffer workspace(static_cast<size_t>(std::max<int64_t>(plan.workspace_size(threads), 0)));
  lanewise::Statistics statistics;
  statistics.row_begin = wanted.row_begin;
  statistics.row_end = wanted.row_end;
  struct Output {
    const char* name;
    bool wanted;
    std::vector<int64_t> shape;
    Axes axes;
    lw_tensor lanewise::Statistics::*view;
    io::Tensor StatisticsResult::*to;
    Placed memory;
  };
  Output outputs[] = {{"weights",
                       wanted.weights,
                       weights_shape(c),
                       weights_axes(c),
                       &lanewise::Statistics::weights,
                       &StatisticsResult::weights,
                       {}},
                      {"column_sums",
                       wanted.column_sums,
                       columns_shape(c),
                       columns_axes(c),
                       &lanewise::Statistics::column_sums,
                       &StatisticsResult::column_sums,
                       {}},
                      {"row_max",
                       wanted.row_max,
                       c.lse_shape,
                       c.row_axes(),
                       &lanewise::Statistics::row_max,
                       &StatisticsResult::row_max,
                       {}},
                      {"row_entropy",
                       wanted.row_entropy,
                       c.lse_shape,
                       c.row_axes(),
                       &lanewise::Statistics::row_entropy,
                       &StatisticsResult::row_entropy,
                       {}}};
  for (Output& output : outputs) {
    if (!output.wanted) continue;
    output.memory = Placed::poisoned(output.name, io::Type::f32, output.shape, options.pad);
    output.memory.clear();
    statistics.*output.view = output.memory.output(output.axes);
  }
  lw_const_tensor known = {};
  known.data = lse.bytes.data();
  known.type = LW_TYPE_F32;
  const std::array<int64_t, 4> stride = strides_of(c.lse_shape, c.row_axes());
  std::copy(stride.begin(), stride.end(), known.stride);
  for (int64_t i = 0; i < options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const lanewise::Status status = run_once(plan, c, known, statistics, workspace, options, threads);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (status.code() == LW_STOPPED) {
      result.stopped = true;
      return result;
    }
    require(status);
    result.seconds = i == 0 ? seconds : std::min(result.seconds, seconds);
  }
  for (Output& output : outputs) {
    if (!output.wanted) continue;
    if (!output.memory.padding_intact())
      throw std::logic_error(std::string("the library wrote into the padding of ") + output.name);
    result.*output.to = std::move(output.memory).without_padding();
  }
  return result;
}

bool compare_statistics(const ProblemCase& c, const RunResult& run, const StatisticsResult& result,
                        const StatisticsWanted& wanted, const ReferenceResult& reference, int32_t threads,
                        const Progress& progress, std::array<Comparison, 4>& comparisons) {
  const lw_problem& p = c.problem;
  const int32_t* const cu_q = c.inputs.cu_seqlens_q;
  const int32_t* const cu_kv = c.inputs.cu_seqlens_kv;
  const std::array<int64_t, 4> weights = strides_of(weights_shape(c), weights_axes(c));
  const std::array<int64_t, 4> columns = strides_of(columns_shape(c), columns_axes(c));
  const RowIndex row_index = {strides_of(c.lse_shape, c.row_axes()), cu_q};
  return each_head(p.q_heads, threads, progress, [&](int64_t h) -> std::function<void()> {
    HeadProblem head = head_problem(c, h);
    head.problem.arithmetic = problem_as_run(c, run).arithmetic;
    const auto expected = std::make_shared<ReferenceStatistics>(
        reference_statistics(head.problem, head.inputs, head_of(c, reference, h), wanted.row_begin, wanted.row_end));
    return [&, h, expected] {
      const auto add = [&](size_t which, int64_t at, const ReferenceStatistics::Values& right, int64_t n,
                           std::initializer_list<int64_t> where) {
        const size_t index = static_cast<size_t>(n);
        comparisons[which].add(io::element(*result.tensors()[which], at), right.value[index], right.bound[index],
                               [&] { return io::shape_text(std::vector<int64_t>(where)); });
      };
      for (int64_t b = 0; b < p.batch; ++b) {
        const SequenceSizes sizes = sequence_sizes(c, b);
        const int64_t outer = cu_q != nullptr ? 0 : b, first = cu_q != nullptr ? cu_q[b] : 0;
        for (int64_t i = from_start(wanted.row_begin, sizes.q_len); i < from_start(wanted.row_end, sizes.q_len); ++i) {
          const int64_t row = cu_q != nullptr ? first + i : b * p.q_len + i;  // of the head
          const int64_t at = outer * weights[0] + h * weights[1] + (first + i) * weights[2];
          for (int64_t j = 0; wanted.weights && j < sizes.kv_len; ++j)
            add(0, at + j * weights[3], expected->weights, row * p.kv_len + j, {b, h, i, j});
          if (wanted.row_max) add(2, row_index(b, h, i), expected->row_max, row, {b, h, i});
          if (wanted.row_entropy) add(3, row_index(b, h, i), expected->row_entropy, row, {b, h, i});
        }
        for (int64_t j = 0; wanted.column_sums && j < sizes.kv_len; ++j) {
          const int64_t column = cu_kv != nullptr ? cu_kv[b] + j : j, of = cu_kv != nullptr ? 0 : b;
          add(1, of * columns[0] + h * columns[1] + column * columns[2], expected->column_sums, of * p.kv_len + column,
              {b, h, j});
        }
      }
    };
  });
}

}  // namespace lanewise::tools
