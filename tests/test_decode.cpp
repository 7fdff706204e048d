// Decode, bit for bit: a step over a cache that grows is a row of one prefill, however few or many rows are computed
// with it and however its keys are spread over threads.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr int64_t kSteps = 700;

bool equal_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

// Every step of a generation: queries [token, head, dim], one kv head, cache [token, dim], results [token, head, dim].
struct Generation {
  int64_t group, dim;
  Array q, k, v;
  std::vector<float> prefill, prefill_lse, step, step_lse;
  lw_problem problem = lw_problem_default();

  Generation(int64_t group_size, int64_t head_dim)
      : group(group_size),
        dim(head_dim),
        q(random_array({1, kSteps, group, dim}, 1)),
        k(random_array({1, 1, kSteps, dim}, 2)),
        v(random_array({1, 1, kSteps, dim}, 3)),
        prefill(static_cast<size_t>(kSteps * group * dim)),
        prefill_lse(static_cast<size_t>(kSteps * group)),
        step(static_cast<size_t>(group * dim)),
        step_lse(static_cast<size_t>(group)) {
    problem.q_heads = group;
    problem.q_len = problem.kv_len = kSteps;
    problem.qk_dim = problem.v_dim = dim;
    problem.causal = 1;
  }

  // Queries [begin, end) with all keys up to the last of them.
  lw_inputs inputs(int64_t begin, int64_t end) const {
    lw_inputs in = lw_inputs_default();
    in.q_len = end - begin;
    in.kv_len = end;
    in.q = TensorView<const float>::blhd(q.values.data() + begin * group * dim, group, in.q_len, dim);
    in.k = TensorView<const float>::bhld(k.values.data(), 1, kSteps, dim);
    in.v = TensorView<const float>::bhld(v.values.data(), 1, kSteps, dim);
    return in;
  }
  lw_outputs outputs(std::vector<float>& out, std::vector<float>& lse) const {
    lw_outputs to = lw_outputs_default();
    to.out = TensorView<float>::blhd(out.data(), group, kSteps, dim);
    to.lse = TensorView<float>::strided(lse.data(), 0, 1, group, 0);
    return to;
  }
};

TEST_CASE("decode step i is row i of a causal prefill, for every step") {
  for (const int64_t dim : {32, 64, 80, 128}) {
    for (const int64_t group : {1, 3, 4, 8}) {
      Generation g(group, dim);
      lw_executor caller = lw_executor_default();
      caller.kind = LW_EXECUTOR_CALLER;
      for_each_target([&](const std::string& target) {
        INFO(target << ", dim " << dim << ", group size " << group);
        const PreparedPlan plan(g.problem, target);
        const int64_t size = lw_plan_workspace_size(plan.get(), 1);
        GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
        const auto run = [&](const lw_inputs& in, std::vector<float>& out, std::vector<float>& lse) {
          const lw_outputs to = g.outputs(out, lse);
          return lw_run(plan.get(), &in, &to, workspace.data(), size, &caller).code;
        };
        REQUIRE(run(g.inputs(0, kSteps), g.prefill, g.prefill_lse) == LW_OK);
        for (int64_t i = 0; i < kSteps; ++i) {
          REQUIRE(run(g.inputs(i, i + 1), g.step, g.step_lse) == LW_OK);
          const bool same = equal_bits(g.step.data(), g.prefill.data() + i * group * dim, g.step.size()) &&
                            equal_bits(g.step_lse.data(), g.prefill_lse.data() + i * group, g.step_lse.size());
          if (!same) FAIL("step " << i);
        }
        for (const int64_t i : {0, 1, 15, 16, 17, 255, 256, 257, 512, 699}) {
          const ReferenceResult right = reference(g.problem, g.inputs(i, i + 1));
          Array out({1, group, 1, dim}), lse({1, group, 1, 1});
          std::copy_n(g.prefill.data() + i * group * dim, group * dim, out.values.data());
          std::copy_n(g.prefill_lse.data() + i * group, group, lse.values.data());
          CHECK(agreement(g.problem, right, out, lse, {}).difference == "");
        }
        count_case(target);
      });
    }
  }
}

// The last n rows of one problem, of one kv head and of several, over keys that start anywhere.
struct Context {
  const char* name;
  Case c;  // 100 queries
};

std::vector<Context> contexts() {
  const auto base = [](int64_t kv_len) { return Case().heads(1, 1).len(100, kv_len).dims(16).causal(); };
  return {
      {"spans", base(9000)},
      {"blocks", base(1500)},
      {"kv_start 1000", base(8400).kv_starts({1000})},
      {"kv_start 4095", base(4300).kv_starts({4095})},
      {"window", base(9000).window(700, -1)},
      {"window over spans, kv_start 77", base(9000).window(5000, -1).kv_starts({77})},
      {"window narrower than a block", base(8200).window(20, 0)},
      {"odd dims", Case().heads(1, 1).len(100, 4500).dims(37, 19).causal()},
  };
}

TEST_CASE("few rows and many rows give the same bits, on any number of threads") {
  for (Context& context : contexts()) {
    const Expectation expected(context.c);
    for_each_target([&](const std::string& target) {
      const Result all = context.c.run({target, 1, Runner::kCaller});
      INFO(context.name << " on " << target);
      CHECK(expected.difference(all) == "");
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 17, 48, 100}) {
        Prepared p = context.c.query_part(100 - rows, 100).prepare();
        const PreparedPlan plan(p.problem, target);
        for (const int32_t threads : {1, 2, 7}) {
          const Result few = plan.run(p, {target, threads, threads == 7 ? Runner::kPartsReversed : Runner::kOpenmp});
          INFO(rows << " rows, " << threads << " threads");
          CHECK(few.damage == "");
          CHECK(bit_difference(few.out, all.out.slice(2, 100 - rows, 100)) == "");
          CHECK(bit_difference(few.lse, all.lse.slice(2, 100 - rows, 100)) == "");
        }
      }
    });
  }
}

TEST_CASE("the heads of a group, alone and with a few tokens, are the rows of separate heads") {
  for (const int64_t group : {2, 5, 8, 12}) {
    Case c = Case().heads(group, 1).len(3, 5000).dims(40, 24).causal();
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result together = c.run({target, 2});
      INFO(group << " heads on " << target);
      CHECK(expected.difference(together) == "");
      for (int64_t h = 0; h < group; ++h) {
        Case alone = Case().heads(1, 1).len(3, 5000).dims(40, 24).causal();
        alone.q() = c.q().slice(1, h, h + 1);
        alone.k() = c.k();
        alone.v() = c.v();
        const Result one = alone.run({target, 1});
        CHECK(bit_difference(one.out, together.out.slice(1, h, h + 1)) == "");
        CHECK(bit_difference(one.lse, together.lse.slice(1, h, h + 1)) == "");
      }
    });
  }
}

TEST_CASE("decode in batches of very different lengths is one sequence at a time") {
  Case c = Case().batch(6).heads(4, 2).len(1, 4200).dims(32).kv_lengths({4200, 0, 1, 257, 4096, 31});
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    std::vector<Array> out, lse;
    for (int64_t b = 0; b < 6; ++b) {
      Result single = c.batch_part(b).run({target});
      out.push_back(std::move(single.out));
      lse.push_back(std::move(single.lse));
    }
    for (const int32_t threads : {1, 2, 7}) {
      const Result together = plan.run(p, {target, threads});
      CHECK(expected.difference(together) == "");
      CHECK(together.damage == "");
      CHECK(bit_difference(together.out, concatenate(0, out)) == "");
      CHECK(bit_difference(together.lse, concatenate(0, lse)) == "");
    }
  });
}

// Latent attention: 128 query heads read one kv head; a value is the first 512 elements of its key.
TEST_CASE("latent attention: one kv head, values inside the keys' rows") {
  for (const int64_t q_len : {1, 2}) {
    Case c = Case().heads(128, 1).len(q_len, 530).dims(576, 512).causal();
    c.v() = c.k().slice(3, 0, 512);
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result apart = c.run({target, 1});
      INFO(q_len << " queries on " << target);
      CHECK(expected.difference(apart) == "");
      for (const int64_t page_size : {0, 16}) {
        Case shared = c;
        if (page_size) shared.paged(page_size);
        Prepared p = shared.prepare();
        p.inputs.v = p.inputs.k;
        const PreparedPlan plan(p.problem, target);
        for (const int32_t threads : {1, 2, 7}) {
          const Result result = plan.run(p, {target, threads});
          CHECK(result.damage == "");
          CHECK(bit_difference(apart, result) == "");
        }
      }
    });
  }
}

}  // namespace
}  // namespace lanewise::test
