// Failures other attention kernels had (docs/RELIABILITY.md), groups E, F, L, M, N and O, where few query rows read a
// cache: the decode kernel, pages, ragged batches.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
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

std::vector<Case> stored(const Case& c) {
  return {Case(c), Case(c).paged(16), Case(c).ragged_q().ragged_kv(), Case(c).ragged_q().paged(1)};
}

TEST_CASE("E01: one query over sixteen keys in pages: top-left sees the first, bottom-right all") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(4, 2).len(1, 16).dims(64).causal();
  for (Case& bottom_right : stored(c)) bottom_right.check();
  for (Case& top_left : stored(c.q_offset(0))) {
    for (const Result& result : top_left.check()) {
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t x = 0; x < 64; ++x) {
          const float value = rounded(storage.type, c.v().at(0, h / 2, 0, x));
          CHECK(std::fabs(result.out.at(0, h, 0, x) - value) <=
                (storage.type == LW_TYPE_F32 ? 2e-7f * std::fabs(value) : 0));
        }
      }
    }
  }
}

TEST_CASE("E03, E05: a history in pages, and tokens in chunks of 1, 2 and 7") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case whole = Case().stored_as(storage).heads(4, 2).len(30, 67).dims(48).causal();
  const Expectation expected(whole);
  for_each_target_of(whole, [&](const std::string& target) {
    const Result together = whole.run({target, 2});
    CHECK(expected.difference(together) == "");
    for (const int64_t chunk : {1, 2, 7}) {
      for (int64_t begin = 0; begin < 30; begin += chunk) {
        const int64_t end = std::min<int64_t>(begin + chunk, 30);
        Case part = whole.query_part(begin, end).key_part(0, 37 + end);
        for (Case& c : stored(part)) {
          const Result result = c.run({target});
          CHECK(result.damage == "");
          CHECK(bit_difference(result.out, together.out.slice(2, begin, end)) == "");
          CHECK(bit_difference(result.lse, together.lse.slice(2, begin, end)) == "");
        }
      }
    }
  });
}

TEST_CASE("F05: decode keeps to the window, in pages and over a long context") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t context : {600, 20000}) {
    const int64_t seen = context - 512;
    Case c = Case().stored_as(storage).heads(2, 1).len(1, context).dims(8, 3).window(511, -1);
    c.q().fill(0);
    c.v().each([&](int64_t, int64_t, int64_t j, int64_t, float& value) { value = j < seen ? 1e6f : 1.0f; });
    for (const int64_t page_size : {0, 16}) {
      Case form = page_size ? Case(c).paged(page_size) : c;
      for (const Result& result : form.check()) {
        for (const float value : result.out.values) CHECK(value == 1);
      }
    }
  }
}

// A ring of 16 slots after 40 tokens: the last 16 keys, rotated in memory. Without masks every order means the same.
TEST_CASE("F07: keys in any order give the same output, to rounding") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(2, 1).len(1, 16).dims(32);
  const Expectation expected(c);
  for_each_target_of(c, [&](const std::string& target) {
    const Result in_order = c.run({target});
    CHECK(expected.difference(in_order) == "");
    for (int64_t first = 1; first < 16; ++first) {
      Case rotated = c;
      const auto rotate = [&](Array& to, const Array& from) {
        to.each([&](int64_t b, int64_t h, int64_t j, int64_t x, float& e) { e = from.at(b, h, (j + first) % 16, x); });
      };
      rotate(rotated.k(), c.k());
      rotate(rotated.v(), c.v());
      const Result result = rotated.run({target});
      CHECK(expected.difference(result) == "");
      for (size_t n = 0; n < result.out.values.size(); ++n) {
        const double value = static_cast<double>(in_order.out.values[n]);
        const double bound = 1e-6 + 2 * rounding_bound(storage.type, value);
        if (!(std::fabs(static_cast<double>(result.out.values[n]) - value) <= bound)) FAIL("element " << n);
      }
    }
  });
}

TEST_CASE("L01, L03: decode from and to any strides") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const Layout layouts[] = {Layout::kBlhd,       Layout::kLbhd,   Layout::kTransposed,
                            Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  for (const int64_t q_len : {1, 2}) {
    Case c = Case().stored_as(storage).batch(2).heads(6, 2).len(q_len, 290).dims(64, 40).causal().kv_lengths({290, 33});
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      const Result plain = c.run({target});
      CHECK(expected.difference(plain) == "");
      for (const Layout layout : layouts) {
        for (int which = 0; which < 5; ++which) {
          std::array<Layout, 4> l = {Layout::kBhld, Layout::kBhld, Layout::kBhld, Layout::kBhld};
          for (size_t n = 0; n < 4; ++n) l[n] = which == 4 || which == static_cast<int>(n) ? layout : Layout::kBhld;
          const Result moved = Case(c).layouts(l[0], l[1], l[2], l[3]).run({target, 2});
          INFO("layout " << static_cast<int>(layout) << " of tensor " << which << " on " << target);
          CHECK(moved.damage == "");
          CHECK(bit_difference(plain, moved) == "");
        }
      }
    });
  }
}

TEST_CASE("L05: strides of axes of size 1 mean nothing, of pages and tokens too") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(1, 1).len(1, 1).dims(1);
  for_each_target_of(c, [&](const std::string& target) {
    const Result plain = c.run({target});
    for (const int64_t stride : {int64_t{0}, int64_t{7}, int64_t{1} << 40, int64_t{-1}}) {
      for (int form = 0; form < 4; ++form) {
        Prepared p = stored(c)[static_cast<size_t>(form)].prepare();
        // A pool has two pages that nobody uses: K and V have an axis of pages, the others have nothing longer than 1.
        for (lw_const_tensor* tensor : {&p.inputs.q, &p.inputs.k, &p.inputs.v}) {
          const bool pages = p.problem.kv_layout == LW_LAYOUT_PAGED && tensor != &p.inputs.q;
          const bool tokens = pages && p.problem.page_size > 1;
          for (int axis = pages ? 1 : 0; axis < 4; ++axis) {
            if (!(tokens && axis == 2)) tensor->stride[axis] = stride;
          }
        }
        for (lw_tensor* tensor : {&p.outputs.out, &p.outputs.lse}) std::fill_n(tensor->stride, 4, stride);
        INFO("stride " << stride << ", storage " << form << " on " << target);
        const Result result = run_prepared(p, {target});
        // Rows behind ragged queries are none of the run's: the result is its first element.
        CHECK(std::string(result.status.message) == "");
        CHECK(bit_difference(plain.out, result.out) == "");
      }
    }
  });
}

TEST_CASE("M: every number of rows of the decode kernel, every head size near a vector") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  std::vector<int64_t> all_rows(17);
  std::iota(all_rows.begin(), all_rows.end(), 1);
  all_rows.insert(all_rows.end(), {27, 30, 43, 46});  // left over from vectors of rows
  for (const int64_t rows : all_rows) {
    for (const int64_t v_dim : {1, 3, 4, 5, 8, 15, 16, 17, 31, 33, 48, 63, 64, 80, 96, 127, 128, 160, 192, 260}) {
      Case c = Case().stored_as(storage).heads(rows, 1).len(1, 37).dims((v_dim * 7) % 70 + 1, v_dim);
      const Expectation expected(c);
      Result first;
      for_each_target_of(c, [&](const std::string& target) {
        const Result result = c.run({target});
        INFO(rows << " rows, v_dim " << v_dim << " on " << target);
        CHECK(result.damage == "");
        CHECK(expected.difference(result) == "");
        if (!has_fma(target)) return;
        if (first.target.empty()) first = result;
        CHECK(bit_difference(first, result) == "");
      });
    }
  }
}

// Rows differ in what they see: what one row may not see must not reach it, what it sees must.
TEST_CASE("P4: NaN and infinities in keys that some of a few rows see stay in those rows") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  struct Poisoned {
    Case c;
    int64_t key;
    int64_t window = -1;
  };
  std::vector<Poisoned> cases = {
      {Case().stored_as(storage).heads(2, 1).len(4, 300).dims(24, 20).causal(), 299},
      {Case().stored_as(storage).heads(2, 1).len(4, 300).dims(24, 20).causal(), 297},
      {Case().stored_as(storage).heads(2, 1).len(4, 300).dims(24, 20).causal().window(20, -1), 277, 20},
      {Case().stored_as(storage).heads(2, 1).len(4, 6000).dims(24, 20).causal().window(5000, -1), 998, 5000},
      {Case().stored_as(storage).heads(1, 1).len(8, 9000).dims(24, 20).causal(), 8995},
      {Case().stored_as(storage).heads(1, 1).len(30, 900).dims(24, 20).causal(), 890},
  };
  for (Poisoned& poisoned : cases) {
    for (const bool in_values : {false, true}) {
      for (const float content : {kNan, kInf, -kInf}) {
        Case c = poisoned.c;
        (in_values ? c.v() : c.k()).at(0, 0, poisoned.key, 5) = content;
        const Expectation expected(c);
        const Expectation clean(poisoned.c);
        for_each_target_of(c, [&](const std::string& target) {
          const Result right = poisoned.c.run({target});
          CHECK(clean.difference(right) == "");
          Prepared p = c.prepare();
          const PreparedPlan plan(p.problem, target);
          for (const int32_t threads : {1, 7}) {
            const Result result = plan.run(p, {target, threads, Runner::kPartsReversed});
            INFO(content << " in " << (in_values ? "v" : "k") << " at " << poisoned.key << " on " << target);
            CHECK(expected.difference(result) == "");
            // Rows that do not see the key: the bits of the clean run.
            const int64_t rows = result.out.shape[2], first = c.k().shape[2] - rows;  // position of query 0
            for (int64_t i = 0; i < rows; ++i) {
              const int64_t begin = poisoned.window < 0 ? 0 : first + i - poisoned.window;
              if (poisoned.key >= begin && poisoned.key <= first + i) continue;
              CHECK(bit_difference(result.out.slice(2, i, i + 1), right.out.slice(2, i, i + 1)) == "");
            }
          }
        });
      }
    }
  }
}

constexpr int64_t kSteps = 1100, kPage = 16, kPages = 71, kDim = 16, kHeads = 2;

// One generation of 1100 tokens over pages of 16, handed out in a scrambled order; slots not written yet hold NaN.
TEST_CASE("N07: every decode step over pages, NaN in all unused slots, any number of parts") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const int64_t element = type_size(storage.type);
  // As stored: values of one step lie together in all three.
  const auto make = [&](int64_t values, uint64_t stream) {
    const Array random = random_array({1, 1, 1, values}, stream);
    std::vector<uint8_t> bytes(static_cast<size_t>(values * element));
    for (int64_t n = 0; n < values; ++n) store(storage.type, bytes.data(), n, random.values[static_cast<size_t>(n)]);
    return bytes;
  };
  const std::vector<uint8_t> q = make(kSteps * kHeads * kDim, 1), k = make(kSteps * kDim, 2),
                             v = make(kSteps * kDim, 3);
  std::vector<int32_t> table(kPages, -1);
  lw_problem problem = lw_problem_default();
  problem.q_heads = kHeads;
  problem.q_len = 1;
  problem.kv_len = kSteps;
  problem.qk_dim = problem.v_dim = kDim;
  problem.kv_layout = LW_LAYOUT_PAGED;
  problem.page_size = kPage;
  problem.page_count = kPages;
  problem.q_type = problem.k_type = problem.v_type = storage.type;
  if (storage.native) problem.arithmetic = LW_ARITHMETIC_NATIVE_BF16;
  for_each_target_of(Case().stored_as(storage), [&](const std::string& target) {
    const PreparedPlan plan(problem, target);
    const int64_t size = lw_plan_workspace_size(plan.get(), 16);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    const size_t pool = static_cast<size_t>(kPages * kPage * kDim);
    const size_t bytes = static_cast<size_t>(element);
    GuardedBuffer k_pool(pool * bytes, Edge::kEnd, bytes), v_pool(pool * bytes, Edge::kStart, bytes);
    uint8_t* cache[] = {k_pool.data(), v_pool.data()};
    for (uint8_t* data : cache) {
      for (size_t n = 0; n < pool; ++n) store(storage.type, data, static_cast<int64_t>(n), kNan);
    }
    std::fill(table.begin(), table.end(), -1);
    for (int64_t i = 0; i < kSteps; ++i) {
      const int64_t page = i / kPage * 29 % kPages;
      table[static_cast<size_t>(i / kPage)] = static_cast<int32_t>(page);
      const int64_t row = kDim * element, to_row = (page * kPage + i % kPage) * row;
      std::copy_n(k.data() + i * row, row, cache[0] + to_row);
      std::copy_n(v.data() + i * row, row, cache[1] + to_row);
      const int32_t length = static_cast<int32_t>(i + 1);
      lw_inputs in = lw_inputs_default();
      const auto input = [&](const void* data, std::array<int64_t, 4> stride) {
        lw_const_tensor tensor = {};
        tensor.data = data;
        tensor.type = storage.type;
        std::copy(stride.begin(), stride.end(), tensor.stride);
        return tensor;
      };
      in.q = input(q.data() + i * kHeads * row, {kHeads * kDim, kDim, kDim, 1});
      in.k = input(cache[0], {kPage * kDim, kPage * kDim, kDim, 1});
      in.v = input(cache[1], {kPage * kDim, kPage * kDim, kDim, 1});
      in.kv_lengths = &length;
      in.page_table = table.data();
      in.page_table_stride[1] = 1;
      Array out({1, kHeads, 1, kDim}), lse({1, kHeads, 1, 1}), again = out, again_lse = lse;
      const auto view = [](Array& o, Array& l) {
        lw_outputs to = lw_outputs_default();
        to.out = TensorView<float>::bhld(o.values.data(), kHeads, 1, kDim);
        to.lse = TensorView<float>::bhl(l.values.data(), kHeads, 1);
        return to;
      };
      lw_outputs to = view(out, lse);
      lw_executor caller = lw_executor_default();
      caller.kind = LW_EXECUTOR_CALLER;
      REQUIRE(lw_run(plan.get(), &in, &to, workspace.data(), size, &caller).code == LW_OK);
      const std::string difference = agreement(problem, reference(problem, in), out, lse, {}).difference;
      if (!difference.empty()) FAIL("step " << i << " on " << target << ": " << difference);
      to = view(again, again_lse);
      for (const int32_t nth : {5, 16}) {
        for (int32_t phase = 0; phase < lw_plan_phases(plan.get()); ++phase) {
          for (int32_t ith = nth - 1; ith >= 0; --ith) {
            const lw_status status = lw_run_part(plan.get(), &in, &to, workspace.data(), size, phase, ith, nth);
            if (status.code != LW_OK) FAIL(status.message);
          }
        }
        const std::string moved = bit_difference(out, again) + bit_difference(lse, again_lse);
        if (!moved.empty()) FAIL("step " << i << ", " << nth << " parts on " << target << ": " << moved);
      }
    }
    CHECK(workspace.canaries_intact());
    count_case(target);
  });
}

TEST_CASE("O01: sequences without queries, without keys, without both") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const auto& lengths : std::vector<std::vector<int32_t>>{{0, 0}, {0, 5}, {4, 0}}) {
    Case c = Case().stored_as(storage).batch(7).heads(9, 3).len(4, 5).dims(7).causal();
    c.q_lengths(std::vector<int32_t>(7, lengths[0])).kv_lengths(std::vector<int32_t>(7, lengths[1]));
    for (Case& form : stored(c)) {
      for (const Result& result : form.check()) {
        for (const float value : result.out.values) CHECK(value == 0);
        if (lengths[0] == 0) continue;
        for (const float value : result.lse.values) CHECK(value == -kInf);
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
