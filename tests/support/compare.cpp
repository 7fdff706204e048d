#include "compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lanewise::test {
namespace {

constexpr double kOrdinaryMagnitude = 16;   // A
constexpr double kOrdinaryError = 2e-6;     // of V
constexpr double kBlockError = 1.0 / (1 << 24);  // each block merge rounds once

double bound_of(const lw_problem& problem, const ReferenceResult& expected, size_t row) {
  const double bound = out_bound(problem, expected, row);
  if (expected.score_magnitude[row] > kOrdinaryMagnitude || expected.softcapped) return bound;
  const double blocks = kBlockError * static_cast<double>(expected.blocks[row]);
  return std::min(bound, expected.value_magnitude[row] * (kOrdinaryError + blocks));
}

std::string words(const char* what, size_t row, int64_t dim, double value, double expected, double bound) {
  char text[200];
  std::snprintf(text, sizeof text, "%s, row %zu, dim %lld: %.9g, expected %.9g, off by %.3g, bound %.3g", what, row,
                static_cast<long long>(dim), value, expected, value - expected, bound);
  return text;
}

}  // namespace

bool agrees(double value, double expected, double bound) {
  if (std::isnan(value) || std::isnan(expected)) return std::isnan(value) && std::isnan(expected);
  if (std::isinf(value) || std::isinf(expected)) return value == expected;
  return std::fabs(value - expected) <= bound;
}

std::string difference_from_reference(const lw_problem& problem, const ReferenceResult& expected, const Array& out,
                                      const Array& lse, const std::vector<int32_t>& q_lengths) {
  const int64_t v_dim = problem.v_dim, heads = out.shape[1], q_len = out.shape[2];
  if (out.values.size() != expected.out.size()) return "out and reference differ in size";
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    const size_t i = row % static_cast<size_t>(q_len), b = row / static_cast<size_t>(q_len * heads);
    if (!q_lengths.empty() && i >= static_cast<size_t>(q_lengths[b])) continue;
    const double bound = bound_of(problem, expected, row);
    for (int64_t x = 0; x < v_dim; ++x) {
      const size_t n = row * static_cast<size_t>(v_dim) + static_cast<size_t>(x);
      const double total = bound + rounding_bound(problem.out_type, expected.out[n]);
      const double value = static_cast<double>(out.values[n]);
      if (!agrees(value, expected.out[n], total)) return words("out", row, x, value, expected.out[n], total);
    }
    if (lse.values.empty()) continue;
    const double value = static_cast<double>(lse.values[row]), lse_limit = lse_bound(problem, expected, row);
    if (!agrees(value, expected.lse[row], lse_limit)) return words("lse", row, 0, value, expected.lse[row], lse_limit);
  }
  return "";
}

}  // namespace lanewise::test
