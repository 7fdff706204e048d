#include "lessons/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace lanewise::lessons {

Moments moments(const std::vector<double>& values) {
  Moments result;
  const double n = static_cast<double>(values.size());
  if (values.empty()) return result;
  for (const double value : values) result.mean += value / n;
  for (const double value : values) result.variance += (value - result.mean) * (value - result.mean) / n;
  result.deviation = std::sqrt(result.variance);
  return result;
}

double entropy(const double* weights, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (weights[i] > 0) sum -= weights[i] * std::log(weights[i]);
  }
  return sum + 0.0;  // not -0
}

double largest(const double* weights, size_t n) { return *std::max_element(weights, weights + n); }

std::vector<double> softmax_jacobian(const std::vector<double>& weights) {
  const size_t n = weights.size();
  std::vector<double> matrix(n * n);
  for (size_t i = 0; i < n; ++i) {
    double others = 0;
    for (size_t j = 0; j < n; ++j) {
      if (j == i) continue;
      others += weights[j];
      matrix[i * n + j] = -weights[i] * weights[j];
    }
    matrix[i * n + i] = weights[i] * others;
  }
  return matrix;
}

double frobenius_norm(const std::vector<double>& matrix) {
  double sum = 0;
  for (const double entry : matrix) sum += entry * entry;
  return std::sqrt(sum);
}

std::vector<int64_t> histogram(const std::vector<double>& values, double low, double high, size_t bins) {
  std::vector<int64_t> counts(bins);
  for (const double value : values) {
    const double at = (value - low) / (high - low) * static_cast<double>(bins);
    if (at >= 0 && at < static_cast<double>(bins)) ++counts[static_cast<size_t>(at)];
  }
  return counts;
}

Spread spread(const std::vector<double>& weights, size_t keys) {
  Spread result;
  result.by_rank.assign(keys, 0.0);
  const size_t rows = weights.size() / keys;
  const double share = 1.0 / static_cast<double>(rows);
  for (size_t r = 0; r < rows; ++r) {
    std::vector<double> row(weights.begin() + static_cast<std::ptrdiff_t>(r * keys),
                            weights.begin() + static_cast<std::ptrdiff_t>((r + 1) * keys));
    result.entropy += share * entropy(row.data(), keys);
    std::sort(row.begin(), row.end(), std::greater<double>());
    for (size_t j = 0; j < keys; ++j) result.by_rank[j] += share * row[j];
  }
  result.largest = rows > 0 ? result.by_rank[0] : 0;
  return result;
}

}  // namespace lanewise::lessons
