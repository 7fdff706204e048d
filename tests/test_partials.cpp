// lw_merge and lw_append: partial results put together, rows written into caches.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

lw_const_tensor view(const Array& array) {
  return TensorView<const float>::bhld(array.values.data(), array.shape[1], array.shape[2], array.shape[3]);
}
lw_tensor view(Array& array) {
  return TensorView<float>::bhld(array.values.data(), array.shape[1], array.shape[2], array.shape[3]);
}

struct Parts {
  std::vector<Array> out, lse;
};

Result merged(const Parts& parts, const Array& shape_of) {
  lw_problem problem = lw_problem_default();
  problem.batch = shape_of.shape[0];
  problem.q_heads = problem.kv_heads = shape_of.shape[1];
  problem.q_len = shape_of.shape[2];
  problem.qk_dim = problem.v_dim = shape_of.shape[3];
  std::vector<lw_const_tensor> outs, lses;
  for (const Array& out : parts.out) outs.push_back(view(out));
  for (const Array& lse : parts.lse) lses.push_back(view(lse));
  Result result;
  result.out = Array(shape_of.shape, 77.0f);
  result.lse = Array({shape_of.shape[0], shape_of.shape[1], shape_of.shape[2], 1}, 77.0f);
  lw_outputs outputs = lw_outputs_default();
  outputs.out = view(result.out);
  outputs.lse = view(result.lse);
  result.status = lw_merge(&problem, outs.data(), lses.data(), static_cast<int32_t>(outs.size()), &outputs);
  return result;
}

TEST_CASE("merged parts agree with the whole within its bound") {
  Case whole = Case().batch(2).heads(4, 2).len(5, 700).dims(32, 24).causal();
  const Expectation expected(whole);
  const std::vector<std::vector<int64_t>> cuts = {
      {0, 700}, {0, 256, 700}, {0, 1, 2, 3, 699, 700}, {0, 0, 350, 350, 700}};
  for_each_target([&](const std::string& target) {
    for (const std::vector<int64_t>& cut : cuts) {
      Parts parts;
      for (size_t n = 0; n + 1 < cut.size(); ++n) {
        const Result part = whole.key_part(cut[n], cut[n + 1]).run({target});
        parts.out.push_back(part.out);
        parts.lse.push_back(part.lse);
      }
      CHECK(expected.difference(merged(parts, parts.out[0])) == "");
    }
  });
}

TEST_CASE("R01: merging parts that hold nothing, infinities and NaN") {
  const auto one = [](float out, float lse) {
    return std::pair<Array, Array>(Array({1, 1, 1, 3}, out), Array({1, 1, 1, 1}, lse));
  };
  const auto merge_of = [&](const std::vector<std::pair<Array, Array>>& parts) {
    Parts p;
    for (const auto& [out, lse] : parts) {
      p.out.push_back(out);
      p.lse.push_back(lse);
    }
    const Result result = merged(p, p.out[0]);
    REQUIRE(std::string(result.status.message) == "");
    return std::pair<float, float>(result.out.values[2], result.lse.values[0]);
  };
  using Pair = std::pair<float, float>;
  CHECK(merge_of({one(0, -kInf)}) == Pair(0.0f, -kInf));
  CHECK(merge_of({one(0, -kInf), one(0, -kInf), one(kNan, -kInf)}) == Pair(0.0f, -kInf));
  CHECK(merge_of({one(kNan, -kInf), one(5, 2)}).first == 5);
  CHECK(merge_of({one(5, 2), one(kInf, -kInf)}).first == 5);
  CHECK(merge_of({one(5, -1e30f), one(3, -kInf)}).first == 5);
  CHECK(std::isnan(merge_of({one(5, 2), one(3, kNan)}).first));
  CHECK(std::isnan(merge_of({one(5, 2), one(3, kNan)}).second));
  const Pair halves = merge_of({one(1, 3), one(3, 3)});
  CHECK(std::fabs(halves.first - 2) < 1e-6f);
  CHECK(std::fabs(halves.second - (3 + std::log(2.0f))) < 1e-6f);
  const Pair far = merge_of({one(1, 200), one(3, -200)});
  CHECK(far.first == 1);
  CHECK(far.second == 200);
  std::vector<std::pair<Array, Array>> many;
  for (int n = 0; n < LW_MAX_PARTS; ++n) many.push_back(one(static_cast<float>(n), 0));
  CHECK(std::fabs(merge_of(many).first - 127.5f) < 1e-4f);
}

TEST_CASE("merging in place") {
  const Array a = random_array({2, 2, 3, 8}, 1), b = random_array({2, 2, 3, 8}, 2);
  const Array lse_a = random_array({2, 2, 3, 1}, 3), lse_b = random_array({2, 2, 3, 1}, 4);
  const Result apart = merged({{a, b}, {lse_a, lse_b}}, a);
  REQUIRE(apart.status.code == LW_OK);
  lw_problem problem = lw_problem_default();
  problem.batch = problem.q_heads = problem.kv_heads = 2;
  problem.q_len = 3;
  problem.qk_dim = problem.v_dim = 8;
  Array out = b, lse = lse_b;
  const lw_const_tensor outs[] = {view(a), view(static_cast<const Array&>(out))};
  const lw_const_tensor lses[] = {view(lse_a), view(static_cast<const Array&>(lse))};
  lw_outputs outputs = lw_outputs_default();
  outputs.out = view(out);
  outputs.lse = view(lse);
  REQUIRE(lw_merge(&problem, outs, lses, 2, &outputs).code == LW_OK);
  CHECK(bit_difference(out, apart.out) == "");
  CHECK(bit_difference(lse, apart.lse) == "");
  for (const int32_t count : {0, -1, LW_MAX_PARTS + 1})
    CHECK(lw_merge(&problem, outs, lses, count, &outputs).code == LW_INVALID_ARGUMENT);
  CHECK(lw_merge(nullptr, outs, lses, 2, &outputs).code == LW_INVALID_ARGUMENT);
  CHECK(lw_merge(&problem, nullptr, lses, 2, &outputs).code == LW_INVALID_ARGUMENT);
  CHECK(lw_merge(&problem, outs, nullptr, 2, &outputs).code == LW_INVALID_ARGUMENT);
  CHECK(lw_merge(&problem, outs, lses, 2, nullptr).code == LW_INVALID_ARGUMENT);
}

TEST_CASE("N03: append writes the slots asked for and no other") {
  for (const int32_t type : {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16}) {
    const int64_t pages = 3, heads = 2, page_size = 8, dim = 5, size = type_size(type);
    const std::vector<int32_t> slots = {3, -1, 0, -1, 17, 23};
    const size_t bytes = static_cast<size_t>(pages * heads * page_size * dim * size);
    for (const Edge edge : {Edge::kEnd, Edge::kStart}) {
      GuardedBuffer cache(bytes, edge), rows(static_cast<size_t>(heads * 6 * dim * size), edge);
      for (size_t n = 0; n < rows.size(); ++n) rows.data()[n] = static_cast<uint8_t>(n * 7 + 1);
      lw_tensor to = TensorView<float>::bhld(reinterpret_cast<float*>(cache.data()), heads, page_size, dim, type);
      const lw_const_tensor from =
          TensorView<const float>::blhd(reinterpret_cast<const float*>(rows.data()), heads, 6, dim, type);
      REQUIRE(std::string(lw_append(&to, pages, page_size, heads, dim, &from, 6, slots.data()).message) == "");
      CHECK(cache.canaries_intact());
      const size_t row = static_cast<size_t>(dim * size);
      for (int64_t slot = 0; slot < pages * page_size; ++slot) {
        const auto token = std::find(slots.begin(), slots.end(), static_cast<int32_t>(slot));
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = ((slot / page_size) * heads + h) * page_size + slot % page_size;
          const uint8_t* found = cache.data() + static_cast<size_t>(at) * row;
          std::vector<uint8_t> right(row, GuardedBuffer::kCanary);
          if (token != slots.end()) {
            const int64_t t = token - slots.begin();
            std::copy_n(rows.data() + static_cast<size_t>(t * heads + h) * row, row, right.begin());
          }
          CHECK(std::equal(right.begin(), right.end(), found));
        }
      }
      // A slot that does not exist: nothing is written, the good ones neither.
      GuardedBuffer fresh(bytes, edge);
      to.data = fresh.data();
      for (const int32_t bad : {-2, 24, INT32_MAX, INT32_MIN}) {
        std::vector<int32_t> wrong = slots;
        wrong[5] = bad;
        const lw_status status = lw_append(&to, pages, page_size, heads, dim, &from, 6, wrong.data());
        CHECK(status.code == LW_INVALID_ARGUMENT);
        CHECK(std::string(status.message).find("slots[5] is " + std::to_string(bad)) != std::string::npos);
        CHECK(fresh.untouched());
      }
    }
  }
}

TEST_CASE("a cache grown by append decodes like the sequence") {
  Case whole = Case().heads(4, 2).len(1, 50).dims(16);
  const Expectation expected(whole);
  // Pages of 4, handed out from the last to the first.
  const int64_t page_size = 4, pages = 13;
  std::vector<int32_t> table;
  for (int32_t page = 0; page < 13; ++page) table.push_back(12 - page);
  Array k({pages, 2, page_size, 16}, kNan), v({pages, 2, page_size, 16}, kNan);
  for (int64_t j = 0; j < 50; j += 10) {
    std::vector<int32_t> slots;
    for (int64_t t = j; t < j + 10; ++t)
      slots.push_back(static_cast<int32_t>(table[static_cast<size_t>(t / 4)] * 4 + t % 4));
    for (const auto& [cache, rows] :
         {std::pair<Array*, Array>{&k, whole.k().slice(2, j, j + 10)}, {&v, whole.v().slice(2, j, j + 10)}}) {
      const lw_tensor to = view(*cache);
      const lw_const_tensor from = view(rows);
      REQUIRE(lw_append(&to, pages, page_size, 2, 16, &from, 10, slots.data()).code == LW_OK);
    }
  }
  for_each_target([&](const std::string& target) {
    const Result dense = whole.run({target});
    CHECK(expected.difference(dense) == "");
    Prepared p = whole.prepare();
    const int32_t length = 50;
    p.problem.kv_layout = LW_LAYOUT_PAGED;
    p.problem.page_size = page_size;
    p.problem.page_count = pages;
    p.inputs.k = view(static_cast<const Array&>(k));
    p.inputs.v = view(static_cast<const Array&>(v));
    p.inputs.kv_lengths = &length;
    p.inputs.page_table = table.data();
    p.inputs.page_table_stride[1] = 1;
    CHECK(bit_difference(dense, run_prepared(p, {target})) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
