// The few statistics the lessons quote, in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lanewise::lessons {

struct Moments {
  double mean = 0, variance = 0, deviation = 0;  // deviation = sqrt(variance)
};
Moments moments(const std::vector<double>& values);

// Of a softmax row of n weights: -sum p ln p, in nats; exp of it is the number of keys it spreads over.
double entropy(const double* weights, size_t n);
double largest(const double* weights, size_t n);

// Derivatives of softmax, d p_i / d s_j = p_i ([i = j] - p_j): diag(p) - p p^T, row-major. The diagonal is computed as
// p_i times the sum of the other weights, which keeps its digits where p_i is close to 1.
std::vector<double> softmax_jacobian(const std::vector<double>& weights);
double frobenius_norm(const std::vector<double>& matrix);

// Numbers of values in `bins` equal parts of low ... high; what lies outside is not counted.
std::vector<int64_t> histogram(const std::vector<double>& values, double low, double high, size_t bins);

// Averages over rows of softmax weights [rows, keys].
struct Spread {
  double largest = 0, entropy = 0;
  std::vector<double> by_rank;  // mean of the largest, second largest ... weight of a row
};
Spread spread(const std::vector<double>& weights, size_t keys);

}  // namespace lanewise::lessons
