#include "predict.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/peak_loops.hpp"
#include "bench/peaks.hpp"
#include "bench/team.hpp"
#include "src/plan.hpp"
#include "src/problem.hpp"
#include "src/targets.hpp"

namespace lanewise::tools {
namespace {

int64_t target_bit(const char* name) {
  int64_t target = 0;
  choose_target(name, target);
  return target;
}

// Key rows that some query of a sequence may see, over all sequences and kv heads.
double keys_read(const ProblemCase& c) {
  double keys = 0;
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    const SequenceSizes s = sequence_sizes(c, b);
    if (s.q_len == 0) continue;
    int64_t begin = 0, end = s.kv_len;
    const int64_t first = s.q_offset - s.kv_start, last = first + s.q_len - 1;
    if (c.problem.causal != 0) end = std::min(end, last + 1);
    if (c.problem.window_right >= 0) end = std::min(end, last + c.problem.window_right + 1);
    if (c.problem.window_left >= 0) begin = std::max<int64_t>(begin, first - c.problem.window_left);
    keys += static_cast<double>(std::max<int64_t>(0, end - begin));
  }
  return keys * static_cast<double>(c.problem.kv_heads);
}

// Query rows of a tile beyond the last whole vector compute, too.
double lanes_in_use(const lw_problem& p, const lw_explanation& plan) {
  const double rows = static_cast<double>(p.q_len * group_size(p));
  return rows == 0 ? 1 : rows / (std::ceil(rows / plan.lanes) * plan.lanes);
}

// Keys a row that a causal diagonal or a window's edge costs beyond the visible ones: strips compute some for lanes that
// do not see them, and hide those by comparisons. Measured: 32 keys of 48-row tiles, 18 where 4 heads share the tile.
double edge_keys(const lw_problem& p, const lw_explanation& plan) {
  const double group = static_cast<double>(group_size(p));
  const int edges = (p.causal != 0 || p.window_right >= 0 ? 1 : 0) + (p.window_left >= 0 ? 1 : 0);
  return edges * (12 + 0.42 * plan.tile_rows / group);
}

// bench::read_bandwidth by the clock of this thread: the best of three passes over all regions.
double thread_bandwidth(const std::vector<bench::Region>& regions) {
  const bench::PeakLoops loops = bench::peak_loops_for(best_target());
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    double bytes = 0;
    const double start = bench::now(bench::Clock::kThread);
    for (const bench::Region& region : regions) {
      const size_t whole = region.bytes / bench::kReadStep * bench::kReadStep;
      loops.read(region.data, whole);
      bytes += static_cast<double>(whole);
    }
    const double seconds = bench::now(bench::Clock::kThread) - start;
    if (seconds > 0) best = std::max(best, bytes / seconds);
  }
  return best;
}

}  // namespace

bool is_native(const lw_explanation& plan) { return std::strcmp(plan.arithmetic, "native_bf16") == 0; }

MachineLimits measure_limits(const ProblemCase& c, const lw_explanation& plan, int32_t threads, bool thread_clock) {
  MachineLimits limits;
  const int64_t target = target_bit(plan.target);
  limits.peak = (is_native(plan) ? bench::bf16_dot_peak(target, threads) : bench::fma_peak(target, threads)) * 1e9;
  limits.clock = bench::core_clock() * 1e9;
  std::vector<bench::Region> regions;
  for (const Placed* tensor : {&c.k, &c.v}) {
    int64_t elements = 1;
    for (const int64_t size : tensor->shape()) elements *= size;
    regions.push_back({tensor->data(), static_cast<size_t>(elements) * io::type_size(tensor->type())});
  }
  limits.bandwidth = bench::read_bandwidth(regions, threads) * 1e9;
  if (thread_clock) limits.bandwidth = std::max(limits.bandwidth, thread_bandwidth(regions));
  return limits;
}

MachineLimits best_of(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.peak, b.peak), std::max(a.bandwidth, b.bandwidth), std::max(a.clock, b.clock)};
}

// The larger of the two; where they are alike, they do not overlap perfectly: 19 % more where they are equal.
double Prediction::seconds() const { return std::pow(std::pow(arithmetic, 4) + std::pow(memory, 4), 0.25) + rest; }

Prediction predict(const ProblemCase& c, const lw_explanation& plan, int32_t threads, const MachineLimits& limits) {
  const lw_problem& p = c.problem;
  const bool few = std::strcmp(plan.kernel, "keys-in-lanes") == 0;
  const double all_rows = static_cast<double>(p.batch * p.q_heads * p.q_len);
  const double scores = visible_scores(c) + (few ? 0 : all_rows * edge_keys(p, plan));
  const double multiply_adds = scores * static_cast<double>(p.qk_dim + p.v_dim);
  const double used = threads_worth_waking(multiply_adds, threads);
  const double share = threads / used;  // limits are of all threads

  Prediction result;
  // Probs: cycles a vector of scores. Without FMA its polynomial takes twice the instructions.
  const bool fma = kernels_for(target_bit(plan.target)).fma;
  const double prob_cycles = fma ? 6.5 : 13.7;
  const double probs = limits.clock > 0 ? scores / plan.lanes * prob_cycles / limits.clock / used : 0;
  const double waste = few ? 1 : 1 / lanes_in_use(p, plan);
  // Keys in lanes: transposing K, and loads that serve only as many multiply-adds as there are rows. Without FMA the
  // register tiles are smaller.
  const double rows = std::max(1.0, static_cast<double>(p.q_len * group_size(p)));
  const double slow = few ? 1.12 + 2.9 * std::pow(rows, -1.6) : fma ? 1.05 : 1.45;
  // Widening 16-bit keys; pair dots are twice as fast as what feeds them.
  const double storage = !few || c.k.type() == io::Type::f32 ? 1 : is_native(plan) ? 1.3 : 1.15;
  result.arithmetic = (2 * multiply_adds / limits.peak * share * slow * storage + probs) * waste;

  const double row_bytes = static_cast<double>(p.qk_dim) * static_cast<double>(io::type_size(c.k.type())) +
                           static_cast<double>(p.v_dim) * static_cast<double>(io::type_size(c.v.type()));
  if (limits.bandwidth > 0) result.memory = keys_read(c) * row_bytes / limits.bandwidth * share;

  constexpr double kCall = 0.8e-6, kWake = 3e-6;
  result.rest = kCall + (used > 1 ? kWake : 0);
  return result;
}

}  // namespace lanewise::tools
