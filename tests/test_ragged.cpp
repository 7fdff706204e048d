// Ragged batches: sequences one behind another, of any lengths, chunks of prompts and single tokens in one call. Each
// sequence has the bits it has alone.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Storage { kRaggedQ, kRaggedKv, kRaggedBoth, kRaggedQPaged, kPaged };
constexpr Storage kStorages[] = {Storage::kRaggedQ, Storage::kRaggedKv, Storage::kRaggedBoth, Storage::kRaggedQPaged,
                                 Storage::kPaged};

Case stored(Case c, Storage storage) {
  switch (storage) {
    case Storage::kRaggedQ:
      return c.ragged_q();
    case Storage::kRaggedKv:
      return c.ragged_kv();
    case Storage::kRaggedBoth:
      return c.ragged_q().ragged_kv();
    case Storage::kRaggedQPaged:
      return c.ragged_q().paged(16);
    case Storage::kPaged:
      return c.paged(16);
  }
  return c;
}

struct Subject {
  const char* name;
  Case c;
};

std::vector<Subject> subjects() {
  return {
      {"mixed: chunks, tokens, empty sequences", Case()
                                                     .batch(7)
                                                     .heads(6, 2)
                                                     .len(70, 600)
                                                     .dims(40, 24)
                                                     .causal()
                                                     .q_lengths({1, 70, 0, 1, 33, 0, 4})
                                                     .kv_lengths({600, 70, 5, 1, 400, 0, 257})},
      {"not causal",
       Case().batch(4).heads(2, 2).len(9, 300).dims(16).q_lengths({9, 0, 3, 9}).kv_lengths({0, 9, 300, 2})},
      {"decode",
       Case().batch(5).heads(8, 2).len(1, 1300).dims(64).q_lengths({1, 1, 0, 1, 1}).kv_lengths({1300, 1, 700, 0, 256})},
      {"more queries than keys",
       Case().batch(3).heads(2, 1).len(40, 40).dims(8).causal().q_lengths({40, 7, 12}).kv_lengths({3, 0, 11})},
      {"window", Case()
                     .batch(3)
                     .heads(4, 1)
                     .len(50, 900)
                     .dims(24)
                     .causal()
                     .window(30, -1)
                     .q_lengths({50, 1, 17})
                     .kv_lengths({900, 800, 20})},
      {"kv_start and own offsets", Case()
                                       .batch(3)
                                       .heads(2, 2)
                                       .len(20, 300)
                                       .dims(16)
                                       .causal()
                                       .q_lengths({20, 5, 1})
                                       .kv_lengths({300, 200, 100})
                                       .kv_starts({255, 0, 4000})
                                       .q_offsets({300, 0, 4050})},
      {"all empty", Case().batch(3).heads(2, 1).len(4, 4).dims(8).q_lengths({0, 0, 0}).kv_lengths({0, 3, 0})},
      {"one", Case().batch(1).heads(3, 1).len(30, 90).dims(32).causal().q_lengths({30}).kv_lengths({90})},
  };
}

TEST_CASE("ragged is one sequence at a time") {
  for (Subject& subject : subjects()) {
    Case& c = subject.c;
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      std::vector<Array> out, lse;
      for (int64_t b = 0; b < c.q().shape[0]; ++b) {
        Result single = c.batch_part(b).run({target});
        REQUIRE(std::string(single.status.message) == "");
        out.push_back(std::move(single.out));
        lse.push_back(std::move(single.lse));
      }
      Result singles = c.run({target});
      singles.out = concatenate(0, out);
      singles.lse = concatenate(0, lse);
      CHECK(expected.difference(singles) == "");
      for (const Storage storage : kStorages) {
        Prepared p = stored(c, storage).prepare();
        const PreparedPlan plan(p.problem, target);
        for (const int32_t threads : {1, 2, 7}) {
          const Runner runner = threads == 7 ? Runner::kPartsReversed : Runner::kOpenmp;
          const Result result = plan.run(p, {target, threads, runner});
          INFO(subject.name << " on " << target << ", storage " << static_cast<int>(storage) << ", " << threads
                            << " threads");
          CHECK(result.damage == "");
          CHECK(bit_difference(singles, result) == "");
        }
      }
    });
  }
}

TEST_CASE("ragged and paged batches among poison, at guard pages, within the bounds of the reference") {
  for (const Storage storage : kStorages) stored(subjects()[0].c, storage).check();
  stored(subjects()[4].c, Storage::kRaggedBoth).check();
}

TEST_CASE("ragged tensors of any strides") {
  const Case c = subjects()[0].c;
  for_each_target([&](const std::string& target) {
    const Result plain = Case(c).run({target});
    for (const Layout layout : {Layout::kBlhd, Layout::kTransposed, Layout::kPaddedRows, Layout::kReversedLen}) {
      Case moved = Case(c).layouts(layout, layout, layout, layout);
      const Result result = moved.ragged_q().ragged_kv().run({target, 2});
      INFO("layout " << static_cast<int>(layout) << " on " << target);
      CHECK(result.damage == "");
      CHECK(bit_difference(plain, result) == "");
    }
  });
}

TEST_CASE("states of ragged queries, and their continuation") {
  Case whole = Case().batch(3).heads(4, 2).len(6, 4500).dims(12, 8).causal().with_state();
  whole.q_lengths({6, 1, 3}).kv_lengths({4500, 4500, 4500});
  const Expectation expected(whole);
  for_each_target([&](const std::string& target) {
    const Result together = whole.run({target});
    CHECK(expected.difference(together) == "");
    Case first = whole.key_part(0, 4096), second = whole.key_part(4096, 4500);
    first.kv_lengths({4096, 4096, 4096}).ragged_q().ragged_kv();
    const Result state = first.run({target, 2});
    CHECK(state.damage == "");
    second.kv_lengths({404, 404, 404}).ragged_q().paged(32).continue_from(state);
    CHECK(bit_difference(together, second.run({target, 2})) == "");
  });
}

// Each sequence has room for more keys than it uses; the rest holds anything.
TEST_CASE("sequences that use less than their room") {
  const std::vector<int32_t> room = {0, 320, 330, 330, 600}, used = {257, 10, 0, 33};
  Case c = Case().batch(4).heads(4, 2).len(9, 320).dims(24).causal().q_lengths({9, 1, 1, 4}).kv_lengths(used);
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    const Result right = c.run({target});
    CHECK(expected.difference(right) == "");
    for (const float content : {kNan, std::numeric_limits<float>::infinity(), 1e38f, 0.0f}) {
      for (const bool ragged_queries : {false, true}) {
        Case laid_out = c;
        laid_out.ragged_q(ragged_queries);
        Prepared p = laid_out.prepare();
        Surroundings around = {Edge::kEnd, content};
        const auto hidden = [&](int64_t, int64_t token) {
          size_t b = 0;
          while (token >= room[b + 1]) ++b;
          return token - room[b] >= used[b];
        };
        place_input(p.inputs.k, p.k, join_sequences(c.k(), room, 0), Layout::kBhld, LW_TYPE_F32, around, hidden);
        place_input(p.inputs.v, p.v, join_sequences(c.v(), room, 0), Layout::kBhld, LW_TYPE_F32, around, hidden);
        p.problem.kv_layout = LW_LAYOUT_RAGGED;
        p.problem.total_kv = room.back();
        p.inputs.cu_seqlens_kv = room.data();
        for (const int32_t threads : {1, 2, 7}) {
          const Result result = run_prepared(p, {target, threads, Runner::kPartsReversed});
          CHECK(result.damage == "");
          CHECK(bit_difference(right, result) == "");
        }
      }
    }
  });
}

TEST_CASE("a plan for a larger batch and more tokens gives the same bits") {
  Case c = subjects()[0].c;
  for_each_target([&](const std::string& target) {
    const Result right = c.run({target});
    for (const Storage storage : kStorages) {
      Prepared p = stored(c, storage).prepare();
      p.inputs.batch = p.problem.batch;
      p.inputs.q_len = p.problem.q_len;
      p.inputs.kv_len = p.problem.kv_len;
      p.problem.batch += 20;
      p.problem.q_len += 1000;
      p.problem.kv_len += 5000;
      p.problem.total_q += 4000;
      p.problem.total_kv += 4000;
      for (const int32_t threads : {1, 2, 7}) {
        const Result result = run_prepared(p, {target, threads, Runner::kPartsReversed});
        INFO("storage " << static_cast<int>(storage) << ", " << threads << " threads on " << target);
        CHECK(result.damage == "");
        CHECK(bit_difference(right, result) == "");
      }
    }
  });
}

TEST_CASE("no sequences at all: success, nothing read or written") {
  Case c = subjects()[0].c;
  for_each_target([&](const std::string& target) {
    for (const Storage storage : kStorages) {
      Prepared p = stored(c, storage).prepare();
      p.inputs.batch = 0;
      p.inputs.cu_seqlens_q = p.inputs.cu_seqlens_kv = nullptr;
      p.inputs.page_table = p.inputs.kv_lengths = p.inputs.q_lengths = nullptr;
      const PreparedPlan plan(p.problem, target);
      const int64_t size = lw_plan_workspace_size(plan.get(), 2);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      CHECK(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, nullptr).code == LW_OK);
      CHECK(lw_run_part(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, 0, 1, 2).code == LW_OK);
      CHECK(outputs_untouched(p));
      count_case(target);
    }
  });
}

}  // namespace
}  // namespace lanewise::test
