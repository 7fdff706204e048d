#include "compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lanewise::test {
namespace {

constexpr double kOrdinaryMagnitude = 16;        // A
constexpr double kOrdinaryError = 2e-6;          // of V
constexpr double kBlockError = 1.0 / (1 << 24);  // each block merge rounds once

double bound_of(const lw_problem& problem, const ReferenceResult& expected, size_t row) {
  const double bound = out_bound(problem, expected, row);
  if (problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16) return bound;
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

Agreement agreement(const lw_problem& problem, const ReferenceResult& expected, const Array& out, const Array& lse,
                    const std::vector<int32_t>& q_lengths) {
  const size_t v_dim = static_cast<size_t>(problem.v_dim);
  const size_t heads = static_cast<size_t>(out.shape[1]), q_len = static_cast<size_t>(out.shape[2]);
  Agreement result;
  if (out.values.size() != expected.out.size()) {
    result.difference = "out and reference differ in size";
    return result;
  }
  // False, and described, where value is off.
  const auto holds = [&](const char* what, size_t row, size_t dim, float value, double right, double bound) {
    const double wide = static_cast<double>(value), share = std::fabs(wide - right) / bound;
    if (agrees(wide, right, bound)) {
      if (share > result.worst) result.worst = share;
      return true;
    }
    result.difference = words(what, row, static_cast<int64_t>(dim), wide, right, bound);
    return false;
  };
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    if (!q_lengths.empty() && row % q_len >= static_cast<size_t>(q_lengths[row / (q_len * heads)])) continue;
    const double bound = bound_of(problem, expected, row);
    for (size_t x = 0; x < v_dim; ++x) {
      const size_t n = row * v_dim + x;
      const double total = bound + rounding_bound(problem.out_type, std::fabs(expected.out[n]) + bound);
      if (!holds("out", row, x, out.values[n], expected.out[n], total)) return result;
    }
    if (lse.values.empty()) continue;
    if (!holds("lse", row, 0, lse.values[row], expected.lse[row], lse_bound(problem, expected, row))) return result;
  }
  return result;
}

}  // namespace lanewise::test
