// Load and faults: many host threads with problems of their own, executors that hand out work late, backwards or on one
// thread, very many sequences, sizes and strides at the ends of their ranges.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "fuzz/fuzz_problem.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("eight host threads with random problems: the bits of one thread") {
  for_each_target([&](const std::string& target) {
    std::atomic<int> wrong{0}, done{0};
    std::vector<std::thread> hosts;
    for (uint64_t host = 0; host < 8; ++host) {
      hosts.emplace_back([&, host] {
        for (uint64_t n = 0; n < 12; ++n) {
          Draw draw(1000 * host + n);
          FuzzProblem problem = draw_problem(draw);
          problem.field[kNative] = problem.field[kContinued] = 0;
          Prepared p = case_of(problem).prepare(), alone = case_of(problem).prepare();
          lw_options options = lw_options_default();
          options.target = target.c_str();
          lw_plan* plan = nullptr;
          bool good = lw_plan_make(&p.problem, &options, &plan).code == LW_OK;
          const int64_t size = lw_plan_workspace_size(plan, 3);
          GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
          lw_executor executor = lw_executor_default();
          executor.threads = n % 2 ? 3 : 1;
          good = good && lw_run(plan, &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK;
          executor.kind = LW_EXECUTOR_CALLER;
          good = good && lw_run(plan, &alone.inputs, &alone.outputs, workspace.data(), size, &executor).code == LW_OK;
          // Rows nobody asked for hold canaries in both.
          good = good && p.out.size() == alone.out.size() &&
                 (p.out.size() == 0 || std::memcmp(p.out.data(), alone.out.data(), p.out.size()) == 0);
          wrong += !good;
          ++done;
          lw_plan_free(plan);
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    CHECK(wrong == 0);
    CHECK(done == 96);
    count_case(target);
  });
}

// Executors that keep their promise, and no more than that.
void backwards(void*, int64_t n, lw_share share, void* argument) {
  for (int64_t i = n - 1; i >= 0; --i) share(argument, i);
}
void in_line(void*, int64_t n, lw_share share, void* argument) {
  for (int64_t i = 0; i < n; ++i) share(argument, i);
}
void one_by_one_on_new_threads(void*, int64_t n, lw_share share, void* argument) {
  for (int64_t i = 0; i < n; ++i) std::thread(share, argument, i).join();
}
void last_share_late(void*, int64_t n, lw_share share, void* argument) {
  std::vector<std::thread> team;
  for (int64_t i = 0; i < n; ++i) {
    team.emplace_back([=] {
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      share(argument, i);
    });
  }
  for (std::thread& thread : team) thread.join();
}

TEST_CASE("executors that run shares late, backwards, on one thread, on threads that end") {
  Case cases[] = {Case().heads(5, 5).len(129, 300).dims(48).causal(), Case().heads(2, 1).len(1, 9000).dims(40),
                  Case().batch(3).heads(4, 2).len(40, 600).dims(32).kv_lengths({600, 0, 257})};
  for (Case& c : cases) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result alone = c.run({target, 1, Runner::kCaller});
      CHECK(expected.difference(alone) == "");
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      const int64_t size = lw_plan_workspace_size(plan.get(), 8);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      for (const auto how : {backwards, in_line, one_by_one_on_new_threads, last_share_late}) {
        lw_executor executor = lw_executor_default();
        executor.kind = LW_EXECUTOR_CALLBACK;
        executor.threads = 8;
        executor.parallel_for = how;
        reset_outputs(p);
        REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
        CHECK(std::memcmp(p.out.data(), alone.out.values.data(), p.out.size()) == 0);
        CHECK(std::memcmp(p.lse.data(), alone.lse.values.data(), p.lse.size()) == 0);
      }
      CHECK(workspace.canaries_intact());
    });
  }
}

TEST_CASE("65,536 tiny sequences in one call") {
  constexpr int64_t kBatch = 65536;
  for_each_target([&](const std::string& target) {
    lw_problem problem = lw_problem_default();
    problem.batch = kBatch;
    problem.q_layout = problem.kv_layout = LW_LAYOUT_RAGGED;
    problem.q_len = problem.kv_len = 3;
    problem.qk_dim = problem.v_dim = 4;
    // Lengths 0 ... 3 in turn.
    std::vector<int32_t> offsets = {0};
    for (int32_t b = 0; b < kBatch; ++b) offsets.push_back(offsets.back() + b % 4);
    const int64_t total = offsets.back();
    problem.total_q = problem.total_kv = total;
    std::vector<float> values(static_cast<size_t>(total * 4)), out(values.size()), expected(values.size());
    for (size_t n = 0; n < values.size(); ++n) values[n] = static_cast<float>(n % 23) / 8 - 1;
    lw_inputs inputs = lw_inputs_default();
    inputs.q.data = inputs.k.data = inputs.v.data = values.data();
    inputs.q.type = LW_TYPE_F32;
    inputs.q.stride[1] = inputs.q.stride[2] = 4;
    inputs.q.stride[3] = 1;
    inputs.k = inputs.v = inputs.q;
    inputs.cu_seqlens_q = inputs.cu_seqlens_kv = offsets.data();
    lw_outputs outputs = lw_outputs_default();
    outputs.out.data = out.data();
    outputs.out.type = LW_TYPE_F32;
    std::copy(std::begin(inputs.q.stride), std::end(inputs.q.stride), outputs.out.stride);
    const PreparedPlan plan(problem, target);
    REQUIRE(std::string(plan.status().message) == "");
    const int64_t size = lw_plan_workspace_size(plan.get(), 4);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    for (const int32_t threads : {1, 4}) {
      std::fill(out.begin(), out.end(), -77.0f);
      lw_executor executor = lw_executor_default();
      executor.threads = threads;
      REQUIRE(lw_run(plan.get(), &inputs, &outputs, workspace.data(), size, &executor).code == LW_OK);
      if (threads == 1) expected = out;
      CHECK(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
    }
    // Sequences of one token answer with its value: prob times value, over the prob.
    bool right = true;
    for (size_t b = 0; b < kBatch; ++b) {
      if (offsets[b + 1] - offsets[b] != 1) continue;
      for (size_t n = static_cast<size_t>(offsets[b]) * 4; n < static_cast<size_t>(offsets[b + 1]) * 4; ++n)
        right = right && agrees(static_cast<double>(out[n]), static_cast<double>(values[n]), 2e-6);
    }
    CHECK(right);
    count_case(target);
  });
}

TEST_CASE("sizes and strides at the ends of their ranges are plans or statuses") {
  constexpr int64_t kSizes[] = {(1LL << 31) - 1, 1LL << 31, (1LL << 32) + 1, INT64_MAX, INT64_MIN, -1};
  int64_t lw_problem::*const sizes[] = {&lw_problem::batch,     &lw_problem::q_heads,   &lw_problem::kv_heads,
                                        &lw_problem::q_len,     &lw_problem::kv_len,    &lw_problem::qk_dim,
                                        &lw_problem::v_dim,     &lw_problem::total_q,   &lw_problem::total_kv,
                                        &lw_problem::page_size, &lw_problem::page_count};
  for_each_target([&](const std::string& target) {
    for (const auto first : sizes) {
      for (const auto second : sizes) {
        for (const int64_t value : kSizes) {
          lw_problem problem = lw_problem_default();
          problem.q_len = problem.kv_len = problem.qk_dim = problem.v_dim = 8;
          problem.*first = value;
          problem.*second = value;
          if (second == &lw_problem::kv_heads) problem.q_heads = value;
          const PreparedPlan plan(problem, target);
          const bool allowed = value == (1LL << 31) - 1 && problem.qk_dim == 8 && problem.v_dim == 8 &&
                               problem.q_heads % problem.kv_heads == 0;
          INFO("value " << value << ": " << plan.status().message);
          if (allowed) CHECK(plan.status().code == LW_OK);
          if (plan.status().code == LW_OK) {
            CHECK(lw_plan_workspace_size(plan.get(), 1) >= 0);
            CHECK(lw_plan_workspace_size(plan.get(), INT32_MAX) >= lw_plan_workspace_size(plan.get(), 1));
          }
        }
      }
    }
    // Strides: refused before anything is read, or of an axis of one element.
    constexpr int64_t kStrides[] = {int64_t{1} << 62, -(int64_t{1} << 62), INT64_MAX / 2, INT64_MIN};
    for (const int64_t stride : kStrides) {
      for (int axis = 0; axis < 4; ++axis) {
        Prepared p = Case().batch(2).heads(2, 2).len(3, 5).dims(8).prepare();
        p.inputs.k.stride[axis] = stride;
        CHECK(run_prepared(p, {target}).status.code == LW_INVALID_ARGUMENT);
        p = Case().heads(1, 1).len(1, 1).dims(1).prepare();
        p.inputs.k.stride[axis] = p.inputs.q.stride[axis] = p.outputs.out.stride[axis] = stride;
        CHECK(run_prepared(p, {target}).status.code == LW_OK);
      }
    }
    // A stride above 2^31 elements that is used: the addresses between are nobody's.
    Case two = Case().heads(1, 1).len(2, 2).dims(8);
    Prepared p = two.prepare();
    const auto* k = static_cast<const float*>(p.inputs.k.data);
    GuardedBuffer far(8 * sizeof(float), Edge::kEnd, 4);
    std::memcpy(far.data(), k + 8, 8 * sizeof(float));
    p.inputs.k.stride[2] = reinterpret_cast<const float*>(far.data()) - k;
    CHECK(bit_difference(two.run({target}), run_prepared(p, {target})) == "");
  });
}

}  // namespace
}  // namespace lanewise::test
