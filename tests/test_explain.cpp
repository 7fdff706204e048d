// lw_plan_reasons: why a plan is what it is, and what would be faster.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "src/explain.hpp"
#include "src/plan.hpp"
#include "src/task_cursor.hpp"
#include "src/work.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

Problem problem_of(int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len, int64_t dim) {
  Problem p;
  p.q_heads = q_heads;
  p.kv_heads = kv_heads;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.qk_dim = p.v_dim = dim;
  return p;
}

std::string reasons_of(const Problem& problem, int32_t threads, const lw_inputs* inputs = nullptr,
                       const char* target = nullptr) {
  Options options;
  options.target = target;
  Plan plan;
  const Status status = Plan::make(problem, options, plan);
  INFO(status.message());
  REQUIRE(status);
  const int64_t length = plan.reasons(threads, nullptr, 0, inputs);
  std::string text(static_cast<size_t>(length) + 1, '?');
  CHECK(plan.reasons(threads, text.data(), length + 1, inputs) == length);
  CHECK(text.back() == '\0');
  text.pop_back();
  CHECK(text.find('\0') == std::string::npos);
  CHECK(text.back() == '\n');
  // Cut short anywhere, what is there is the beginning.
  for (const int64_t size : {int64_t{1}, int64_t{2}, length / 2, length}) {
    std::string part(static_cast<size_t>(size) + 1, '?');
    CHECK(plan.reasons(threads, part.data(), size, inputs) == length);
    CHECK(part[static_cast<size_t>(size)] == '?');
    CHECK(std::string(part.c_str()) == text.substr(0, static_cast<size_t>(size) - 1));
  }
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("each decision is named with its reason, on each target") {
  std::string best;
  for (int32_t i = 0; best.empty() && i < lw_target_count(); ++i) {
    if (lw_target_supported(i) != 0) best = lw_target_name(i);
  }
  for_each_target([&](const std::string& target) {
    count_case(target);
    const std::string prefill = reasons_of(problem_of(8, 8, 512, 512, 64), 2, nullptr, target.c_str());
    INFO(prefill);
    for (const char* key : {"target: ", "kernel: ", "tile: ", "split: ", "arithmetic: ", "lanes: "}) {
      CHECK(has("\n" + prefill, std::string("\n") + key));
    }
    CHECK(has(prefill, "target: " + target));
    CHECK(has(prefill, "kernel: rows-in-lanes, since 512 rows"));
    CHECK(has(prefill, "as asked for") == (target != best));
    CHECK(has(prefill, "faster: target " + best) == (target != best));
    const std::string decode = reasons_of(problem_of(8, 2, 1, 512, 64), 1, nullptr, target.c_str());
    CHECK(has(decode, "kernel: keys-in-lanes, since 4 rows"));
    CHECK(has(decode, "faster: k and v in bf16 or f16"));
  });
}

TEST_CASE("few rows, few tasks and small runs are named") {
  CHECK(has(reasons_of(problem_of(1, 1, 17, 512, 64), 1), "faster: more queries in one call"));
  CHECK_FALSE(has(reasons_of(problem_of(1, 1, 512, 512, 64), 1), "faster: more queries"));
  CHECK(has(reasons_of(problem_of(1, 1, 16, 16, 64), 4), "at most 1 of 4 threads"));
  Problem masked = problem_of(1, 1, 512, 512, 64);
  masked.mask_type = LW_TYPE_BITS;
  CHECK(has(reasons_of(masked, 1), "faster: causal, window, lengths or a block mask where the mask says the same"));
  CHECK(has(reasons_of(problem_of(8, 8, 1, 8192, 128), 8), "cut over keys"));
  CHECK(has(reasons_of(problem_of(64, 64, 512, 512, 128), 2), "none is cut over keys"));
  CHECK(has(reasons_of(problem_of(8, 1, 20, 200, 2048), 64), "faster: a larger batch"));
  CHECK(has(reasons_of(problem_of(INT32_MAX, 1, INT32_MAX, INT32_MAX, 64), 64), "lanes: 100 % in use"));
}

TEST_CASE("tasks are what a run at capacity walks, pieces of cut panels too") {
  constexpr int64_t kDependsOnTarget = -1;
  const struct {
    Problem problem;
    int32_t threads;
    int64_t tasks;
  } cases[] = {
      {problem_of(8, 8, 1, 8192, 128), 1, 8},
      // 8 panels of equal work, cut where that is above 1 / (8 * threads) of all: into 8, for which two spans are too
      // few, so into blocks; into 2, each of whole spans.
      {problem_of(8, 8, 1, 8192, 128), 8, 64},
      {problem_of(8, 8, 1, 65536, 128), 2, 16},
      // One block cannot be cut, two make two pieces.
      {problem_of(8, 8, 1, 255, 2048), 8, 8},
      {problem_of(8, 8, 1, 257, 2048), 8, 16},
      {problem_of(8, 8, 1, 257, 128), 8, 8},  // too little work for a second thread
      {problem_of(1, 1, 0, 512, 64), 4, 0},
      {problem_of(64, 64, 512, 512, 128), 2, kDependsOnTarget},
      {problem_of(4, 2, 700, 9000, 64), 7, kDependsOnTarget},
  };
  for (const auto& c : cases) {
    for (const int64_t batch : {1, 3}) {
      for (const int32_t causal : {0, 1}) {
        Problem problem = c.problem;
        problem.batch = batch;
        problem.causal = causal;
        lw_plan plan;
        REQUIRE(make_plan(&problem, nullptr, plan).code == LW_OK);
        lw_explanation explanation = lw_explanation();
        explanation.struct_size = sizeof explanation;
        REQUIRE(explain_plan(plan, c.threads, &explanation).code == LW_OK);
        INFO(problem.q_len << " x " << problem.kv_len << ", batch " << batch << ", threads " << c.threads);
        if (batch == 1 && c.tasks != kDependsOnTarget) CHECK(explanation.tasks == c.tasks);

        Run run = {plan.problem, lw_inputs(), lw_outputs()};
        for (lw_const_tensor* tensor : {&run.inputs.k, &run.inputs.v}) {  // heads before tokens
          tensor->type = LW_TYPE_F32;
          tensor->stride[1] = problem.kv_len * problem.qk_dim;
          tensor->stride[2] = problem.qk_dim;
          tensor->stride[3] = 1;
        }
        int32_t threads = c.threads;
        const Work work = work_of(plan, run, nullptr, threads);
        TaskCursor cursor(work.cut);
        int64_t tasks = 0;
        while (cursor.seek(tasks)) ++tasks;
        CHECK(explanation.tasks == tasks);
      }
    }
  }
}

TEST_CASE("strides and addresses of a run that cost time are named") {
  const Problem problem = problem_of(4, 4, 64, 64, 64);
  alignas(64) static float memory[16];
  Inputs good;
  good.k = TensorView<const float>::bhld(memory, 4, 64, 64);
  good.v = good.k;
  CHECK_FALSE(has(reasons_of(problem, 1, &good), "faster: "));
  Inputs transposed = good;
  transposed.v = TensorView<const float>::strided(memory, 4 * 64 * 64, 64 * 64, 1, 64);
  CHECK(has(reasons_of(problem, 1, &transposed), "faster: v with a contiguous last axis (its stride is 64"));
  Inputs heads_last = good;
  heads_last.k = TensorView<const float>::strided(memory, 64 * 4096, 64, 4096, 1);
  CHECK(has(reasons_of(problem, 1, &heads_last), "faster: k with rows not 16384 bytes apart"));
  // A single row is not apart from another; its stride may be 0.
  Inputs one_row = good;
  one_row.k = TensorView<const float>::strided(memory, 64, 64, 0, 1);
  one_row.v = one_row.k;
  CHECK_FALSE(has(reasons_of(problem_of(4, 4, 64, 1, 64), 1, &one_row), "bytes apart"));
  Inputs crooked = good;
  crooked.k.data = memory + 1;
  CHECK(has(reasons_of(problem, 1, &crooked), "faster: k at an address that is a multiple of 64"));
}

TEST_CASE("reasons of nothing") {
  char text[4] = "abc";
  CHECK(lw_plan_reasons(nullptr, nullptr, 1, text, 4) == 0);
  CHECK(std::string(text) == "abc");
  Plan plan;
  REQUIRE(Plan::make(problem_of(1, 1, 0, 0, 1), plan));
  CHECK(plan.reasons(-5, nullptr, 1000) > 0);  // no text: only its length
  Inputs older;
  older.struct_size = 8;  // not one: as if there were none
  CHECK(plan.reasons(1, text, sizeof text, &older) > 4);
  CHECK(text[3] == '\0');
}

}  // namespace
}  // namespace lanewise::test
