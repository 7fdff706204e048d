#include "limit.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "src/targets.hpp"

namespace lanewise::bench {
namespace {

// Highway's bit of the case's target; of the best one for oneDNN, which chooses by itself.
int64_t target_of(const AttentionCase& c) {
  int64_t target = 0;
  if (!c.onednn && choose_target(c.target.c_str(), target).code == LW_OK) return target;
  return best_target();
}

}  // namespace

double arithmetic_peak_of(const AttentionCase& c) {
  const int64_t target = target_of(c);
  return c.arithmetic == LW_ARITHMETIC_NATIVE_BF16 ? bf16_dot_peak(target, c.threads) : fma_peak(target, c.threads);
}

Limit limit_of(const AttentionCase& c, double arithmetic_peak, double bandwidth) {
  const double by_arithmetic = flops_of(c) / (arithmetic_peak * 1e9);
  const double by_memory = key_bytes_of(c) / (bandwidth * 1e9);
  if (by_memory > by_arithmetic) return {by_memory, bandwidth, true};
  return {by_arithmetic, arithmetic_peak, false};
}

Limit measure_limit(const AttentionCase& c, const PreparedCase& prepared) {
  static std::map<std::tuple<int64_t, int32_t, int32_t>, double> best;
  double& peak = best[{target_of(c), c.arithmetic, c.threads}];
  peak = std::max(peak, arithmetic_peak_of(c));
  return limit_of(c, peak, read_bandwidth(prepared.read_regions(), c.threads));
}

}  // namespace lanewise::bench
