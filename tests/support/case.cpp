#include "case.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "compare.hpp"
#include "rnd.hpp"
#include "run.hpp"
#include "targets.hpp"

namespace lanewise::test {
Case& Case::continue_from(const Result& earlier) {
  state_max_ = earlier.state_max;
  state_sum_ = earlier.state_sum;
  state_acc_ = earlier.state_acc;
  return *this;
}

Array& Case::q() {
  if (!q_) q_ = random_array({batch_, q_heads_, q_len_, qk_dim_}, stream_, amplitudes_[0]);
  return *q_;
}
Array& Case::k() {
  if (!k_) k_ = random_array({batch_, kv_heads_, kv_len_, qk_dim_}, stream_ + 1, amplitudes_[1]);
  return *k_;
}
Array& Case::v() {
  if (!v_) v_ = random_array({batch_, kv_heads_, kv_len_, v_dim_}, stream_ + 2, amplitudes_[2]);
  return *v_;
}

int64_t Case::q_len_of(int64_t b) const { return q_lengths_.empty() ? q_len_ : q_lengths_[static_cast<size_t>(b)]; }
int64_t Case::kv_len_of(int64_t b) const { return kv_lengths_.empty() ? kv_len_ : kv_lengths_[static_cast<size_t>(b)]; }
int64_t Case::kv_start_of(int64_t b) const { return kv_starts_.empty() ? 0 : kv_starts_[static_cast<size_t>(b)]; }
int64_t Case::q_offset_of(int64_t b) const {
  if (!q_offsets_.empty()) return q_offsets_[static_cast<size_t>(b)];
  return q_offset_ ? *q_offset_ : kv_start_of(b) + kv_len_of(b) - q_len_of(b);
}

bool Case::reaches(int64_t b, int64_t i, int64_t j) const {
  const int64_t key = kv_start_of(b) + j;
  if (key < rules_.prefix_len) return true;
  const int64_t position =
      rules_.q_positions.empty() ? q_offset_of(b) + i : rules_.q_positions[static_cast<size_t>(b * q_len_ + i)];
  return (!causal_ || key <= position) && (window_[0] < 0 || key >= position - window_[0]) &&
         (window_[1] < 0 || key <= position + window_[1]);
}

bool Case::key_is_in_reach(int64_t b, int64_t j) const {
  if (j >= kv_len_of(b)) return false;
  for (int64_t i = q_len_of(b) - 1; i >= 0; --i) {
    if (reaches(b, i, j)) return true;
  }
  return false;
}

bool Case::key_is_seen(int64_t b, int64_t j) const {
  if (j >= kv_len_of(b)) return false;
  for (int64_t i = q_len_of(b) - 1; i >= 0; --i) {
    if (!reaches(b, i, j)) continue;
    for (int64_t h = 0; h < q_heads_; ++h) {
      if (rules_.lets_see(b, h, i, j, kv_len_of(b))) return true;
    }
  }
  return false;
}

Case Case::batch_part(int64_t b) {
  Case part = *this;
  const auto only = [b](std::vector<int32_t>& values) {
    if (!values.empty()) values = std::vector<int32_t>(1, values[static_cast<size_t>(b)]);
  };
  part.batch_ = 1;
  part.q_ = q().slice(0, b, b + 1);
  part.k_ = k().slice(0, b, b + 1);
  part.v_ = v().slice(0, b, b + 1);
  part.rules_ = rules_.slice(0, b, b + 1, batch_, q_heads_, q_len_);
  for (std::vector<int32_t>* values : {&part.q_offsets_, &part.kv_starts_, &part.q_lengths_, &part.kv_lengths_}) {
    only(*values);
  }
  return part;
}

Case Case::head_part(int64_t kv_head) {
  Case part = *this;
  const int64_t group = q_heads_ / kv_heads_;
  part.q_heads_ = group;
  part.kv_heads_ = 1;
  part.q_ = q().slice(1, kv_head * group, (kv_head + 1) * group);
  part.k_ = k().slice(1, kv_head, kv_head + 1);
  part.v_ = v().slice(1, kv_head, kv_head + 1);
  part.rules_ = rules_.slice(1, kv_head * group, (kv_head + 1) * group, batch_, q_heads_, q_len_);
  return part;
}

Case Case::query_part(int64_t begin, int64_t end) {
  Case part = *this;
  part.q_offsets_.clear();
  for (int64_t b = 0; b < batch_; ++b) part.q_offsets_.push_back(static_cast<int32_t>(q_offset_of(b) + begin));
  part.q_len_ = end - begin;
  part.q_ = q().slice(2, begin, end);
  part.rules_ = rules_.slice(2, begin, end, batch_, q_heads_, q_len_);
  part.k();
  part.v();
  return part;
}

Case Case::key_part(int64_t begin, int64_t end) {
  Case part = *this;
  part.q_offsets_.clear();
  part.kv_starts_.clear();
  for (int64_t b = 0; b < batch_; ++b) {
    part.q_offsets_.push_back(static_cast<int32_t>(q_offset_of(b)));
    part.kv_starts_.push_back(static_cast<int32_t>(kv_start_of(b) + begin));
  }
  part.kv_len_ = end - begin;
  part.q();
  part.k_ = k().slice(2, begin, end);
  part.v_ = v().slice(2, begin, end);
  part.rules_ = rules_.slice(3, begin, end, batch_, q_heads_, q_len_);
  return part;
}

Prepared Case::prepare(Edge edge, float poison) {
  Prepared p;
  p.edge = edge;
  p.problem = lw_problem_default();
  p.problem.batch = batch_;
  p.problem.q_heads = q_heads_;
  p.problem.kv_heads = kv_heads_;
  p.problem.q_len = q_len_;
  p.problem.kv_len = kv_len_;
  p.problem.qk_dim = qk_dim_;
  p.problem.v_dim = v_dim_;
  p.problem.q_type = q_type_;
  p.problem.k_type = p.problem.v_type = kv_type_;
  p.problem.out_type = out_type_;
  if (native_) p.problem.arithmetic = LW_ARITHMETIC_NATIVE_BF16;
  p.problem.causal = causal_;
  p.problem.window_left = window_[0];
  p.problem.window_right = window_[1];
  p.problem.has_scale = scale_.has_value();
  p.problem.scale = scale_.value_or(0.0f);
  p.problem.has_q_offset = q_offset_.has_value();
  p.problem.q_offset = q_offset_.value_or(0);

  p.inputs = lw_inputs_default();
  if (capacity_) {
    p.inputs.batch = batch_;
    p.inputs.q_len = q_len_;
    p.inputs.kv_len = kv_len_;
    p.problem.batch = (*capacity_)[0];
    p.problem.q_len = (*capacity_)[1];
    p.problem.kv_len = (*capacity_)[2];
  }
  const Surroundings around = {edge, poison};
  p.inputs.q_offsets = place_ints(p.q_offsets, q_offsets_, edge);
  p.inputs.kv_starts = place_ints(p.kv_starts, kv_starts_, edge);
  place_keys(p, around);
  place_queries(p, around);
  rules_.place(p, around, ragged_q_ ? cu_seqlens(&Case::q_len_of) : std::vector<int32_t>(), batch_, q_len_);
  return p;
}

std::vector<int32_t> Case::cu_seqlens(int64_t (Case::*len_of)(int64_t) const) const {
  std::vector<int32_t> offsets = {0};
  for (int64_t b = 0; b < batch_; ++b) offsets.push_back(offsets.back() + static_cast<int32_t>((this->*len_of)(b)));
  return offsets;
}

void Case::place_keys(Prepared& p, const Surroundings& around) {
  const auto unseen = [this](int64_t b, int64_t j) { return !key_is_seen(b, j); };
  const auto place = [&](const Array& keys, const Array& values, const Hidden& hidden) {
    place_input(p.inputs.k, p.k, keys, layouts_[1], kv_type_, around, hidden);
    place_input(p.inputs.v, p.v, values, layouts_[2], kv_type_, around, hidden);
  };
  if (ragged_kv_) {
    p.problem.kv_layout = LW_LAYOUT_RAGGED;
    const std::vector<int32_t> offsets = cu_seqlens(&Case::kv_len_of);
    p.problem.total_kv = offsets.back();
    p.inputs.cu_seqlens_kv = place_ints(p.kv_lengths, offsets, around.edge);
    place(join_sequences(k(), offsets, 1), join_sequences(v(), offsets, 1), [&](int64_t, int64_t token) {
      const auto next = std::upper_bound(offsets.begin(), offsets.end(), static_cast<int32_t>(token));
      if (next == offsets.end()) return true;  // the spare row
      return unseen(next - offsets.begin() - 1, token - *(next - 1));
    });
    p.inputs.k.stride[0] = p.inputs.v.stride[0] = INT64_MIN;  // not used
    return;
  }
  std::vector<int32_t> lengths = kv_lengths_;
  if (page_size_ == 0) {
    p.inputs.kv_lengths = place_ints(p.kv_lengths, lengths, around.edge);
    place(k(), v(), unseen);
    return;
  }
  if (lengths.empty()) lengths.assign(static_cast<size_t>(batch_), static_cast<int32_t>(kv_len_));
  const PagePool pool(
      batch_, kv_len_, page_size_, [&](int64_t b, int64_t j) { return key_is_in_reach(b, j); }, page_seed_);
  p.problem.kv_layout = LW_LAYOUT_PAGED;
  p.problem.page_size = page_size_;
  p.problem.page_count = pool.pages();
  p.inputs.kv_lengths = place_ints(p.kv_lengths, lengths, around.edge);
  p.inputs.page_table = place_ints(p.page_table, pool.table(), around.edge);
  p.inputs.page_table_stride[0] = pool.table_width();
  p.inputs.page_table_stride[1] = 1;
  place(pool.scatter(k()), pool.scatter(v()), [&](int64_t page, int64_t slot) {
    const int64_t from = pool.source(page, slot);
    return from < 0 || unseen(from / kv_len_, from % kv_len_);
  });
}

void Case::place_queries(Prepared& p, const Surroundings& around) {
  constexpr int64_t kSpare = 2;
  p.logical_q_len = q_len_;
  Shape rows = {batch_, q_heads_, q_len_, 1}, values = {batch_, q_heads_, q_len_, v_dim_};
  const std::vector<int32_t> offsets = cu_seqlens(&Case::q_len_of);
  if (ragged_q_) {
    p.problem.q_layout = LW_LAYOUT_RAGGED;
    p.problem.total_q = offsets.back();
    p.inputs.cu_seqlens_q = place_ints(p.q_lengths, offsets, around.edge);
    rows[0] = values[0] = 1;
    rows[2] = values[2] = offsets.back() + kSpare;
  } else {
    p.inputs.q_lengths = place_ints(p.q_lengths, q_lengths_, around.edge);
  }
  const auto input = [&](lw_const_tensor& tensor, GuardedBuffer& buffer, const Array& array, Layout layout,
                         int32_t type) {
    const auto unused = [&](int64_t b, int64_t i) { return ragged_q_ ? i >= offsets.back() : i >= q_len_of(b); };
    place_input(tensor, buffer, ragged_q_ ? join_sequences(array, offsets, kSpare) : array, layout, type, around,
                unused);
    if (ragged_q_) tensor.stride[0] = INT64_MAX;  // not used
  };
  const auto output = [&](lw_tensor& tensor, GuardedBuffer& buffer, const Shape& shape, Layout layout, int32_t type) {
    place_output(tensor, buffer, shape, layout, type, around.edge);
    if (ragged_q_) tensor.stride[0] = INT64_MIN;
  };
  input(p.inputs.q, p.q, q(), layouts_[0], q_type_);
  if (state_max_) {
    input(p.inputs.state_max, p.in_max, *state_max_, layouts_[0], LW_TYPE_F32);
    input(p.inputs.state_sum, p.in_sum, *state_sum_, layouts_[0], LW_TYPE_F32);
    input(p.inputs.state_acc, p.in_acc, *state_acc_, layouts_[0], LW_TYPE_F32);
  }
  p.outputs = lw_outputs_default();
  output(p.outputs.out, p.out, values, layouts_[3], out_type_);
  if (lse_) output(p.outputs.lse, p.lse, rows, layouts_[3], LW_TYPE_F32);
  if (!state_) return;
  output(p.outputs.state_max, p.state_max, rows, layouts_[3], LW_TYPE_F32);
  output(p.outputs.state_sum, p.state_sum, rows, layouts_[3], LW_TYPE_F32);
  output(p.outputs.state_acc, p.state_acc, values, layouts_[3], LW_TYPE_F32);
}

Result Case::run(const How& how) {
  Prepared prepared = prepare();
  return run_prepared(prepared, how);
}

std::vector<Result> Case::check() {
  struct Form {
    Edge edge;
    float poison;
  };
  const Form forms[] = {{Edge::kEnd, std::numeric_limits<float>::quiet_NaN()},
                        {Edge::kStart, std::numeric_limits<float>::infinity()},
                        {Edge::kEnd, 1e38f},
                        {Edge::kStart, 0.0f}};
  std::vector<Prepared> prepared;
  for (const Form& form : forms) prepared.push_back(prepare(form.edge, form.poison));
  const Expectation expected(*this);

  std::vector<Result> results;
  for_each_target([&](const std::string& target) {
    std::optional<Result> first;
    PreparedPlan plan(prepared[0].problem, target);
    if (native_ && !has_native_bf16(target)) {
      count_case(target);
      CHECK(plan.status().code == LW_UNSUPPORTED);
      CHECK(std::string(plan.status().message).find("arithmetic is native_bf16") == 0);
      return;
    }
    for (size_t form = 0; form < prepared.size(); ++form) {
      for (const int32_t threads : {1, 2, 7}) {
        INFO("target " << target << ", " << threads << " threads, buffers in form " << form);
        // Small problems use one thread whatever is asked; parts are always as many as asked.
        const bool in_parts = threads > 1 && form % 2 == 1;
        How how = {target, threads};
        how.runner = in_parts ? Runner::kPartsReversed : Runner::kOpenmp;
        Result result = plan.run(prepared[form], how);
        REQUIRE(std::string(result.status.message) == "");
        CHECK(result.damage == "");
        if (first) {
          CHECK(bit_difference(*first, result) == "");
          continue;
        }
        CHECK(expected.difference(result) == "");
        first = std::move(result);
      }
    }
    if (!results.empty() && has_fma(target) && has_fma(results.front().target)) {
      INFO("targets " << results.front().target << " and " << target);
      CHECK(bit_difference(results.front(), *first) == "");
    }
    results.push_back(std::move(*first));
  });
  return results;
}

Case scores_case(const std::vector<float>& scores, const std::vector<float>& values) {
  Case c = Case().heads(1, 1).len(1, static_cast<int64_t>(scores.size())).dims(1).scale(1);
  c.q().fill(1);
  c.k().values = scores;
  c.v().values = values;
  return c;
}

Expectation::Expectation(const Case& c) : q_lengths_(c.q_lengths_) {
  const Prepared p = Case(c).dense().prepare();
  problem_ = p.problem;
  reference_ = reference(p.problem, p.inputs);
}

Agreement Expectation::agreement(const Result& result) const {
  if (result.status.code != LW_OK) return {0, result.status.message};
  return test::agreement(problem_, reference_, result.out, result.lse, q_lengths_);
}

Result check_executors(Case& c, const Expectation& expected, const std::string& target,
                       const std::vector<int32_t>& threads) {
  Prepared p = c.prepare();
  const PreparedPlan plan(p.problem, target);
  const Result alone = plan.run(p, {target, 1, Runner::kCaller});
  CHECK(expected.difference(alone) == "");
  for (const Runner runner : {Runner::kOpenmp, Runner::kCallback, Runner::kPartsReversed, Runner::kPartsOnThreads}) {
    for (const int32_t n : threads) {
      const Result result = plan.run(p, {target, n, runner});
      INFO("executor " << static_cast<int>(runner) << ", " << n << " threads");
      CHECK(result.damage == "");
      CHECK(bit_difference(alone, result) == "");
    }
  }
  return alone;
}

}  // namespace lanewise::test
