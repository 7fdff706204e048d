// One attention problem as a test sees it: sizes and rules by fluent setters, logical q, k, v (from the generator
// unless changed), storage types and memory layouts. A case lays its tensors out in guarded, poisoned buffers, runs the
// library on them and gives back logical results; check() compares every target, thread count and buffer form with the
// reference and with each other.
//
//   Case().heads(8, 2).len(7, 300).dims(64).causal().check();
#pragma once

#include <catch2/generators/catch_generators_range.hpp>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "array.hpp"
#include "compare.hpp"
#include "lanewise/lanewise.h"
#include "place.hpp"
#include "rule_set.hpp"
#include "run.hpp"
#include "src/reference.hpp"
#include "targets.hpp"

namespace lanewise::test {

// What a case is stored as and computed in: failures of one type, or of one arithmetic, are looked for in each.
struct Storage {
  const char* name;
  int32_t type;
  bool native;
};
inline constexpr Storage kStorages[] = {{"f32", LW_TYPE_F32, false},
                                        {"bf16", LW_TYPE_BF16, false},
                                        {"f16", LW_TYPE_F16, false},
                                        {"native_bf16", LW_TYPE_BF16, true}};
// Makes a Catch2 test case run once for each.
inline Storage any_storage() { return GENERATE(from_range(std::begin(kStorages), std::end(kStorages))); }

class Case {
 public:
  Case& batch(int64_t n) { return batch_ = n, *this; }
  Case& heads(int64_t q_heads, int64_t kv_heads) { return q_heads_ = q_heads, kv_heads_ = kv_heads, *this; }
  Case& len(int64_t q_len, int64_t kv_len) { return q_len_ = q_len, kv_len_ = kv_len, *this; }
  Case& dims(int64_t qk_dim, int64_t v_dim = 0) { return qk_dim_ = qk_dim, v_dim_ = v_dim ? v_dim : qk_dim, *this; }
  Case& types(int32_t q, int32_t kv, int32_t out) { return q_type_ = q, kv_type_ = kv, out_type_ = out, *this; }
  Case& native_bf16() { return native_ = true, types(LW_TYPE_BF16, LW_TYPE_BF16, out_type_); }
  Case& stored_as(const Storage& s) { return native_ = s.native, types(s.type, s.type, s.type); }
  // a, b, c of R(a, b, c): largest |q|, |k|, |v|.
  Case& amplitudes(float q, float k, float v) { return amplitudes_ = {q, k, v}, *this; }
  Case& seed(uint64_t first_stream) { return stream_ = first_stream, *this; }
  Case& causal(bool on = true) { return causal_ = on, *this; }
  Case& window(int64_t left, int64_t right) { return window_ = {left, right}, *this; }
  Case& scale(float value) { return scale_ = value, *this; }
  Case& q_offset(int64_t value) { return q_offset_ = value, *this; }
  Case& q_offsets(std::vector<int32_t> values) { return q_offsets_ = std::move(values), *this; }
  Case& kv_starts(std::vector<int32_t> values) { return kv_starts_ = std::move(values), *this; }
  Case& q_lengths(std::vector<int32_t> values) { return q_lengths_ = std::move(values), *this; }
  Case& kv_lengths(std::vector<int32_t> values) { return kv_lengths_ = std::move(values), *this; }
  // Further rules; see rule_set.hpp for shapes.
  RuleSet& rules() { return rules_; }
  Case& softcap(float value) { return rules_.softcap = value, *this; }
  Case& prefix(int64_t len) { return rules_.prefix_len = len, *this; }
  Case& q_positions(std::vector<int32_t> values) { return rules_.q_positions = std::move(values), *this; }
  Case& alibi(std::vector<float> slopes) { return rules_.slopes = std::move(slopes), *this; }
  Case& sinks(std::vector<float> values) { return rules_.sinks = std::move(values), *this; }
  Case& mask(Array flags, int32_t type = LW_TYPE_BOOL, Layout layout = Layout::kBhld) {
    return rules_.mask = std::move(flags), rules_.mask_type = type, rules_.mask_layout = layout, *this;
  }
  Case& tail_mask(Array flags, int32_t type) {
    rules_.mask_tail = flags.shape[3];
    return mask(std::move(flags), type);
  }
  Case& bias(Array values, int32_t type = LW_TYPE_F32, Layout layout = Layout::kBhld) {
    return rules_.bias = std::move(values), rules_.bias_type = type, rules_.bias_layout = layout, *this;
  }
  Case& block_mask(int64_t rows, int64_t keys, Array listed) {
    return rules_.tile_rows = rows, rules_.tile_keys = keys, rules_.tiles = std::move(listed), *this;
  }
  // An earlier state lies as q does, lse and states as out.
  Case& layouts(Layout q, Layout k, Layout v, Layout out) { return layouts_ = {q, k, v, out}, *this; }
  // Storage: queries (with out, lse and states) or keys one sequence behind another, keys in pages. Two rows that
  // belong to no sequence follow ragged queries. seed: which pages.
  Case& ragged_q(bool on = true) { return ragged_q_ = on, *this; }
  Case& ragged_kv(bool on = true) { return ragged_kv_ = on, page_size_ = 0, *this; }
  Case& paged(int64_t page_size, uint64_t seed = 11) {
    return page_size_ = page_size, page_seed_ = seed, ragged_kv_ = false, *this;
  }
  Case& dense() { return ragged_q(false).ragged_kv(false); }
  // The plan's capacity, where it is more than this run's sizes.
  Case& capacity(int64_t batch, int64_t q_len, int64_t kv_len) { return capacity_ = {batch, q_len, kv_len}, *this; }
  Case& without_lse() { return lse_ = false, *this; }
  Case& with_state() { return state_ = true, *this; }
  Case& continue_from(const Result& earlier);

  // Logical inputs, made on first use: sizes come first. Changing an element changes the case.
  Array& q();
  Array& k();
  Array& v();

  // Parts of the case, with the same values; positions stay what they were in the whole.
  Case batch_part(int64_t b);
  Case head_part(int64_t kv_head);  // one kv head and its group
  Case query_part(int64_t begin, int64_t end);
  Case key_part(int64_t begin, int64_t end);

  // poison: what every byte and every key or query that must not matter is filled with.
  Prepared prepare(Edge edge = Edge::kEnd, float poison = std::numeric_limits<float>::quiet_NaN());
  Result run(const How& how);

  // Runs on every target with 1, 2 and 7 threads in four buffer forms (ends at a guard page or starts after one,
  // poisoned with NaN, inf, 1e38 or 0): all within the reference's bounds, all with the same bits (between targets:
  // those with FMA), nothing else written. One result a target; native_bf16 only where the target has it, a clear status
  // elsewhere.
  std::vector<Result> check();

  // The target has the case's arithmetic.
  bool runs_on(const std::string& target) const { return !native_ || has_native_bf16(target); }

  // Key j of sequence b has some query that may see it, by length, causal, window and prefix; by all rules.
  bool key_is_in_reach(int64_t b, int64_t j) const;
  bool key_is_seen(int64_t b, int64_t j) const;

 private:
  friend class Expectation;

  void place_keys(Prepared& p, const Surroundings& around);
  void place_queries(Prepared& p, const Surroundings& around);
  std::vector<int32_t> cu_seqlens(int64_t (Case::*len_of)(int64_t) const) const;
  bool reaches(int64_t b, int64_t i, int64_t j) const;
  int64_t q_len_of(int64_t b) const;
  int64_t kv_len_of(int64_t b) const;
  int64_t kv_start_of(int64_t b) const;
  int64_t q_offset_of(int64_t b) const;

  int64_t batch_ = 1, q_heads_ = 2, kv_heads_ = 2, q_len_ = 1, kv_len_ = 1, qk_dim_ = 64, v_dim_ = 64;
  int32_t q_type_ = LW_TYPE_F32, kv_type_ = LW_TYPE_F32, out_type_ = LW_TYPE_F32;
  std::array<float, 3> amplitudes_ = {1, 1, 1};
  uint64_t stream_ = 1;
  bool native_ = false, causal_ = false, lse_ = true, state_ = false, ragged_q_ = false, ragged_kv_ = false;
  int64_t page_size_ = 0;  // 0: no pages
  uint64_t page_seed_ = 0;
  std::array<int64_t, 2> window_ = {-1, -1};
  std::optional<float> scale_;
  std::optional<int64_t> q_offset_;
  std::optional<std::array<int64_t, 3>> capacity_;
  std::vector<int32_t> q_offsets_, kv_starts_, q_lengths_, kv_lengths_;
  std::array<Layout, 4> layouts_ = {Layout::kBhld, Layout::kBhld, Layout::kBhld, Layout::kBhld};
  RuleSet rules_;
  std::optional<Array> q_, k_, v_, state_max_, state_sum_, state_acc_;
};

// A case of a table.
struct Subject {
  const char* name;
  Case c;
};

// Runs body(target) on every target that has c's arithmetic.
template <class Body>
void for_each_target_of(const Case& c, Body body) {
  for_each_target([&](const std::string& target) { c.runs_on(target) ? body(target) : count_case(target); });
}

// One head, one query of dimension 1: scores and values as given.
Case scores_case(const std::vector<float>& scores, const std::vector<float>& values);

// What the reference says about arguments as they stand.
inline ReferenceResult solve(const Prepared& p) { return reference(p.problem, p.inputs); }

// What the reference says about a case, computed once: about its dense form, whatever its storage.
class Expectation {
 public:
  explicit Expectation(const Case& c);

  const ReferenceResult& reference_result() const { return reference_; }
  // Empty when `result` succeeded and agrees within the bounds, else what is off.
  std::string difference(const Result& result) const { return agreement(result).difference; }
  Agreement agreement(const Result& result) const;

 private:
  lw_problem problem_;
  ReferenceResult reference_;
  std::vector<int32_t> q_lengths_;
};

// Runs the case on one thread, which must agree with the reference, and by every executor on each number of threads,
// which must give the same bits. The result of the one.
Result check_executors(Case& c, const Expectation& expected, const std::string& target,
                       const std::vector<int32_t>& threads);

}  // namespace lanewise::test
