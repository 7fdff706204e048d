#include "lessons/studies.hpp"

#include <algorithm>
#include <cmath>

#include "lessons/random.hpp"

namespace lanewise::lessons {
namespace {

std::vector<float> normals(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

std::vector<float> uniforms(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.uniform_variance_1();
  return values;
}

void append(Both& to, const Both& from) {
  to.kernel.insert(to.kernel.end(), from.kernel.begin(), from.kernel.end());
  to.reference.insert(to.reference.end(), from.reference.begin(), from.reference.end());
}

// Tokens times a matrix [dim, dim], summed in double.
std::vector<float> project(const std::vector<float>& tokens, const std::vector<float>& matrix, size_t dim) {
  std::vector<float> result(tokens.size());
  for (size_t t = 0; t < tokens.size() / dim; ++t) {
    for (size_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (size_t c = 0; c < dim; ++c) sum += static_cast<double>(matrix[i * dim + c]) * tokens[t * dim + c];
      result[t * dim + i] = static_cast<float>(sum);
    }
  }
  return result;
}

// Each token to mean 0 and variance 1 (no gain, no bias, no epsilon).
std::vector<float> layer_norm(const std::vector<float>& tokens, size_t dim) {
  std::vector<float> result;
  for (size_t t = 0; t < tokens.size(); t += dim) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(t);
    const Moments m = moments({first, first + static_cast<std::ptrdiff_t>(dim)});
    for (size_t c = 0; c < dim; ++c) result.push_back(static_cast<float>((tokens[t + c] - m.mean) / m.deviation));
  }
  return result;
}

}  // namespace

float inverse_root(int64_t dim) { return static_cast<float>(1 / std::sqrt(static_cast<double>(dim))); }

std::vector<Variance> variance_study(const StudyOptions& options) {
  std::vector<Variance> rows;
  for (const int64_t dim : options.dims) {
    Random random(options.seed);
    Both raw, scaled;
    for (int64_t done = 0; done < options.samples; done += 1000) {
      Heads heads;
      heads.batch = std::min<int64_t>(1000, options.samples - done);
      heads.dim = dim;
      const std::vector<float> q = normals(heads.batch * dim, random), k = normals(heads.batch * dim, random);
      heads.q = q.data();
      heads.k = k.data();
      append(raw, scores_of(heads, options.target));
      heads.scale = inverse_root(dim);
      append(scaled, scores_of(heads, options.target));
    }
    const auto inside =
        std::count_if(scaled.kernel.begin(), scaled.kernel.end(), [](double score) { return std::fabs(score) <= 2; });
    rows.push_back({dim, moments(raw.kernel), moments(raw.reference), moments(scaled.kernel), moments(scaled.reference),
                    static_cast<double>(inside) / static_cast<double>(options.samples)});
  }
  return rows;
}

Softmax softmax_study(std::vector<float> scores, const std::string& target) {
  Softmax result;
  result.weights = softmax_of(scores, target);
  result.scores = std::move(scores);
  result.jacobian = softmax_jacobian(result.weights.kernel);
  result.jacobian_reference = softmax_jacobian(result.weights.reference);
  return result;
}

Experiment experiment(const StudyOptions& options) {
  const int64_t dim = options.dim;
  Experiment result;
  result.scalings = {Scaling{"none", 1, {}, {}, {}, {}}, Scaling{"1/sqrt(d_k)", inverse_root(dim), {}, {}, {}, {}},
                     Scaling{"1/d_k", static_cast<float>(1.0 / static_cast<double>(dim)), {}, {}, {}, {}}};
  std::array<Both, 3> scores, weights;
  Random random(options.seed);
  for (int64_t done = 0; done < options.samples; done += 1000) {
    Heads heads;
    heads.batch = std::min<int64_t>(1000, options.samples - done);
    heads.dim = dim;
    const std::vector<float> q = uniforms(heads.batch * dim, random), k = uniforms(heads.batch * dim, random);
    heads.q = q.data();
    heads.k = k.data();
    for (size_t s = 0; s < 3; ++s) {
      heads.scale = result.scalings[s].scale;
      append(scores[s], scores_of(heads, options.target));
    }
  }
  for (int64_t done = 0; done < options.draws; done += 50) {  // 10 MB of keys at a time
    Heads heads;
    heads.batch = std::min<int64_t>(50, options.draws - done);
    heads.kv_len = options.keys;
    heads.dim = dim;
    const std::vector<float> q = uniforms(heads.batch * dim, random);
    const std::vector<float> k = uniforms(heads.batch * options.keys * dim, random);
    heads.q = q.data();
    heads.k = k.data();
    for (size_t s = 0; s < 3; ++s) {
      heads.scale = result.scalings[s].scale;
      append(weights[s], weights_of(heads, options.target));
    }
  }
  const size_t keys = static_cast<size_t>(options.keys);
  for (size_t s = 0; s < 3; ++s) {
    Scaling& scaling = result.scalings[s];
    scaling.scores = moments(scores[s].kernel);
    scaling.scores_reference = moments(scores[s].reference);
    scaling.weights = spread(weights[s].kernel, keys);
    scaling.weights_reference = spread(weights[s].reference, keys);
  }
  result.scores = std::move(scores[0].kernel);
  return result;
}

std::vector<Layer> layer_study(const StudyOptions& options) {
  constexpr int64_t kTokens = 64, kDim = 64;
  Random random(options.seed);
  std::vector<float> w_q, w_k;
  const auto side = [&](const std::vector<float>& tokens) {
    const std::vector<float> q = project(tokens, w_q, kDim), k = project(tokens, w_k, kDim);
    const Heads heads = {1, kTokens, kTokens, kDim, q.data(), k.data(), inverse_root(kDim)};
    const Both scores = scores_of(heads, options.target), weights = weights_of(heads, options.target);
    return Layer::Side{moments(scores.kernel), moments(scores.reference), spread(weights.kernel, kTokens),
                       spread(weights.reference, kTokens)};
  };
  std::vector<Layer> layers;
  double deviation = 1;
  for (int64_t index = 0; index <= options.layers; ++index) {
    std::vector<float> tokens = normals(kTokens * kDim, random);
    w_q = normals(kDim * kDim, random);
    w_k = normals(kDim * kDim, random);
    for (std::vector<float>* w : {&w_q, &w_k}) {
      for (float& entry : *w) entry *= 0.125f;  // 1 / sqrt(64): W x has the variance of x
    }
    for (float& value : tokens) value = static_cast<float>(value * deviation);
    layers.push_back({index, deviation, side(tokens), side(layer_norm(tokens, kDim))});
    deviation *= std::sqrt(options.growth);
  }
  return layers;
}

Angles angle_study(const std::string& target) {
  Angles result;
  result.query = {2, 0};
  // Pythagorean: lengths come out whole.
  const std::vector<std::array<float, 2>> directions = {{2, 0}, {1.2f, 1.6f}, {0, 2}, {-1.2f, 1.6f}, {-2, 0}};
  for (const bool twice : {false, true}) {
    std::vector<float> k;
    for (const auto& direction : directions) {
      for (const float component : direction) k.push_back(twice ? 2 * component : component);
    }
    const int64_t keys = static_cast<int64_t>(directions.size());
    const Heads heads = {1, 1, keys, 2, result.query.data(), k.data(), inverse_root(2)};
    const Both scores = scores_of(heads, target), weights = weights_of(heads, target);
    for (size_t j = 0; j < directions.size(); ++j) {
      const double x = k[2 * j], y = k[2 * j + 1];
      const double length = std::sqrt(x * x + y * y), degrees = std::atan2(y, x) * 180 / 3.14159265358979324;
      (twice ? result.doubled : result.once)
          .push_back({{k[2 * j], k[2 * j + 1]},
                      degrees,
                      length,
                      scores.kernel[j],
                      scores.reference[j],
                      weights.kernel[j],
                      weights.reference[j]});
    }
  }
  return result;
}

std::vector<RealHead> real_study(const RealHeads& real, const std::string& target) {
  std::vector<RealHead> result;
  const int64_t group = real.heads / real.kv_heads;
  for (int64_t h = 0; h < real.heads; ++h) {
    const float* q = real.q.data() + h * real.q_len * real.dim;
    const float* k = real.k.data() + h / group * real.kv_len * real.dim;
    const Both all = scores_of({1, real.q_len, real.kv_len, real.dim, q, k, inverse_root(real.dim)}, target);
    Both seen;
    for (int64_t i = 0; i < real.q_len; ++i) {
      const int64_t visible = real.causal ? std::max<int64_t>(0, real.kv_len - real.q_len + i + 1) : real.kv_len;
      for (int64_t j = 0; j < std::min(visible, real.kv_len); ++j) {
        seen.kernel.push_back(all.kernel[static_cast<size_t>(i * real.kv_len + j)]);
        seen.reference.push_back(all.reference[static_cast<size_t>(i * real.kv_len + j)]);
      }
    }
    const auto size = [](const float* values, int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
      return std::sqrt(sum / static_cast<double>(count));
    };
    const double q_size = size(q, real.q_len * real.dim), k_size = size(k, real.kv_len * real.dim);
    // Var(q.k / sqrt(d_k)) = d_k (q_size k_size)^2 / d_k.
    result.push_back({q_size, k_size, q_size * k_size, moments(seen.kernel), moments(seen.reference)});
  }
  return result;
}

}  // namespace lanewise::lessons
