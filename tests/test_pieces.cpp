// Key ranges as parallel work: pieces of one sequence on any number of threads, in any order, in a workspace of exactly
// the size asked for and with any content, and sequences cut into runs that continue one another: the bits of one run.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// One kv head or two, so that threads share a sequence: by spans, by blocks, with few rows and with many.
std::vector<Subject> subjects() {
  return {
      {"one row, spans", Case().heads(1, 1).len(1, 20000).dims(64).with_state()},
      {"one row, blocks", Case().heads(1, 1).len(1, 3000).dims(128).with_state()},
      {"few rows", Case().heads(8, 1).len(1, 9000).dims(48).with_state()},
      {"sixteen rows", Case().heads(8, 1).len(2, 8193).dims(32).causal().with_state()},
      {"seventeen rows", Case().heads(1, 1).len(17, 8500).dims(32).causal().with_state()},
      {"a vector and five rows", Case().heads(3, 1).len(7, 8300).dims(24).causal().kv_starts({4000}).with_state()},
      {"two vectors and one row", Case().heads(3, 1).len(11, 700).dims(128, 40).causal().window(300, -1)},
      {"many rows, one tile", Case().heads(2, 2).len(40, 8500).dims(16).causal().with_state()},
      {"many rows, blocks", Case().heads(1, 1).len(48, 2100).dims(40).causal().with_state()},
      {"window", Case().heads(2, 1).len(3, 12000).dims(64).causal().window(6000, -1).with_state()},
      {"kv_start", Case().heads(2, 1).len(2, 9000).dims(48).causal().kv_starts({4090}).with_state()},
      {"many rows, several tiles", Case().heads(1, 1).len(130, 9000).dims(32).causal()},
      {"pages", Case().batch(3).heads(4, 2).len(1, 9000).dims(16).kv_lengths({9000, 300, 4097}).paged(64)},
      {"a long and a short sequence",
       Case().batch(3).heads(2, 2).len(2, 9000).dims(32).causal().kv_lengths({9000, 3, 700}).with_state()},
  };
}

// All bytes of the outputs, gaps included.
std::vector<uint8_t> bytes_of(const Prepared& p) {
  std::vector<uint8_t> bytes;
  for (const GuardedBuffer* buffer : {&p.out, &p.lse, &p.state_max, &p.state_sum, &p.state_acc}) {
    bytes.insert(bytes.end(), buffer->data(), buffer->data() + buffer->size());
    CHECK(buffer->canaries_intact());
  }
  return bytes;
}

// What a workspace holds before a run.
void fill(GuardedBuffer& workspace, float content) {
  float* data = reinterpret_cast<float*>(workspace.data());
  std::fill(data, data + workspace.size() / sizeof(float), content);
}

std::vector<uint8_t> run_alone(const PreparedPlan& plan, Prepared& p) {
  const int64_t size = lw_plan_workspace_size(plan.get(), 1);
  GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
  lw_executor caller = lw_executor_default();
  caller.kind = LW_EXECUTOR_CALLER;
  reset_outputs(p);
  const lw_status status = lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &caller);
  REQUIRE(std::string(status.message) == "");
  return bytes_of(p);
}

// By run_part, the parts of each phase in an order of their own.
std::vector<uint8_t> run_in_parts(const PreparedPlan& plan, Prepared& p, int32_t nth, uint64_t seed, float content) {
  const int64_t size = lw_plan_workspace_size(plan.get(), nth);
  GuardedBuffer workspace(static_cast<size_t>(size), seed % 2 ? Edge::kStart : Edge::kEnd, 64);
  fill(workspace, content);
  reset_outputs(p);
  std::vector<int32_t> order(static_cast<size_t>(nth));
  std::iota(order.begin(), order.end(), 0);
  for (int32_t phase = 0; phase < lw_plan_phases(plan.get()); ++phase) {
    for (size_t n = order.size() - 1; n > 0; --n) {
      const float share = (rnd(seed + static_cast<uint64_t>(phase), n) + 1) / 2;
      std::swap(order[n], order[static_cast<size_t>(share * static_cast<float>(n + 1))]);
    }
    for (const int32_t ith : order) {
      const lw_status status = lw_run_part(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, phase, ith, nth);
      REQUIRE(std::string(status.message) == "");
    }
  }
  CHECK(workspace.canaries_intact());
  return bytes_of(p);
}

TEST_CASE("pieces of a sequence: any executor and thread count") {
  for (Subject& subject : subjects()) {
    const Expectation expected(subject.c);
    for_each_target([&](const std::string& target) {
      INFO(subject.name << " on " << target);
      check_executors(subject.c, expected, target, {1, 2, 3, 7, 16});
    });
  }
}

TEST_CASE("pieces of a sequence: any order of parts, any content of a workspace of the exact size") {
  const float contents[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e38f, 0};
  for (Subject& subject : subjects()) {
    for_each_target([&](const std::string& target) {
      Prepared p = subject.c.prepare();
      const PreparedPlan plan(p.problem, target);
      const std::vector<uint8_t> alone = run_alone(plan, p);
      for (int32_t nth = 1; nth <= 8; ++nth) {
        INFO(subject.name << " on " << target << ", " << nth << " parts");
        const uint64_t seed = 100 + static_cast<uint64_t>(nth);
        CHECK(run_in_parts(plan, p, nth, seed, contents[nth % 4]) == alone);
      }
      count_case(target);
    });
  }
}

// Capacity decides the workspace, a run's sizes decide the pieces.
TEST_CASE("pieces of a run that is smaller than its plan") {
  const std::vector<std::vector<int64_t>> capacities = {{1, 1, 5000}, {4, 3, 5000}, {1, 300, 40000}};
  Case c = Case().heads(4, 2).len(1, 4999).dims(48).causal().with_state();
  for_each_target([&](const std::string& target) {
    Prepared exact = c.prepare();
    const std::vector<uint8_t> alone = run_alone(PreparedPlan(exact.problem, target), exact);
    for (const std::vector<int64_t>& n : capacities) {
      Prepared p = Case(c).capacity(n[0], n[1], n[2]).prepare();
      const PreparedPlan plan(p.problem, target);
      for (const int32_t nth : {1, 2, 3, 5, 8, 16}) {
        INFO(n[0] << " x " << n[1] << " x " << n[2] << ", " << nth << " parts on " << target);
        CHECK(run_in_parts(plan, p, nth, 5, std::numeric_limits<float>::quiet_NaN()) == alone);
      }
    }
    count_case(target);
  });
}

TEST_CASE("a workspace for fewer threads than asked is enough for those") {
  Case c = Case().heads(2, 1).len(1, 9000).dims(64);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const std::vector<uint8_t> alone = run_alone(plan, p);
    int64_t least = 0;
    for (int32_t threads = 1; threads <= 8; ++threads) {
      const int64_t size = lw_plan_workspace_size(plan.get(), threads);
      CHECK(size >= least);
      least = size;
      for (const int64_t more : {int64_t{0}, int64_t{64}}) {
        GuardedBuffer workspace(static_cast<size_t>(size + more), Edge::kEnd, 64);
        fill(workspace, std::numeric_limits<float>::quiet_NaN());
        lw_executor executor = lw_executor_default();
        executor.threads = 8;
        reset_outputs(p);
        REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size + more, &executor).code == LW_OK);
        CHECK(bytes_of(p) == alone);
        CHECK(workspace.canaries_intact());
      }
    }
    count_case(target);
  });
}

// Spans of five and a bit: a run over the keys before each cut, continued over those after it, and by several cuts.
TEST_CASE("a prefix and its continuation are one run, cut at every span") {
  constexpr int64_t kLength = 5 * 4096 + 100;
  const std::vector<std::vector<int64_t>> cuts = {
      {0, 4096, kLength},       {0, 8192, kLength},  {0, 12288, kLength},
      {0, 16384, kLength},      {0, 20480, kLength}, {0, 4096, 8192, 12288, 16384, 20480, kLength},
      {0, 8192, 20480, kLength}};
  for (const int64_t rows : {1, 4, 16, 20}) {
    Case whole = Case().heads(2, 1).len(rows, kLength).dims(12, 8).causal().with_state();
    const Expectation expected(whole);
    for_each_target([&](const std::string& target) {
      const Result together = whole.run({target, 1});
      INFO(rows << " rows on " << target);
      CHECK(expected.difference(together) == "");
      for (const std::vector<int64_t>& cut : cuts) {
        for (const int32_t threads : {1, 7}) {
          const How how = {target, threads, threads == 7 ? Runner::kPartsReversed : Runner::kCaller};
          Result state = whole.key_part(cut[0], cut[1]).run(how);
          for (size_t n = 1; n + 1 < cut.size(); ++n) {
            state = whole.key_part(cut[n], cut[n + 1]).continue_from(state).run(how);
          }
          INFO("cut at " << cut[1] << " with " << threads << " threads");
          CHECK(bit_difference(together, state) == "");
        }
      }
    });
  }
}

// One prefix, computed once for all sequences, continued by each over keys of its own (paged, of different lengths).
TEST_CASE("a shared prefix continued by several sequences") {
  Case whole = Case().batch(3).heads(4, 2).len(1, 4096 + 300).dims(24).with_state();
  whole.kv_lengths({4096 + 300, 4096, 4096 + 7});
  // Every sequence has the same first keys and, as a prefix shared by queries that differ, its own queries.
  for (Array* array : {&whole.k(), &whole.v()}) {
    const Array copy = *array;
    array->each([&](int64_t, int64_t h, int64_t j, int64_t x, float& value) {
      if (j < 4096) value = copy.at(0, h, j, x);
    });
  }
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result together = whole.run({target, 2});
    CHECK(expected.difference(together) == "");
    Case prefix = Case().batch(3).heads(4, 2).len(1, 4096).dims(24).with_state();
    prefix.q() = whole.q();
    prefix.k() = whole.k().slice(2, 0, 4096);
    prefix.v() = whole.v().slice(2, 0, 4096);
    Prepared shared = prefix.prepare();
    shared.inputs.k.stride[0] = shared.inputs.v.stride[0] = 0;  // one copy for all
    const Result state = run_prepared(shared, {target, 2});
    for (const int64_t page_size : {0, 16}) {
      Case rest = whole.key_part(4096, 4096 + 300);
      rest.kv_lengths({300, 0, 7}).q_offsets({4395, 4095, 4102}).continue_from(state);
      if (page_size) rest.paged(page_size);
      const Result result = rest.run({target, 2});
      CHECK(result.damage == "");
      CHECK(bit_difference(together, result) == "");
    }
  });
}

}  // namespace
}  // namespace lanewise::test
