// The experiments of `lanewise scale-study` as numbers, each by the kernels and by the float64 reference. Seeded: the
// same options give the same numbers, and the kernels' have the same bits on every target with FMA. No printing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lessons/attention.hpp"
#include "lessons/statistics.hpp"

namespace lanewise::lessons {

struct StudyOptions {
  uint64_t seed = 1;
  std::string target;                              // empty: the library's choice
  std::vector<int64_t> dims = {16, 64, 128, 512};  // d_k of the variance study
  int64_t samples = 10000;                         // pairs (q, k) for the distribution of scores
  int64_t draws = 2000;                            // rows of the experiment
  int64_t keys = 100;                              // of a row
  int64_t dim = 512;                               // d_k of the experiment
  int64_t layers = 8;
  double growth = 1.5;  // variance of the inputs from one layer to the next
};

float inverse_root(int64_t dim);  // the library's default scale: 1 / sqrt(d_k), rounded to float32

// Scores of independent q and k with standard normal components.
struct Variance {
  int64_t dim;
  Moments raw, raw_reference, scaled, scaled_reference;
  double inside;  // share of the scaled scores within two standard deviations, 2 sqrt(d_k) / sqrt(d_k)
};
std::vector<Variance> variance_study(const StudyOptions& options);

// softmax of given scores and its derivatives.
struct Softmax {
  std::vector<float> scores;
  Both weights;
  std::vector<double> jacobian, jacobian_reference;
};
Softmax softmax_study(std::vector<float> scores, const std::string& target);

// q and k with components uniform in -sqrt(3) ... sqrt(3) (variance 1), options.keys keys a row, at three scales.
struct Scaling {
  const char* name;
  float scale;
  Moments scores, scores_reference;   // over the samples
  Spread weights, weights_reference;  // over the draws
};
struct Experiment {
  std::vector<double> scores;  // q.k of the samples, unscaled, by the kernel
  std::array<Scaling, 3> scalings;
};
Experiment experiment(const StudyOptions& options);

// Tokens x whose components have variance growth^layer, q = W_Q x and k = W_K x, scaled by 1/sqrt(d_k); and the same
// with each x brought to mean 0 and variance 1 first (LayerNorm). 64 tokens, dimension 64.
struct Layer {
  int64_t index;
  double input_deviation;
  struct Side {
    Moments scores, scores_reference;
    Spread weights, weights_reference;
  } plain, normed;
};
std::vector<Layer> layer_study(const StudyOptions& options);

// One query against keys at angles from 0 to 180 degrees, and against those keys at twice the length.
struct Angle {
  std::array<float, 2> key;
  double degrees, length, score, score_reference, weight, weight_reference;
};
struct Angles {
  std::array<float, 2> query;
  std::vector<Angle> once, doubled;
};
Angles angle_study(const std::string& target);

// Heads of a real model: q [heads, q_len, dim], k [kv_heads, kv_len, dim], float32.
struct RealHeads {
  std::string name;
  int64_t heads, kv_heads, q_len, kv_len, dim;
  bool causal;
  std::vector<float> q, k;
};
struct RealHead {
  double q_size, k_size;             // root mean square of a component
  double expected;                   // standard deviation of the scaled scores if components were independent
  Moments scores, scores_reference;  // of the visible scaled scores
};
std::vector<RealHead> real_study(const RealHeads& heads, const std::string& target);

}  // namespace lanewise::lessons
