#include "canonical.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lanewise::test {
namespace {

constexpr float kNoMax = -1e38f;
constexpr int64_t kBlock = 256, kSpan = 4096;
// Constants of the contract: 2^f on [-1/2, 1/2], log2(1 + f) / f around 0.
constexpr float kExp2[] = {0.0013264727f, 0.0096715130f, 0.055507336f, 0.24022242f, 0.69314700f, 1.0f};
constexpr float kLog2[] = {-0.11020159721374512f, 0.18631209433078766f, -0.19102497398853302f, 0.2045752853155136f,
                           -0.23961904644966125f, 0.2885688841342926f,  -0.3606966435909271f,  0.4808982014656067f,
                           -0.7213473320007324f,  1.4426950216293335f};

struct State {
  float max = kNoMax, sum = 0;
  std::vector<float> acc;
};

float pow2(float n) { return n < -125 ? 0.0f : std::ldexp(1.0f, static_cast<int>(n)); }

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
  int64_t b, h, i, kv_head, kv_len, kv_start, position;
  std::vector<float> q;  // times factor

  bool sees(int64_t j) const {
    const lw_problem& r = p.problem;
    const int64_t key = kv_start + j;
    return (!r.causal || key <= position) && (r.window_left < 0 || key >= position - r.window_left) &&
           (r.window_right < 0 || key <= position + r.window_right);
  }

  // The state of the keys of one block, j = begin ... end - 1, by itself.
  State block(int64_t begin, int64_t end) const {
    std::vector<int64_t> keys;
    std::vector<float> scores;
    State state;
    state.acc.assign(static_cast<size_t>(p.problem.v_dim), 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      if (!sees(j)) continue;
      float s = 0;
      for (size_t c = 0; c < q.size(); ++c) {
        s = std::fma(q[c], element(p.inputs.k, b, kv_head, j, static_cast<int64_t>(c)), s);
      }
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

}  // namespace

Result canonical(const Prepared& p) {
  const lw_problem& problem = p.problem;
  const lw_inputs& in = p.inputs;
  const int64_t batch = in.batch >= 0 ? in.batch : problem.batch;
  const int64_t q_len = in.q_len >= 0 ? in.q_len : problem.q_len, kv_len = in.kv_len >= 0 ? in.kv_len : problem.kv_len;
  const double dim = static_cast<double>(problem.qk_dim);
  const float scale = problem.has_scale ? problem.scale : static_cast<float>(1 / std::sqrt(dim));
  const float factor = static_cast<float>(static_cast<double>(scale) * 1.4426950408889634074);

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
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t rows = in.q_lengths ? in.q_lengths[b] : q_len, keys = in.kv_lengths ? in.kv_lengths[b] : kv_len;
    const int64_t start = in.kv_starts ? in.kv_starts[b] : 0;
    const int64_t offset = in.q_offsets           ? in.q_offsets[b]
                           : problem.has_q_offset ? problem.q_offset
                                                  : start + keys - rows;
    for (int64_t h = 0; h < problem.q_heads; ++h) {
      for (int64_t i = 0; i < rows; ++i) {
        Row row = {p, b, h, i, h / (problem.q_heads / problem.kv_heads), keys, start, offset + i, {}};
        for (int64_t c = 0; c < problem.qk_dim; ++c) row.q.push_back(element(in.q, b, h, i, c) * factor);
        const State state = row.run();
        for (int64_t x = 0; x < problem.v_dim; ++x) {
          const float acc = state.acc[static_cast<size_t>(x)];
          result.out.at(b, h, i, x) = state.sum == 0 ? 0.0f : one_nan(acc / state.sum + 0.0f);
          if (states) result.state_acc.at(b, h, i, x) = acc;
        }
        result.lse.at(b, h, i) = std::isnan(state.sum) ? one_nan(state.sum) : log_sum_exp(state);
        if (!states) continue;
        result.state_max.at(b, h, i) = state.max + 0.0f;  // one zero: which operand of a maximum wins is not arithmetic
        result.state_sum.at(b, h, i) = state.sum;
      }
    }
  }
  return result;
}

}  // namespace lanewise::test
