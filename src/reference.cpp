// Attention as it is defined, in double: docs/NUMERICS.md without its rounding. Shapes first, then one row in
// numbered steps. A key is hidden by a condition, never by the value of a score, and a hidden key's memory is not read.
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace lanewise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kHides = -1e38f;  // a bias at or below this hides its key
constexpr int64_t kBlock = 256;    // keys

double widen_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction ? kNan : kInfinity)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

double load(const lw_const_tensor& tensor, int64_t index) {
  if (tensor.type == LW_TYPE_F32) return static_cast<const float*>(tensor.data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(tensor.data)[index];
  if (tensor.type == LW_TYPE_F16) return widen_f16(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;  // bf16
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Index of element [first, head, row, 0]; first is a sequence or page, 0 in ragged tensors.
int64_t index_of(const lw_const_tensor& tensor, int64_t first, int64_t head, int64_t row) {
  return first * tensor.stride[0] + head * tensor.stride[1] + row * tensor.stride[2];
}

// The rules of this run: the problem's, or what the run puts in their place.
struct Rules {
  double scale, softcap;
  int64_t window_left, window_right;
  bool has_q_offset;
  int64_t q_offset;
};

Rules rules_of(const lw_problem& problem, const lw_inputs& in) {
  Rules rules;
  const double default_scale = 1 / std::sqrt(static_cast<double>(problem.qk_dim));
  rules.scale = problem.has_scale ? problem.scale : static_cast<float>(default_scale);
  if (in.overrides & LW_OVERRIDE_SCALE) rules.scale = in.scale;
  rules.softcap = in.overrides & LW_OVERRIDE_SOFTCAP ? in.softcap : problem.softcap;
  rules.window_left = in.overrides & LW_OVERRIDE_WINDOW ? in.window_left : problem.window_left;
  rules.window_right = in.overrides & LW_OVERRIDE_WINDOW ? in.window_right : problem.window_right;
  rules.has_q_offset = problem.has_q_offset || (in.overrides & LW_OVERRIDE_Q_OFFSET);
  rules.q_offset = in.overrides & LW_OVERRIDE_Q_OFFSET ? in.q_offset : problem.q_offset;
  return rules;
}

// Sequence b: how long, where its rows lie in ragged tensors, and where queries and keys stand on the key axis.
struct Sequence {
  int64_t b, q_len, kv_len, first_query, first_key, kv_start, q_offset;
};

Sequence sequence_of(const lw_problem& problem, const lw_inputs& in, const Rules& rules, int64_t b) {
  Sequence s = {b, in.q_len >= 0 ? in.q_len : problem.q_len, in.kv_len >= 0 ? in.kv_len : problem.kv_len, 0, 0, 0, 0};
  if (problem.q_layout == LW_LAYOUT_RAGGED) {
    s.first_query = in.cu_seqlens_q[b];
    s.q_len = in.cu_seqlens_q[b + 1] - s.first_query;
  }
  if (problem.kv_layout == LW_LAYOUT_RAGGED) {
    s.first_key = in.cu_seqlens_kv[b];
    s.kv_len = in.cu_seqlens_kv[b + 1] - s.first_key;
  }
  if (in.q_lengths) s.q_len = in.q_lengths[b];
  if (in.kv_lengths) s.kv_len = in.kv_lengths[b];
  if (in.kv_starts) s.kv_start = in.kv_starts[b];
  s.q_offset = in.q_offsets ? in.q_offsets[b] : rules.has_q_offset ? rules.q_offset : s.kv_start + s.kv_len - s.q_len;
  return s;
}

// One query row: sequence s, query head h, query i of the sequence.
struct Row {
  const lw_problem& problem;
  const lw_inputs& in;
  const Rules& rules;
  const Sequence& s;
  int64_t h, i;

  bool ragged() const { return problem.q_layout == LW_LAYOUT_RAGGED; }
  int64_t batch_index() const { return ragged() ? 0 : s.b; }
  int64_t query_index() const { return s.first_query + i; }
  int64_t query_row(const lw_const_tensor& tensor) const { return index_of(tensor, batch_index(), h, query_index()); }
  int64_t kv_head() const { return h / (problem.q_heads / problem.kv_heads); }

  // Position on the key axis.
  int64_t position() const {
    if (!in.q_positions) return s.q_offset + i;
    return in.q_positions[batch_index() * in.q_positions_stride[0] + query_index() * in.q_positions_stride[1]];
  }

  double bias(int64_t j) const { return load(in.bias, query_row(in.bias) + j * in.bias.stride[3]); }

  // Key j's tile is in the row's list of the block-sparse mask.
  bool tile_is_listed(int64_t j) const {
    const int32_t* indptr = in.block_indptr + s.b * in.block_indptr_stride[0] + h * in.block_indptr_stride[1];
    const int64_t tile_row = i / problem.block_mask_rows;
    for (int64_t n = indptr[tile_row]; n < indptr[tile_row + 1]; ++n) {
      if (in.block_indices[n] == j / problem.block_mask_keys) return true;
    }
    return false;
  }

  // Causal, window, prefix, masks, bias: every rule must let the key through.
  bool sees(int64_t j) const {
    const int64_t p = position(), key = s.kv_start + j;
    const bool in_reach = (!problem.causal || key <= p) && (rules.window_left < 0 || key >= p - rules.window_left) &&
                          (rules.window_right < 0 || key <= p + rules.window_right);
    if (!in_reach && key >= problem.prefix_len) return false;
    // Column 0 of a mask_tail mask is key kv_len - mask_tail; keys before it are not masked.
    const int64_t column = problem.mask_tail > 0 ? j - (s.kv_len - problem.mask_tail) : j;
    if (problem.mask_type != LW_TYPE_NONE && column >= 0) {
      const uint8_t* flags = static_cast<const uint8_t*>(in.mask.data) + query_row(in.mask);
      const bool bits = problem.mask_type == LW_TYPE_BITS;
      if (!(bits ? (flags[column / 8] >> (column % 8)) & 1 : flags[column * in.mask.stride[3]])) return false;
    }
    if (problem.block_mask_rows > 0 && !tile_is_listed(j)) return false;
    return problem.bias_type == LW_TYPE_NONE || !(bias(j) <= kHides);
  }

  // Index of element 0 of key (or value) row j.
  int64_t key_index(const lw_const_tensor& tensor, int64_t j) const {
    if (problem.kv_layout == LW_LAYOUT_RAGGED) return index_of(tensor, 0, kv_head(), s.first_key + j);
    if (problem.kv_layout == LW_LAYOUT_DENSE) return index_of(tensor, s.b, kv_head(), j);
    const int64_t slot = j / problem.page_size;
    const int32_t page = in.page_table[s.b * in.page_table_stride[0] + slot * in.page_table_stride[1]];
    return index_of(tensor, page, kv_head(), j % problem.page_size);
  }

  // Score of key j, and what its rounding errors are proportional to.
  double score(int64_t j, double& magnitude) const {
    const int64_t q_row = query_row(in.q), k_row = key_index(in.k, j);
    double dot = 0, size = 0;
    for (int64_t c = 0; c < problem.qk_dim; ++c) {
      const double product = load(in.q, q_row + c * in.q.stride[3]) * load(in.k, k_row + c * in.k.stride[3]);
      dot += product;
      size += std::fabs(product);
    }
    double result = rules.scale * dot;
    magnitude = std::fabs(rules.scale) * size;
    if (rules.softcap != 0) result = rules.softcap * std::tanh(result / rules.softcap);
    if (problem.alibi) {
      const double slope = in.alibi_slopes[s.b * in.alibi_batch_stride + h];
      const double distance = std::fabs(static_cast<double>(position() - (s.kv_start + j)));
      result -= slope * distance;
      magnitude += std::fabs(slope) * distance;
    }
    if (problem.bias_type != LW_TYPE_NONE) {
      result += bias(j);
      magnitude += std::fabs(bias(j));
    }
    return result;
  }
};

void attend_row(const Row& row, size_t r, ReferenceResult& result) {
  const lw_problem& problem = row.problem;
  const lw_inputs& in = row.in;
  // 1. Scores of the visible keys.
  std::vector<int64_t> keys;
  std::vector<double> scores;
  bool undefined = false;  // a NaN or +inf score leaves the softmax without a value
  int64_t last_block = -1;
  for (int64_t j = 0; j < row.s.kv_len; ++j) {
    if (!row.sees(j)) continue;
    double magnitude;
    keys.push_back(j);
    scores.push_back(row.score(j, magnitude));
    undefined |= !(scores.back() < kInfinity);
    // A score of -inf is exact: it weighs nothing.
    if (scores.back() > -kInfinity) result.score_magnitude[r] = std::max(result.score_magnitude[r], magnitude);
    const int64_t block = (row.s.kv_start + j) / kBlock;
    result.blocks[r] += block != last_block;
    last_block = block;
  }
  // 2. Two more terms of the denominator: an earlier run's state, as sum * 2^max, and the sink.
  const bool continues = in.state_max.data != nullptr;
  double state_max = -kInfinity, state_sum = 0;
  if (continues) {
    state_sum = load(in.state_sum, row.query_row(in.state_sum));
    if (state_sum != 0) state_max = kLn2 * load(in.state_max, row.query_row(in.state_max));
    undefined |= std::isnan(state_sum) || std::isnan(state_max);
  }
  const double sink = problem.sinks ? in.sinks[row.h] : -kInfinity;
  undefined |= !(sink < kInfinity);
  // 3. The largest of all: every weight is relative to it.
  double top = std::max(state_max, sink);
  for (const double score : scores) top = std::max(top, score);
  double* out = result.out.data() + r * static_cast<size_t>(problem.v_dim);
  if (undefined) {
    std::fill(out, out + problem.v_dim, kNan);
    result.lse[r] = kNan;
    return;
  }
  // 4. Nothing visible, or nothing that weighs anything: out stays 0.
  result.lse[r] = -kInfinity;
  if (top == -kInfinity) return;
  // 5. Sum of weights, and the weighted sum of values. A visible key takes part even with weight 0.
  const double state_weight = state_sum != 0 ? std::exp(state_max - top) : 0;
  double sum = state_sum * state_weight + std::exp(sink - top);
  if (continues && state_sum != 0) {
    const int64_t acc = row.query_row(in.state_acc);
    for (int64_t x = 0; x < problem.v_dim; ++x) {
      const double value = load(in.state_acc, acc + x * in.state_acc.stride[3]);
      out[x] = value * state_weight;
      result.value_magnitude[r] = std::max(result.value_magnitude[r], std::fabs(value / state_sum));
    }
  }
  for (size_t n = 0; n < keys.size(); ++n) {
    const double weight = std::exp(scores[n] - top);
    const int64_t v_row = row.key_index(in.v, keys[n]);
    sum += weight;
    for (int64_t x = 0; x < problem.v_dim; ++x) {
      const double value = load(in.v, v_row + x * in.v.stride[3]);
      out[x] += weight * value;
      result.value_magnitude[r] = std::max(result.value_magnitude[r], std::fabs(value));
    }
  }
  // 6. Divide once.
  for (int64_t x = 0; x < problem.v_dim; ++x) out[x] /= sum;
  result.lse[r] = top + std::log(sum);
}

// Calls f(row, its number) for the rows of all sequences, query by query.
template <class F>
void each_row(const lw_problem& problem, const lw_inputs& in, const Rules& rules, F f) {
  const int64_t batch = in.batch >= 0 ? in.batch : problem.batch;
  const int64_t q_len = in.q_len >= 0 ? in.q_len : problem.q_len;
  for (int64_t b = 0; b < batch; ++b) {
    const Sequence s = sequence_of(problem, in, rules, b);
    for (int64_t h = 0; h < problem.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        const Row row = {problem, in, rules, s, h, i};
        const int64_t r =
            row.ragged() ? row.query_index() * problem.q_heads + h : (b * problem.q_heads + h) * q_len + i;
        f(row, static_cast<size_t>(r));
      }
    }
  }
}

}  // namespace

ReferenceResult reference(const lw_problem& problem, const lw_inputs& inputs) {
  const Rules rules = rules_of(problem, inputs);
  const bool ragged = problem.q_layout == LW_LAYOUT_RAGGED;
  const int64_t batch = inputs.batch >= 0 ? inputs.batch : problem.batch;
  const int64_t q_len = inputs.q_len >= 0 ? inputs.q_len : problem.q_len;
  const size_t rows = static_cast<size_t>(problem.q_heads * (ragged ? problem.total_q : batch * q_len));

  ReferenceResult result;
  result.out.assign(rows * static_cast<size_t>(problem.v_dim), 0.0);
  result.lse.assign(rows, 0.0);
  result.score_magnitude.assign(rows, 0.0);
  result.value_magnitude.assign(rows, 0.0);
  result.blocks.assign(rows, 0);
  result.softcapped = rules.softcap != 0;

  each_row(problem, inputs, rules, [&](const Row& row, size_t r) { attend_row(row, r, result); });
  return result;
}

namespace {

// What native_bf16 adds to the error of a score: two roundings a pair of dims, each maybe a truncation; and the relative
// rounding of a prob to bf16 (docs/NUMERICS.md, "native_bf16").
double native_score_error(const lw_problem& problem, double a) {
  if (problem.arithmetic != LW_ARITHMETIC_NATIVE_BF16) return 0;
  return static_cast<double>(problem.qk_dim + 2) * std::ldexp(a, -23);
}
double native_rounding(const lw_problem& problem) {
  return problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16 ? std::ldexp(1, -8) : 0;
}

}  // namespace

double out_bound(const lw_problem& problem, const ReferenceResult& result, size_t row) {
  const double a = result.score_magnitude[row];
  const double chain = (std::sqrt(static_cast<double>(problem.qk_dim)) + 2) * std::ldexp(a, -24);
  const double blocks = std::ldexp(static_cast<double>(result.blocks[row]), -24);
  // A weight is off by its own error less the mean of all: by one rounding of a prob in the mean, not two.
  const double native = 2 * native_score_error(problem, a) + native_rounding(problem);
  return result.value_magnitude[row] * (8e-6 + chain + blocks + (result.softcapped ? 4e-7 * a : 0) + native);
}

double lse_bound(const lw_problem& problem, const ReferenceResult& result, size_t row) {
  const double a = result.score_magnitude[row];
  const double chain = (std::sqrt(static_cast<double>(problem.qk_dim)) + 2) * std::ldexp(a, -24);
  const double native = native_score_error(problem, a) + native_rounding(problem);
  return 1e-6 * std::max(1.0, std::fabs(result.lse[row])) + chain + (result.softcapped ? 4e-7 * a : 0) + native;
}

double rounding_bound(int32_t type, double value) {
  // Below the normal numbers all have the same ulp.
  if (type == LW_TYPE_BF16) return std::ldexp(1, std::max(std::ilogb(value), -126) - 8);
  if (type == LW_TYPE_F16) return std::ldexp(1, std::max(std::ilogb(value), -14) - 11);
  return 0;
}

namespace {

// One row's weights, what they add to the sums of its keys' columns, and its own statistics.
void weigh_row(const Row& row, double lse, double lse_error, size_t r, size_t kv_len, size_t first_column,
               ReferenceStatistics& result) {
  const double u = std::ldexp(1, -24), smallest = std::ldexp(1, -125);
  // 1. Scores, and what they are off by.
  std::vector<double> scores(static_cast<size_t>(row.s.kv_len), -kInfinity);
  std::vector<bool> seen(scores.size());
  double magnitude = 0;
  int64_t keys = 0, blocks = 0, last_block = -1;
  for (size_t j = 0; j < scores.size(); ++j) {
    seen[j] = row.sees(static_cast<int64_t>(j));
    if (!seen[j]) continue;
    double size;
    scores[j] = row.score(static_cast<int64_t>(j), size);
    if (scores[j] > -kInfinity) magnitude = std::max(magnitude, size);
    ++keys;
    const int64_t block = (row.s.kv_start + static_cast<int64_t>(j)) / kBlock;
    blocks += block != last_block;
    last_block = block;
  }
  const double chain = (std::sqrt(static_cast<double>(row.problem.qk_dim)) + 2) * u * magnitude;
  const double error = chain + (row.rules.softcap != 0 ? 4e-7 * magnitude : 0) + lse_error;
  // 2. Weights, summed along the row and into their columns.
  double max = 0, max_bound = 0, entropy = 0, entropy_bound = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    if (!seen[j] || lse == -kInfinity) continue;
    const double log_weight = scores[j] - lse > 0 ? 0 : scores[j] - lse;  // NaN stays
    const double weight = std::exp(log_weight);
    const double own = weight > 0 ? std::fabs(log_weight) : 0;
    const double relative = std::expm1(error + 1.4e-8 * std::fabs(lse) + u * own + 2e-7);
    const double bound = weight * relative + smallest;
    result.weights.value[r * kv_len + j] = weight;
    result.weights.bound[r * kv_len + j] = bound;
    result.column_sums.value[first_column + j] += weight;
    result.column_sums.bound[first_column + j] += bound;
    max = std::isnan(weight) || weight > max ? weight : max;  // NaN stays: nothing is above it
    max_bound = std::max(max_bound, bound);
    entropy += weight * own;
    if (std::isnan(weight)) entropy = kNan;
    entropy_bound += weight * (own + 1) * relative + 100 * smallest;
  }
  result.row_max.value[r] = std::isnan(entropy) ? kNan : max;
  result.row_max.bound[r] = max_bound;
  result.row_entropy.value[r] = entropy;
  const double adds = static_cast<double>(std::min(keys, kBlock) + blocks + 4);
  result.row_entropy.bound[r] = entropy_bound + adds * u * entropy;
}

}  // namespace

ReferenceStatistics reference_statistics(const lw_problem& problem, const lw_inputs& inputs,
                                         const ReferenceResult& whole, int64_t row_begin, int64_t row_end) {
  const Rules rules = rules_of(problem, inputs);
  const bool ragged = problem.kv_layout == LW_LAYOUT_RAGGED;
  const size_t rows = whole.lse.size();
  const size_t kv_len = static_cast<size_t>(inputs.kv_len >= 0 ? inputs.kv_len : problem.kv_len);
  const size_t batch = static_cast<size_t>(inputs.batch >= 0 ? inputs.batch : problem.batch);
  const size_t q_heads = static_cast<size_t>(problem.q_heads), total_kv = static_cast<size_t>(problem.total_kv);
  ReferenceStatistics result;
  for (std::vector<double> ReferenceStatistics::Values::*part :
       {&ReferenceStatistics::Values::value, &ReferenceStatistics::Values::bound}) {
    (result.weights.*part).assign(rows * kv_len, 0.0);
    (result.column_sums.*part).assign(q_heads * (ragged ? total_kv : batch * kv_len), 0.0);
    (result.row_max.*part).assign(rows, 0.0);
    (result.row_entropy.*part).assign(rows, 0.0);
  }
  std::vector<double> adds(result.column_sums.value.size(), 0.0);
  each_row(problem, inputs, rules, [&](const Row& row, size_t r) {
    const auto from_start = [&](int64_t at) { return at < 0 ? at + row.s.q_len : at; };
    if (row.i < from_start(row_begin) || row.i >= from_start(row_end)) return;
    const size_t b = static_cast<size_t>(row.s.b), h = static_cast<size_t>(row.h);
    const size_t first = ragged ? h * total_kv + static_cast<size_t>(row.s.first_key) : (b * q_heads + h) * kv_len;
    weigh_row(row, whole.lse[r], lse_bound(problem, whole, r), r, kv_len, first, result);
    for (size_t j = 0; j < static_cast<size_t>(row.s.kv_len); ++j) ++adds[first + j];
  });
  for (size_t n = 0; n < adds.size(); ++n)  // each addition rounds once
    result.column_sums.bound[n] += adds[n] * std::ldexp(result.column_sums.value[n], -24);
  return result;
}

}  // namespace lanewise
