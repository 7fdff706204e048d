// lw_merge: any tree of merges of partial results is the softmax over the union, within a bound derived here; parts that
// hold nothing, NaN, strides, ragged rows, in place.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/kernels/kernel_table.hpp"
#include "src/targets.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kUnit = 1.0 / (1 << 24);

struct Partial {
  Array out, lse;
  // Largest error, as a share of V, of out; of lse.
  double out_error = 0, lse_error = 0;
};

lw_problem problem_of(const Shape& out) {
  lw_problem problem = lw_problem_default();
  problem.batch = out[0];
  problem.q_heads = problem.kv_heads = out[1];
  problem.q_len = out[2];
  problem.qk_dim = problem.v_dim = out[3];
  return problem;
}

// Parts in buffers of their own, at guard pages; the result in one, gaps checked.
Partial merge(const std::vector<Partial>& parts, Layout in = Layout::kBhld, Layout to = Layout::kBhld) {
  const Shape shape = parts.at(0).out.shape, row_shape = parts.at(0).lse.shape;
  const lw_problem problem = problem_of(shape);
  const Surroundings around = {Edge::kEnd, kNan};
  const auto nothing = [](int64_t, int64_t) { return false; };
  std::vector<lw_const_tensor> outs(parts.size()), lses(parts.size());
  std::vector<GuardedBuffer> buffers(2 * parts.size());
  for (size_t n = 0; n < parts.size(); ++n) {
    place_input(outs[n], buffers[2 * n], parts[n].out, in, LW_TYPE_F32, around, nothing);
    place_input(lses[n], buffers[2 * n + 1], parts[n].lse, in, LW_TYPE_F32, around, nothing);
  }
  lw_outputs outputs = lw_outputs_default();
  GuardedBuffer out, lse;
  place_output(outputs.out, out, shape, to, LW_TYPE_F32, Edge::kStart);
  place_output(outputs.lse, lse, row_shape, to, LW_TYPE_F32, Edge::kEnd);
  const lw_status status = lw_merge(&problem, outs.data(), lses.data(), static_cast<int32_t>(parts.size()), &outputs);
  REQUIRE(std::string(status.message) == "");
  Partial merged = {Array(shape), Array(row_shape)};
  const auto take = [](const lw_tensor& tensor, GuardedBuffer& buffer, Array& array) {
    array.each([&](int64_t a, int64_t b, int64_t c, int64_t d, float& value) {
      float* at = static_cast<float*>(tensor.data) + a * tensor.stride[0] + b * tensor.stride[1] +
                  c * tensor.stride[2] + d * tensor.stride[3];
      value = *at;
      std::memset(at, GuardedBuffer::kCanary, sizeof *at);
    });
    CHECK(buffer.untouched());
  };
  take(outputs.out, out, merged.out);
  take(outputs.lse, lse, merged.lse);
  return merged;
}

// The error that one merge of n parts adds. Weights w_i = exp(lse_i - m), sum(w) >= 1, are off by
//   the error of lse_i (relative, once);
//   the rounded difference, the constant and the product: 3 u |x| with x = lse_i - m, and e^-|x| |x| <= 1 / e;
//   poly5: 1.9e-7 relative.
// out is a mean weighted by w: a relative error e of the weights moves it by at most 2 e V. Chains of n terms for sum
// and acc and the division add (2 n + 1) u V. lse takes the weights' error once, the sum's n u, 5e-8 of the logarithm
// and three roundings of lse itself (of m + log(sum), and of the product with ln 2).
void add_errors(const std::vector<Partial>& parts, Partial& merged) {
  const double n = static_cast<double>(parts.size());
  double largest = 1;
  for (const Partial& part : parts) {
    merged.out_error = std::max(merged.out_error, part.out_error);
    merged.lse_error = std::max(merged.lse_error, part.lse_error);
    for (const float lse : part.lse.values) {
      if (std::isfinite(lse)) largest = std::max(largest, std::fabs(static_cast<double>(lse)));
    }
  }
  const double weights = merged.lse_error + 1.9e-7 + 3 * kUnit * (n / std::exp(1.0));
  merged.out_error += 2 * weights + (2 * n + 1) * kUnit;
  merged.lse_error = weights + n * kUnit + 5e-8 + 3 * kUnit * (largest + std::log(n));
}

// Parts over keys [cut[n], cut[n + 1]), each within the bounds of a run of its own.
std::vector<Partial> parts_of(Case whole, const std::vector<int64_t>& cut, const std::string& target) {
  std::vector<Partial> parts;
  for (size_t n = 0; n + 1 < cut.size(); ++n) {
    Case part = whole.key_part(cut[n], cut[n + 1]);
    const Expectation expected(part);
    const Result result = part.run({target});
    CHECK(expected.difference(result) == "");
    Partial p = {result.out, result.lse};
    const ReferenceResult& right = expected.reference_result();
    lw_problem problem = problem_of(result.out.shape);
    problem.qk_dim = whole.q().shape[3];
    for (size_t row = 0; row < right.lse.size(); ++row) {
      if (right.value_magnitude[row] == 0) continue;
      p.out_error = std::max(p.out_error, out_bound(problem, right, row) / right.value_magnitude[row]);
      p.lse_error = std::max(p.lse_error, lse_bound(problem, right, row));
    }
    parts.push_back(std::move(p));
  }
  return parts;
}

// Merges random groups of the parts, in random order, until one is left.
Partial merge_tree(std::vector<Partial> parts, uint64_t seed) {
  uint64_t draws = 0;
  const auto draw = [&](size_t n) { return static_cast<size_t>((rnd(seed, draws++) + 1) / 2 * static_cast<float>(n)); };
  while (parts.size() > 1) {
    const size_t count = std::min(parts.size(), 2 + draw(3));
    std::vector<Partial> group;
    for (size_t n = 0; n < count; ++n) {
      const size_t at = std::min(draw(parts.size()), parts.size() - 1);
      group.push_back(parts[at]);
      parts.erase(parts.begin() + static_cast<int64_t>(at));
    }
    Partial merged = merge(group);
    add_errors(group, merged);
    parts.push_back(std::move(merged));
  }
  return parts[0];
}

void check_union(Case& whole, const Partial& merged) {
  const Expectation expected(whole);
  const ReferenceResult& right = expected.reference_result();
  const size_t v_dim = static_cast<size_t>(merged.out.shape[3]);
  for (size_t row = 0; row < right.lse.size(); ++row) {
    const double bound = merged.out_error * right.value_magnitude[row];
    for (size_t x = 0; x < v_dim; ++x) {
      const double value = static_cast<double>(merged.out.values[row * v_dim + x]);
      if (!agrees(value, right.out[row * v_dim + x], bound)) FAIL("out, row " << row << ", dim " << x << ": " << value);
    }
    const double lse = static_cast<double>(merged.lse.values[row]);
    if (!agrees(lse, right.lse[row], merged.lse_error)) FAIL("lse, row " << row << ": " << lse);
  }
  // The derived bound supposes all errors in one direction. In fact they keep within the bound of one run.
  Result as_run;
  as_run.status = {};
  as_run.out = merged.out;
  as_run.lse = merged.lse;
  CHECK(expected.difference(as_run) == "");
}

TEST_CASE("any tree of merges is the softmax over the union") {
  std::vector<Case> cases = {
      Case().batch(2).heads(4, 2).len(3, 700).dims(32, 24).causal(),
      Case().heads(8, 1).len(1, 900).dims(64),
      Case().heads(2, 2).len(9, 600).dims(16).causal().window(200, -1),  // parts that some rows see nothing of
      Case().heads(1, 1).len(1, 700).dims(8).amplitudes(4, 4, 100),
  };
  for (Case& whole : cases) {
    for_each_target([&](const std::string& target) {
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        // Cuts at random, some parts empty.
        const int64_t keys = whole.k().shape[2], count = static_cast<int64_t>(seed * 3);
        std::vector<int64_t> cut = {0, keys};
        for (int64_t n = 1; n < count; ++n) {
          cut.push_back(static_cast<int64_t>((rnd(seed, static_cast<uint64_t>(n)) + 1) / 2 * static_cast<float>(keys)));
        }
        std::sort(cut.begin(), cut.end());
        INFO(count << " parts on " << target);
        check_union(whole, merge_tree(parts_of(whole, cut, target), seed));
      }
    });
  }
}

TEST_CASE("one part is itself, to rounding") {
  const Array out = random_array({2, 3, 4, 5}, 1), lse = random_array({2, 3, 4, 1}, 2, 30);
  const Partial same = merge({{out, lse}});
  CHECK(bit_difference(same.out, out) == "");
  CHECK(bit_difference(same.lse, lse) == "");
}

TEST_CASE("strides of parts and of the result") {
  const Array a = random_array({2, 3, 7, 19}, 1), b = random_array({2, 3, 7, 19}, 2);
  const Array lse_a = random_array({2, 3, 7, 1}, 3), lse_b = random_array({2, 3, 7, 1}, 4);
  const Partial plain = merge({{a, lse_a}, {b, lse_b}});
  for (const Layout in :
       {Layout::kBlhd, Layout::kTransposed, Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen}) {
    for (const Layout to : {Layout::kBhld, Layout::kLbhd, Layout::kTransposed, Layout::kPaddedRows}) {
      const Partial moved = merge({{a, lse_a}, {b, lse_b}}, in, to);
      CHECK(bit_difference(plain.out, moved.out) == "");
      CHECK(bit_difference(plain.lse, moved.lse) == "");
    }
  }
}

// Ragged rows: [heads, tokens, dim], no batch axis.
TEST_CASE("ragged rows, and lse not wanted") {
  const Array a = random_array({1, 3, 11, 6}, 1), b = random_array({1, 3, 11, 6}, 2);
  const Array lse_a = random_array({1, 3, 11, 1}, 3), lse_b = random_array({1, 3, 11, 1}, 4);
  const Partial plain = merge({{a, lse_a}, {b, lse_b}});
  lw_problem problem = problem_of({4, 3, 5, 6});
  problem.q_layout = LW_LAYOUT_RAGGED;
  problem.total_q = 11;
  lw_const_tensor outs[2] = {}, lses[2] = {};
  const Array* arrays[] = {&a, &b, &lse_a, &lse_b};
  for (size_t n = 0; n < 4; ++n) {
    lw_const_tensor& part = n < 2 ? outs[n] : lses[n - 2];
    part = tensor_at(arrays[n]->values.data(), LW_TYPE_F32, strides_of(Layout::kBhld, arrays[n]->shape));
    part.stride[0] = INT64_MIN;  // not used
  }
  lw_outputs outputs = lw_outputs_default();
  GuardedBuffer out;
  place_output(outputs.out, out, a.shape, Layout::kBhld, LW_TYPE_F32, Edge::kEnd);
  outputs.out.stride[0] = INT64_MAX;
  REQUIRE(std::string(lw_merge(&problem, outs, lses, 2, &outputs).message) == "");
  CHECK(std::memcmp(out.data(), plain.out.values.data(), out.size()) == 0);
  CHECK(out.canaries_intact());
}

TEST_CASE("in place: the result over any of the parts") {
  std::vector<Partial> parts;
  for (uint64_t n = 0; n < 4; ++n) {
    parts.push_back({random_array({1, 2, 3, 40}, 2 * n), random_array({1, 2, 3, 1}, 2 * n + 1, 5)});
  }
  const Partial apart = merge(parts);
  const lw_problem problem = problem_of(parts[0].out.shape);
  for (size_t over_out = 0; over_out < 4; ++over_out) {
    for (size_t over_lse = 0; over_lse < 4; ++over_lse) {
      std::vector<Partial> own = parts;
      std::vector<lw_const_tensor> outs(4), lses(4);
      const auto view = [](auto& tensor, Array& array) {
        tensor = {};
        tensor.data = array.values.data();
        tensor.type = LW_TYPE_F32;
        const std::array<int64_t, 4> stride = strides_of(Layout::kBhld, array.shape);
        std::copy(stride.begin(), stride.end(), tensor.stride);
      };
      for (size_t n = 0; n < 4; ++n) {
        view(outs[n], own[n].out);
        view(lses[n], own[n].lse);
      }
      lw_outputs outputs = lw_outputs_default();
      view(outputs.out, own[over_out].out);
      view(outputs.lse, own[over_lse].lse);
      REQUIRE(std::string(lw_merge(&problem, outs.data(), lses.data(), 4, &outputs).message) == "");
      CHECK(bit_difference(own[over_out].out, apart.out) == "");
      CHECK(bit_difference(own[over_lse].lse, apart.lse) == "");
    }
  }
}

TEST_CASE("few parts and as many as there may be, in closed form") {
  const auto part = [](float out, float lse) { return Partial{Array({1, 1, 1, 3}, out), Array({1, 1, 1, 1}, lse)}; };
  const Partial halves = merge({part(1, 3), part(3, 3)});
  CHECK(std::fabs(halves.out.values[2] - 2) < 1e-6f);
  CHECK(std::fabs(halves.lse.values[0] - (3 + std::log(2.0f))) < 1e-6f);
  const Partial far = merge({part(1, 200), part(3, -200)});
  CHECK(far.out.values[2] == 1);
  CHECK(far.lse.values[0] == 200);
  CHECK(merge({part(5, -1e30f), part(3, -kInf)}).out.values[2] == 5);
  CHECK(merge({part(5, 2), part(kInf, -kInf)}).out.values[2] == 5);
  std::vector<Partial> many;
  for (int n = 0; n < LW_MAX_PARTS; ++n) many.push_back(part(static_cast<float>(n), 0));
  CHECK(std::fabs(merge(many).out.values[2] - 127.5f) < 1e-4f);
}

// Every sequence of up to four parts, each ordinary, empty with garbage in out, NaN or +inf.
TEST_CASE("R01: parts that hold nothing, and NaN, in any place") {
  const float lses[] = {0.5f, -kInf, kNan, kInf}, outs[] = {3, kNan, 3, 3};
  for (size_t count = 1; count <= 4; ++count) {
    for (size_t code = 0; code < size_t{1} << (2 * count); ++code) {
      std::vector<Partial> parts;
      size_t ordinary = 0, undefined = 0;
      for (size_t n = 0; n < count; ++n) {
        const size_t kind = (code >> (2 * n)) & 3;
        ordinary += kind == 0;
        undefined += kind >= 2;
        parts.push_back({Array({1, 1, 1, 5}, outs[kind]), Array({1, 1, 1, 1}, lses[kind])});
      }
      const Partial merged = merge(parts);
      const float lse = merged.lse.values[0];
      INFO(count << " parts, kinds " << code << ": lse " << lse << ", out " << merged.out.values[4]);
      if (undefined) CHECK(bits_of(lse) == 0x7fc00000u);
      if (!undefined && !ordinary) CHECK(lse == -kInf);
      if (!undefined && ordinary) CHECK(std::fabs(lse - 0.5f - std::log(static_cast<float>(ordinary))) < 1e-6f);
      for (const float value : merged.out.values) {
        if (undefined) CHECK(bits_of(value) == 0x7fc00000u);
        if (!undefined && !ordinary) CHECK(bits_of(value) == 0);
        if (!undefined && ordinary) CHECK(value == 3);
      }
    }
  }
}

TEST_CASE("NaN in one element of a part stays in that element") {
  Partial a = {Array({1, 2, 2, 20}, 1), Array({1, 2, 2, 1}, 1)}, b = a;
  a.out.at(0, 1, 0, 17) = kNan;
  a.lse.at(0, 0, 1) = kNan;
  const Partial merged = merge({a, b});
  merged.out.each([](int64_t, int64_t h, int64_t i, int64_t x, float value) {
    const bool undefined = (h == 1 && i == 0 && x == 17) || (h == 0 && i == 1);
    if (std::isnan(value) != undefined) FAIL(h << " " << i << " " << x << " is " << value);
  });
}

TEST_CASE("all targets merge to the same bits") {
  constexpr int64_t kParts = 5, kDim = 37;
  const Array out = random_array({1, 1, kParts, kDim}, 1), lse = random_array({1, 1, kParts, 1}, 2, 20);
  Partial first;
  for_each_target([&](const std::string& target) {
    int64_t bit = 0;
    REQUIRE(choose_target(target.c_str(), bit).code == LW_OK);
    std::vector<const float*> rows;
    for (int64_t n = 0; n < kParts; ++n) rows.push_back(out.values.data() + n * kDim);
    const std::vector<int64_t> dim_stride(kParts, 1);
    Partial merged = {Array({1, 1, 1, kDim}), Array({1, 1, 1, 1})};
    PartialRows row;
    row.count = kParts;
    row.out = rows.data();
    row.dim_stride = dim_stride.data();
    row.lse = lse.values.data();
    row.v_dim = kDim;
    row.merged_out = merged.out.values.data();
    row.merged_dim_stride = 1;
    row.merged_lse = merged.lse.values.data();
    kernels_for(bit).merge_partials(row);
    count_case(target);
    if (!has_fma(target)) return;
    if (first.out.values.empty()) first = merged;
    CHECK(bit_difference(first.out, merged.out) == "");
    CHECK(bit_difference(first.lse, merged.lse) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
