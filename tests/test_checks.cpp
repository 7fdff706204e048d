// Checks of a run that random wrong calls (tests/fuzz) and mutations (tools/mutate.py) showed to be missing, or missed.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>

#include "src/plan.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// Runs p on every target: refused with a message that begins so, and nothing written.
void refused(Prepared& p, const std::string& beginning) {
  for_each_target([&](const std::string& target) {
    const Result result = run_prepared(p, {target});
    INFO(result.status.message);
    CHECK(result.status.code == LW_INVALID_ARGUMENT);
    CHECK(std::string(result.status.message).find(beginning) == 0);
    CHECK(result.damage == "");
  });
}

int32_t* writable(const int32_t* array) { return const_cast<int32_t*>(array); }

TEST_CASE("an output on an input's first element is refused whatever the strides' signs") {
  Case c = Case().batch(2).heads(2, 2).len(3, 5).dims(4);
  for (const Layout layout : {Layout::kBhld, Layout::kReversedLen, Layout::kSpread, Layout::kPaddedRows}) {
    Prepared p = c.layouts(layout, Layout::kBhld, Layout::kBhld, Layout::kSpread).prepare();
    p.outputs.out.data = const_cast<void*>(p.inputs.q.data);
    refused(p, "out overlaps q");
  }
}

TEST_CASE("offsets that fall, or pass the plan's capacity, are refused") {
  for (const bool queries : {true, false}) {
    Case c = Case().batch(3).heads(2, 2).len(4, 4).dims(4).ragged_q().ragged_kv();
    c.q_lengths({2, 1, 4}).kv_lengths({2, 1, 4});
    const std::string name = queries ? "cu_seqlens_q" : "cu_seqlens_kv";
    const auto offsets = [&](Prepared& p) {
      return writable(queries ? p.inputs.cu_seqlens_q : p.inputs.cu_seqlens_kv);
    };
    Prepared p = c.prepare();
    offsets(p)[1] = 5;  // then 3: falls by 2
    refused(p, name);
    p = c.prepare();
    offsets(p)[1] = 4;
    refused(p, name + "[2] is 3 after 4");
    p = c.prepare();
    offsets(p)[3] = 8;  // a sequence of 5: more than the plan's 4
    refused(p, name + "[3] is 8 after 3");
    p = c.prepare();
    (queries ? p.problem.total_q : p.problem.total_kv) = 6;
    refused(p, name + "[3] is 7; the plan's capacity is 6 rows");
  }
}

TEST_CASE("a page that only the prefix lets see must exist") {
  // The last query sees key 40 and its window; keys 0 ... 4 by the prefix alone.
  Case c = Case().heads(2, 2).len(1, 40).dims(4).causal().window(3, -1).prefix(5).paged(8);
  Prepared p = c.prepare();
  REQUIRE(run_prepared(p, {targets().at(0)}).status.code == LW_OK);
  for (const int32_t id : {-1, static_cast<int32_t>(p.problem.page_count)}) {
    writable(p.inputs.page_table)[0] = id;
    refused(p, "page_table[0][0] is " + std::to_string(id));
  }
}

TEST_CASE("a run that continues from a state starts at a span") {
  Case whole = Case().heads(1, 1).len(1, 4200).dims(4);
  const Result first = whole.key_part(0, 4096).with_state().run({targets().at(0)});
  Case rest = whole.key_part(4096, 4200);
  rest.continue_from(first);
  for (const int32_t start : {4095, 4098, 256, 2048, 1}) {
    Prepared p = rest.prepare();
    writable(p.inputs.kv_starts)[0] = start;
    refused(p, "kv_starts[0] is " + std::to_string(start));
  }
}

TEST_CASE("a state whose sum is infinite gives an infinite lse, a NaN sum a NaN") {
  Case whole = Case().heads(1, 1).len(2, 4200).dims(4);
  const Result first = whole.key_part(0, 4096).with_state().run({targets().at(0)});
  for (const float sum : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Case rest = whole.key_part(4096, 4200);
    Result odd = first;
    odd.state_sum.fill(sum);
    rest.continue_from(odd);
    for_each_target([&](const std::string& target) {
      const Result result = rest.run({target});
      REQUIRE(result.status.code == LW_OK);
      for (const float lse : result.lse.values) CHECK(agrees(static_cast<double>(lse), static_cast<double>(sum), 0));
    });
  }
}

TEST_CASE("the first slot behind the last page is refused, and nothing is written") {
  float rows[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8};
  GuardedBuffer memory(3 * 2 * 4 * sizeof(float), Edge::kEnd, 4);  // 3 pages of 2 tokens
  lw_tensor cache = {};
  cache.data = memory.data();
  cache.type = LW_TYPE_F32;
  cache.stride[0] = cache.stride[1] = 8;
  cache.stride[2] = 4;
  cache.stride[3] = 1;
  lw_const_tensor from = {};
  from.data = rows;
  from.type = LW_TYPE_F32;
  from.stride[1] = 8;
  from.stride[2] = 4;
  from.stride[3] = 1;
  for (const int32_t slot : {6, 7, -2, INT32_MAX, INT32_MIN}) {
    const int32_t slots[] = {0, slot};
    const lw_status status = lw_append(&cache, 3, 2, 1, 4, &from, 2, slots);
    INFO(status.message);
    CHECK(status.code == LW_INVALID_ARGUMENT);
    CHECK(std::string(status.message).find("slots[1] is " + std::to_string(slot)) == 0);
    CHECK(memory.untouched());
  }
}

TEST_CASE("a workspace has room for each of its parts") {
  for_each_target([&](const std::string& target) {
    for (const int64_t kv_len : {300, 9000}) {
      Prepared p = Case().batch(2).heads(4, 2).len(5, kv_len).dims(32).prepare();
      const PreparedPlan plan(p.problem, target);
      for (const int32_t threads : {1, 2, 7}) {
        const lanewise::WorkspaceLayout parts = lanewise::workspace_layout(*plan.get(), threads);
        CHECK((parts.arrivals > 0) == (threads > 1));
        CHECK(lw_plan_workspace_size(plan.get(), threads) ==
              parts.states + parts.arrivals + threads * plan.get()->task_scratch);
      }
    }
    count_case(target);
  });
}

}  // namespace
}  // namespace lanewise::test
