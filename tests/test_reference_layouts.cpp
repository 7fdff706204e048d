// The reference on other storage (ragged, paged, 16-bit, continued), which must not change an answer, and on answers
// from elsewhere: hand-checked examples and real model inputs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/reference.hpp"
#include "support/case.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/rnd.hpp"

namespace lanewise::test {
namespace {

constexpr double kExact = 1e-12;

// Largest difference of finite values; infinity where one is not finite and the other differs.
double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (size_t n = 0; n < found.size(); ++n) {
    const bool same = agrees(found[n], expected[n], 0);
    const double difference = std::fabs(found[n] - expected[n]);
    if (!same)
      worst = std::isfinite(difference) ? std::max(worst, difference) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

TEST_CASE("reference: ragged sequences are single sequences") {
  // Tokens of three sequences behind one another, one row too many; heads together.
  const std::vector<int32_t> cu_q = {0, 3, 3, 8}, cu_kv = {0, 5, 7, 12};
  const Array q = random_array({1, 9, 4, 6}, 1), k = random_array({1, 12, 2, 6}, 2), v = random_array({1, 12, 2, 3}, 3);
  lw_problem problem = lw_problem_default();
  problem.batch = 3;
  problem.q_heads = 4;
  problem.kv_heads = 2;
  problem.qk_dim = 6;
  problem.v_dim = 3;
  problem.q_layout = problem.kv_layout = LW_LAYOUT_RAGGED;
  problem.q_len = problem.kv_len = 5;
  problem.total_q = 9;
  problem.total_kv = 12;
  problem.causal = 1;
  lw_inputs in = lw_inputs_default();
  in.q = tensor_at(q.values.data(), LW_TYPE_F32, {999, 6, 24, 1});  // stride[0] is not used
  in.k = tensor_at(k.values.data(), LW_TYPE_F32, {999, 6, 12, 1});
  in.v = tensor_at(v.values.data(), LW_TYPE_F32, {999, 3, 6, 1});
  in.cu_seqlens_q = cu_q.data();
  in.cu_seqlens_kv = cu_kv.data();
  const ReferenceResult ragged = reference(problem, in);
  REQUIRE(ragged.lse.size() == 36);
  for (size_t b = 0; b < 3; ++b) {
    const int64_t q_len = cu_q[b + 1] - cu_q[b], kv_len = cu_kv[b + 1] - cu_kv[b];
    Case c = Case().heads(4, 2).len(q_len, kv_len).dims(6, 3).causal();
    c.q().each([&](int64_t, int64_t h, int64_t i, int64_t x, float& value) { value = q.at(0, cu_q[b] + i, h, x); });
    c.k().each([&](int64_t, int64_t h, int64_t j, int64_t x, float& value) { value = k.at(0, cu_kv[b] + j, h, x); });
    c.v().each([&](int64_t, int64_t h, int64_t j, int64_t x, float& value) { value = v.at(0, cu_kv[b] + j, h, x); });
    const ReferenceResult single = solve(c.prepare());
    for (size_t n = 0; n < single.lse.size(); ++n) {
      const size_t h = n / static_cast<size_t>(q_len), i = n % static_cast<size_t>(q_len);
      const size_t row = (static_cast<size_t>(cu_q[b]) + i) * 4 + h;
      CHECK(ragged.lse[row] == single.lse[n]);
      CHECK(ragged.out[row * 3 + 2] == single.out[n * 3 + 2]);
    }
  }
  for (size_t n = 32; n < 36; ++n) CHECK(ragged.lse[n] == 0);  // row 8 belongs to no sequence
}

TEST_CASE("reference: pages are read through the table, holes outside the visible range never (N01)") {
  for (const int64_t page_size : {1, 3, 4}) {
    Case dense = Case().batch(2).heads(4, 2).len(2, 10).dims(5, 4).kv_lengths({10, 7}).causal();
    dense.k();
    dense.v();
    const int64_t pages = (10 + page_size - 1) / page_size;
    // Page n of sequence b lies at (2n + b) * 3 mod a prime number of pages: scattered.
    const int64_t pool = 23;
    std::vector<int32_t> table(static_cast<size_t>(2 * pages), -1);
    Array k({pool, page_size, 2, 5}, std::nanf("")), v({pool, page_size, 2, 4}, std::nanf(""));
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t j = 0; j < (b ? 7 : 10); ++j) {
        const int64_t page = ((2 * (j / page_size) + b) * 3) % pool;
        table[static_cast<size_t>(b * pages + j / page_size)] = static_cast<int32_t>(page);
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t x = 0; x < 5; ++x) k.at(page, j % page_size, h, x) = dense.k().at(b, h, j, x);
          for (int64_t x = 0; x < 4; ++x) v.at(page, j % page_size, h, x) = dense.v().at(b, h, j, x);
        }
      }
    }
    const Prepared plain = dense.prepare();
    Prepared paged = dense.prepare();
    paged.problem.kv_layout = LW_LAYOUT_PAGED;
    paged.problem.page_size = page_size;
    paged.problem.page_count = pool;
    paged.inputs.k = tensor_at(k.values.data(), LW_TYPE_F32, {page_size * 10, 5, 10, 1});
    paged.inputs.v = tensor_at(v.values.data(), LW_TYPE_F32, {page_size * 8, 4, 8, 1});
    paged.inputs.page_table = table.data();
    paged.inputs.page_table_stride[0] = pages;
    paged.inputs.page_table_stride[1] = 1;
    CHECK(solve(paged).out == solve(plain).out);
    CHECK(solve(paged).lse == solve(plain).lse);
  }
}

TEST_CASE("reference: 16-bit storage is its widened values") {
  for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
    Case narrow = Case().len(3, 7).dims(9, 2).types(type, type, LW_TYPE_F32);
    Case wide = Case().len(3, 7).dims(9, 2);
    for (Array* array : {&wide.q(), &wide.k(), &wide.v()}) {
      for (float& value : array->values) {
        uint16_t bits;
        store(type, &bits, 0, value);
        value = load(type, &bits, 0);
      }
    }
    CHECK(solve(narrow.prepare()).out == solve(wide.prepare()).out);
  }
}

TEST_CASE("reference: lengths cut, unused rows are zeros") {
  Case c = Case().batch(3).heads(2, 1).len(4, 6).dims(3).q_lengths({4, 0, 2}).kv_lengths({6, 3, 0});
  const ReferenceResult found = solve(c.prepare());
  for (size_t row = 0; row < 24; ++row) {
    const size_t b = row / 8, i = row % 4;
    const bool used = i < (b == 0 ? 4u : b == 1 ? 0u : 2u);
    CHECK((found.blocks[row] == 1) == (b == 0));
    if (!used) CHECK(found.lse[row] == 0);
    if (b == 2 && used) CHECK(found.lse[row] == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("reference: an earlier state is more keys") {
  Case whole = Case().heads(4, 2).len(3, 5000).dims(4, 2).causal();
  Case rest = whole.key_part(4096, 5000);
  const ReferenceResult expected = solve(whole.prepare()), prefix = solve(whole.key_part(0, 4096).prepare());
  // Any reference maximum describes the same state: sum * 2^max = exp(lse).
  Result state;
  state.state_max = state.state_sum = Array({1, 4, 3, 1});
  state.state_acc = Array({1, 4, 3, 2});
  for (size_t row = 0; row < 12; ++row) {
    const double log2_sum = prefix.lse[row] / std::log(2.0), top = std::ceil(log2_sum) - 5;
    state.state_max.values[row] = static_cast<float>(top);
    state.state_sum.values[row] = static_cast<float>(std::exp2(log2_sum - top));
    for (size_t x = 0; x < 2; ++x) {
      state.state_acc.values[row * 2 + x] = static_cast<float>(prefix.out[row * 2 + x] * std::exp2(log2_sum - top));
    }
  }
  const ReferenceResult found = solve(rest.continue_from(state).prepare());
  CHECK(largest_difference(found.out, expected.out) < 2e-7);  // the state is rounded to float32
  CHECK(largest_difference(found.lse, expected.lse) < 2e-7);
  // An empty state (row_sum 0) adds nothing, whatever its maximum says.
  state.state_max.fill(-1e38f);
  state.state_sum.fill(0);
  state.state_acc.fill(0);
  CHECK(solve(Case(rest).continue_from(state).prepare()).out == solve(whole.key_part(4096, 5000).prepare()).out);
}

TEST_CASE("reference: the hand-checked examples") {
  const nlohmann::json worked = nlohmann::json::parse(read_text(data_path("worked.json")));
  REQUIRE(worked.at("attention").size() == 4);
  for (const nlohmann::json& example : worked.at("attention")) {
    INFO(example.at("name"));
    const std::vector<std::vector<float>> q = example.at("q"), k = example.at("k"), v = example.at("v");
    const int64_t len = static_cast<int64_t>(q.size());
    Case c = Case().heads(1, 1).len(len, len).dims(4).scale(example.at("scale"));
    c.q().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = q[size_t(i)][size_t(x)]; });
    c.k().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = k[size_t(i)][size_t(x)]; });
    c.v().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = v[size_t(i)][size_t(x)]; });
    std::vector<double> out, lse;
    for (const std::vector<double> row : example.at("output")) out.insert(out.end(), row.begin(), row.end());
    for (const nlohmann::json& e : example.at("lse")) {
      lse.push_back(e.is_string() ? -std::numeric_limits<double>::infinity() : e.get<double>());
    }
    Prepared p = c.prepare();
    const auto matches = [&] {
      const ReferenceResult found = solve(p);
      return largest_difference(found.out, out) < kExact && largest_difference(found.lse, lse) < kExact;
    };
    std::vector<uint8_t> flags;
    if (example.contains("mask")) {
      for (const std::vector<bool> row : example.at("mask")) flags.insert(flags.end(), row.begin(), row.end());
      p.problem.mask_type = LW_TYPE_BOOL;
      p.inputs.mask = tensor_at(flags.data(), LW_TYPE_BOOL, {0, 0, len, 1});
    }
    CHECK(matches());
    // The same by rules where a rule says it.
    p.problem.mask_type = LW_TYPE_NONE;
    p.problem.causal = example.at("name") == "causal" || example.at("name") == "causal_window";
    if (example.at("name") == "causal_window") p.problem.window_left = 1;
    if (example.at("name") != "hidden_row") CHECK(matches());
  }
}

// The files' float64 answers use the exact scale, the library float32(scale): for qk_dim 32 that differs by 1.4e-8.
// Twice the dimension makes up for it: q' = [q, e q], k' = [k, k] with 1 + e = exact / float32.
Case with_exact_scale(const Array& q, const Array& k, const Array& v) {
  const int64_t dim = q.shape[3];
  const double exact = 1 / std::sqrt(static_cast<double>(dim));
  const float scale = static_cast<float>(exact);
  const double e = exact / static_cast<double>(scale) - 1;
  Case c = Case().batch(q.shape[0]).heads(q.shape[1], k.shape[1]).len(q.shape[2], k.shape[2]).dims(2 * dim, dim);
  c.scale(scale);
  c.q().each([&](int64_t b, int64_t h, int64_t i, int64_t x, float& value) {
    const float element = q.at(b, h, i, x % dim);
    value = x < dim ? element : static_cast<float>(e * static_cast<double>(element));
  });
  c.k().each([&](int64_t b, int64_t h, int64_t i, int64_t x, float& value) { value = k.at(b, h, i, x % dim); });
  c.v() = v;
  return c;
}

TEST_CASE("reference: real model inputs with their float64 answers") {
  const std::vector<std::string> names = {
      "minilm_layer0_len61",   "minilm_layer0_len256",        "minilm_layer5_len61",           "minilm_layer5_len256",
      "minilm_layer3_padded4", "smollm2_layer0_len64_causal", "smollm2_layer15_len200_causal", "smollm2_layer8_decode"};
  for (const std::string& name : names) {
    INFO(name);
    std::map<std::string, StoredTensor> file = read_safetensors(data_path("real/" + name + ".safetensors"));
    Case c = with_exact_scale(file["q"].as_array(), file["k"].as_array(), file["v"].as_array());
    c.causal(name.find("smollm2") == 0);
    if (file.count("lengths")) {
      c.kv_lengths(std::vector<int32_t>(file["lengths"].values.begin(), file["lengths"].values.end()));
    }
    const ReferenceResult found = solve(c.prepare());
    CHECK(largest_difference(found.out, file["out"].values) < kExact);
    CHECK(largest_difference(found.lse, file["lse"].values) < kExact);
  }
}

}  // namespace
}  // namespace lanewise::test
