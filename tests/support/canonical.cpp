#include "canonical.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "statistics.hpp"

namespace lanewise::test {
namespace {

constexpr float kNoMax = -1e38f;
constexpr int64_t kBlock = 256, kSpan = 4096;
// Constants of the contract: 2^f on [-1/2, 1/2], log2(1 + f) / f around 0.
constexpr float kExp2[] = {0.0013264727f, 0.0096715130f, 0.055507336f, 0.24022242f, 0.69314700f, 1.0f};
constexpr float kLog2[] = {-0.11020159721374512f, 0.18631209433078766f, -0.19102497398853302f, 0.2045752853155136f,
                           -0.23961904644966125f, 0.2885688841342926f,  -0.3606966435909271f,  0.4808982014656067f,
                           -0.7213473320007324f,  1.4426950216293335f};

// tanh(x) / x = P(x^2) / Q(x^2)
constexpr float kTanhReach = 8.0f;
constexpr float kTanhP[] = {1.529347670725656e-08f, 2.193984437326435e-05f, 0.003574356436729431f, 0.13446831703186035f,
                            1.0f};
constexpr float kTanhQ[] = {8.548105938643857e-07f, 0.00034157896880060434f, 0.026174968108534813f,
                            0.46780160069465637f, 1.0f};
constexpr double kLog2E = 1.4426950408889634074;

struct State {
  float max = kNoMax, sum = 0;
  std::vector<float> acc;
};

// A NaN, of the difference of two infinite maxima, is no int.
float pow2(float n) { return std::isnan(n) ? n : n < -125 ? 0.0f : std::ldexp(1.0f, static_cast<int>(n)); }

float prob(float s, float max) {
  const float whole = std::nearbyint(s), f = s - whole, n = whole - max;
  float poly = kExp2[0];
  for (int i = 1; i < 6; ++i) poly = std::fma(poly, f, kExp2[i]);
  if (n < -125) return 0;
  return std::isnan(n) || std::isnan(poly) ? std::numeric_limits<float>::quiet_NaN() : poly * pow2(n);
}

void merge(State& into, const State& other) {
  const float max = std::max(into.max, other.max);
  const float a = pow2(into.max - max), b = pow2(other.max - max);
  into.sum = std::fma(into.sum, a, other.sum * b);
  for (size_t x = 0; x < into.acc.size(); ++x) into.acc[x] = std::fma(into.acc[x], a, other.acc[x] * b);
  into.max = max;
}

float log_sum_exp(const State& state) {
  if (state.sum == 0) return -std::numeric_limits<float>::infinity();
  int exponent = 0;
  float mantissa = std::frexp(state.sum, &exponent);  // [1/2, 1); wanted: [sqrt(1/2), sqrt(2))
  if (mantissa < 0.70710677f) {
    mantissa *= 2;
    exponent -= 1;
  }
  const float f = mantissa - 1;
  float poly = kLog2[0];
  for (int i = 1; i < 10; ++i) poly = std::fma(poly, f, kLog2[i]);
  return std::fma(poly, f, state.max + static_cast<float>(exponent)) * 0.693147180559945f;
}

float one_nan(float value) { return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value; }

template <class Tensor>
float element(const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
  return load(t.type, t.data, a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

struct Row {
  const Prepared& p;
  int64_t b, h, i, kv_head, q_len, kv_len, kv_start, position;
  std::vector<float> q;  // times factor

  float bias(int64_t j) const { return element(p.inputs.bias, b, h, i, j); }

  bool sees(int64_t j) const {
    const lw_problem& r = p.problem;
    const int64_t key = kv_start + j;
    const bool near = (!r.causal || key <= position) && (r.window_left < 0 || key >= position - r.window_left) &&
                      (r.window_right < 0 || key <= position + r.window_right);
    if (!near && key >= r.prefix_len) return false;
    return mask_lets_see(r.mask_tail > 0 ? j - kv_len + r.mask_tail : j) && tile_is_listed(j) &&
           (r.bias_type == LW_TYPE_NONE || !(bias(j) <= -1e38f));
  }

  bool mask_lets_see(int64_t column) const {
    const lw_const_tensor& mask = p.inputs.mask;
    if (!mask.data || column < 0) return true;
    const uint8_t* row =
        static_cast<const uint8_t*>(mask.data) + b * mask.stride[0] + h * mask.stride[1] + i * mask.stride[2];
    if (mask.type == LW_TYPE_BITS) return row[column / 8] >> (column % 8) & 1;
    return row[column * mask.stride[3]] != 0;
  }

  bool tile_is_listed(int64_t j) const {
    const lw_inputs& in = p.inputs;
    if (!in.block_indptr) return true;
    const int32_t* from =
        in.block_indptr + b * in.block_indptr_stride[0] + h * in.block_indptr_stride[1] + i / p.problem.block_mask_rows;
    return std::count(in.block_indices + from[0], in.block_indices + from[1], j / p.problem.block_mask_keys) > 0;
  }

  // A visible key's score under the rules that change it.
  float ruled(float s, int64_t j) const {
    const lw_problem& r = p.problem;
    if (r.softcap != 0) {
      const double cap = static_cast<double>(r.softcap) * kLog2E;
      s = soft_cap(s, static_cast<float>(cap), static_cast<float>(1 / cap));
    }
    if (r.alibi) {
      const float slope = p.inputs.alibi_slopes[b * p.inputs.alibi_batch_stride + h];
      const int64_t distance = std::abs(position - (kv_start + j));
      s = std::fma(static_cast<float>(-kLog2E * static_cast<double>(slope)), static_cast<float>(distance), s);
    }
    return r.bias_type == LW_TYPE_NONE ? s : std::fma(bias(j), static_cast<float>(kLog2E), s);
  }

  // A visible key's score.
  float score(int64_t j) const {
    float s = 0;
    for (size_t c = 0; c < q.size(); ++c) {
      s = std::fma(q[c], element(p.inputs.k, b, kv_head, j, static_cast<int64_t>(c)), s);
    }
    return ruled(s, j);
  }

  // The state of the keys of one block, j = begin ... end - 1, by itself.
  State block(int64_t begin, int64_t end) const {
    std::vector<int64_t> keys;
    std::vector<float> scores;
    State state;
    state.acc.assign(static_cast<size_t>(p.problem.v_dim), 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      if (!sees(j)) continue;
      const float s = score(j);
      keys.push_back(j);
      scores.push_back(s);
      state.max = std::fmax(state.max, std::ceil(s));
    }
    for (size_t n = 0; n < keys.size(); ++n) {
      const float weight = prob(scores[n], state.max);
      state.sum += weight;
      for (size_t x = 0; x < state.acc.size(); ++x) {
        const float value = element(p.inputs.v, b, kv_head, keys[n], static_cast<int64_t>(x));
        state.acc[x] = std::fma(weight, value, state.acc[x]);
      }
    }
    return state;
  }

  State run() const {
    State row, span;
    span.acc.assign(static_cast<size_t>(p.problem.v_dim), 0.0f);
    row.acc = span.acc;
    const lw_inputs& in = p.inputs;
    if (in.state_max.data) {
      row.max = element(in.state_max, b, h, i, 0);
      row.sum = element(in.state_sum, b, h, i, 0);
      for (size_t x = 0; x < row.acc.size(); ++x) row.acc[x] = element(in.state_acc, b, h, i, static_cast<int64_t>(x));
    }
    const State empty = span;
    for (int64_t j = 0; j < kv_len;) {
      const int64_t end = std::min(kv_len, ((kv_start + j) / kBlock + 1) * kBlock - kv_start);
      merge(span, block(j, end));
      if ((kv_start + end) % kSpan == 0 || end == kv_len) {
        merge(row, span);
        span = empty;
      }
      j = end;
    }
    return row;
  }
};

// Calls f(row) for the rows of all sequences, query by query.
template <class F>
void each_row(const Prepared& p, F f) {
  const lw_problem& problem = p.problem;
  const lw_inputs& in = p.inputs;
  const int64_t batch = in.batch >= 0 ? in.batch : problem.batch;
  const int64_t q_len = in.q_len >= 0 ? in.q_len : problem.q_len, kv_len = in.kv_len >= 0 ? in.kv_len : problem.kv_len;
  const double dim = static_cast<double>(problem.qk_dim);
  const float scale = problem.has_scale ? problem.scale : static_cast<float>(1 / std::sqrt(dim));
  const float factor = static_cast<float>(static_cast<double>(scale) * kLog2E);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t rows = in.q_lengths ? in.q_lengths[b] : q_len, keys = in.kv_lengths ? in.kv_lengths[b] : kv_len;
    const int64_t start = in.kv_starts ? in.kv_starts[b] : 0;
    const int64_t offset = in.q_offsets           ? in.q_offsets[b]
                           : problem.has_q_offset ? problem.q_offset
                                                  : start + keys - rows;
    const auto position = [&](int64_t i) -> int64_t {
      return in.q_positions ? in.q_positions[b * in.q_positions_stride[0] + i * in.q_positions_stride[1]] : offset + i;
    };
    for (int64_t h = 0; h < problem.q_heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        Row row = {p, b, h, i, h / (problem.q_heads / problem.kv_heads), rows, keys, start, position(i), {}};
        for (int64_t c = 0; c < problem.qk_dim; ++c) row.q.push_back(element(in.q, b, h, i, c) * factor);
        f(row);
      }
    }
  }
}

}  // namespace

float soft_cap(float s, float cap, float cap_inverse) {
  if (s > kTanhReach * cap) s = kTanhReach * cap;
  if (s < -kTanhReach * cap) s = -kTanhReach * cap;
  const float x = s * cap_inverse, u = x * x;
  float above = kTanhP[0], below = kTanhQ[0];
  for (int i = 1; i < 5; ++i) {
    above = std::fma(above, u, kTanhP[i]);
    below = std::fma(below, u, kTanhQ[i]);
  }
  return s * (above / below);
}

Result canonical(const Prepared& p) {
  const lw_problem& problem = p.problem;
  const lw_inputs& in = p.inputs;
  const int64_t batch = in.batch >= 0 ? in.batch : problem.batch, q_len = in.q_len >= 0 ? in.q_len : problem.q_len;
  Result result;
  result.target = "canonical";
  result.status = lw_status{LW_OK, ""};
  result.out = Array({batch, problem.q_heads, q_len, problem.v_dim});
  result.lse = Array({batch, problem.q_heads, q_len, 1});
  const bool states = p.outputs.state_max.data != nullptr;
  if (states) {
    result.state_max = result.state_sum = result.lse;
    result.state_acc = result.out;
  }
  each_row(p, [&](const Row& row) {
    const int64_t b = row.b, h = row.h, i = row.i;
    State state = row.run();
    if (states) {
      for (int64_t x = 0; x < problem.v_dim; ++x) result.state_acc.at(b, h, i, x) = state.acc[static_cast<size_t>(x)];
      result.state_max.at(b, h, i) = state.max + 0.0f;  // one zero: which operand of a maximum wins is not arithmetic
      result.state_sum.at(b, h, i) = state.sum;
    }
    if (problem.sinks) {  // one more span
      const float sink = static_cast<float>(static_cast<double>(in.sinks[h]) * kLog2E);
      State last = state;
      last.max = sink < kNoMax ? kNoMax : std::ceil(sink);
      last.sum = prob(sink, last.max);
      std::fill(last.acc.begin(), last.acc.end(), 0.0f);
      merge(state, last);
    }
    for (int64_t x = 0; x < problem.v_dim; ++x) {
      const float acc = state.acc[static_cast<size_t>(x)];
      result.out.at(b, h, i, x) = state.sum == 0 ? 0.0f : one_nan(acc / state.sum + 0.0f);
    }
    result.lse.at(b, h, i) = std::isnan(state.sum) ? one_nan(state.sum) : log_sum_exp(state);
  });
  return result;
}

Statistics canonical_statistics(const Prepared& p, const Array& lse, const StatisticsRequest& request) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const int64_t kv_len = p.inputs.kv_len >= 0 ? p.inputs.kv_len : p.problem.kv_len;
  Statistics result;
  result.target = "canonical";
  result.row_max = result.row_entropy = Array(lse.shape);
  result.weights = Array({lse.shape[0], lse.shape[1], lse.shape[2], kv_len});
  result.column_sums =
      request.columns_before ? *request.columns_before : Array({lse.shape[0], lse.shape[1], kv_len, 1});
  each_row(p, [&](const Row& row) {
    const auto from_start = [&](int64_t at) { return at < 0 ? at + row.q_len : at; };
    if (row.i < from_start(request.row_begin) || row.i >= from_start(request.row_end)) return;
    const float row_lse = lse.at(row.b, row.h, row.i);
    float max = 0, entropy = 0, block_entropy = 0;
    for (int64_t j = 0; j < row.kv_len; ++j) {
      if ((row.kv_start + j) % kBlock == 0) {
        entropy += block_entropy;
        block_entropy = 0;
      }
      if (!row.sees(j) || row_lse == -kInf) continue;
      float log2_weight = std::fma(row_lse, -1.44269504f, row.score(j));
      if (log2_weight > 0) log2_weight = 0;
      const float weight = one_nan(prob(log2_weight, 0));
      result.weights.at(row.b, row.h, row.i, j) = weight;
      float& sum = result.column_sums.at(row.b, row.h, j);
      sum = one_nan(sum + weight);
      if (weight > max) max = weight;
      if (weight != 0) block_entropy = std::fma(-weight, log2_weight, block_entropy);
    }
    entropy = one_nan((entropy + block_entropy) * 0.693147180559945f);
    result.row_entropy.at(row.b, row.h, row.i) = entropy;
    result.row_max.at(row.b, row.h, row.i) = std::isnan(entropy) ? entropy : max;
  });
  return result;
}

}  // namespace lanewise::test
