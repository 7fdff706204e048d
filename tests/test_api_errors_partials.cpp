// Wrong arguments of lw_merge and lw_append: a status that names the argument and the value it had, and no byte written.
// One table of changes to a call that is right.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"
#include "support/wrong.hpp"

namespace lanewise::test {
namespace {

void make_input(lw_const_tensor& tensor, GuardedBuffer& buffer, const Shape& shape, int32_t type = LW_TYPE_F32) {
  place_input(tensor, buffer, Array(shape, 1), Layout::kBhld, type, {Edge::kEnd, 1},
              [](int64_t, int64_t) { return false; });
}

// Two parts of [2, 4, 5, 6].
struct Merge {
  lw_problem problem = lw_problem_default();
  lw_const_tensor outs[2], lses[2];
  lw_outputs outputs = lw_outputs_default();
  GuardedBuffer inputs[4], out, lse;
  const lw_problem* problem_pointer = &problem;
  const lw_const_tensor *outs_pointer = outs, *lses_pointer = lses;
  const lw_outputs* outputs_pointer = &outputs;
  int32_t count = 2;

  Merge() {
    problem.batch = 2;
    problem.q_heads = problem.kv_heads = 4;
    problem.q_len = 5;
    problem.qk_dim = problem.v_dim = 6;
    for (size_t n = 0; n < 2; ++n) {
      make_input(outs[n], inputs[n], {2, 4, 5, 6});
      make_input(lses[n], inputs[2 + n], {2, 4, 5, 1});
    }
    place_output(outputs.out, out, {2, 4, 5, 6}, Layout::kBhld, LW_TYPE_F32, Edge::kEnd);
    place_output(outputs.lse, lse, {2, 4, 5, 1}, Layout::kBhld, LW_TYPE_F32, Edge::kEnd);
  }
  lw_status run() const { return lw_merge(problem_pointer, outs_pointer, lses_pointer, count, outputs_pointer); }
  bool untouched() const { return out.untouched() && lse.untouched(); }
};

// Six tokens into a cache of 3 pages of 8 slots, 2 heads of 5 elements.
struct Append {
  int64_t pages = 3, page_size = 8, heads = 2, dim = 5, tokens = 6;
  std::vector<int32_t> slots = {3, -1, 0, -1, 17, 23};
  const int32_t* slots_pointer = slots.data();
  lw_tensor cache;
  lw_const_tensor rows;
  GuardedBuffer cache_buffer, row_buffer;
  const lw_tensor* cache_pointer = &cache;
  const lw_const_tensor* rows_pointer = &rows;

  Append() {
    place_output(cache, cache_buffer, {3, 2, 8, 5}, Layout::kBhld, LW_TYPE_BF16, Edge::kEnd);
    make_input(rows, row_buffer, {1, 2, 6, 5}, LW_TYPE_BF16);
  }
  lw_status run() const {
    return lw_append(cache_pointer, pages, page_size, heads, dim, rows_pointer, tokens, slots_pointer);
  }
  bool untouched() const { return cache_buffer.untouched(); }
};

TEST_CASE("wrong arguments of lw_merge are refused") {
  const std::vector<Wrong<Merge>> table = {
      WRONG("problem", "null", c.problem_pointer = nullptr),
      WRONG("outs", "null", c.outs_pointer = nullptr),
      WRONG("lses", "null", c.lses_pointer = nullptr),
      WRONG("outputs", "null", c.outputs_pointer = nullptr),
      WRONG("count", "0", c.count = 0),
      WRONG("count", "-1", c.count = -1),
      WRONG("count", "257", c.count = 257),
      WRONG("count", "2147483647", c.count = INT32_MAX),
      WRONG("struct_size", "8", c.problem.struct_size = 8),
      WRONG("struct_size", "0", c.outputs.struct_size = 0),
      WRONG("batch", "-1", c.problem.batch = -1),
      WRONG("q_heads", "0", c.problem.q_heads = 0),
      WRONG("q_len", "2147483648", c.problem.q_len = int64_t{1} << 31),
      WRONG("v_dim", "0", c.problem.v_dim = 0),
      WRONG("v_dim", "65537", c.problem.v_dim = 65537),
      WRONG("q_layout", "2", c.problem.q_layout = LW_LAYOUT_PAGED),
      WRONG("total_q", "-1", (c.problem.q_layout = LW_LAYOUT_RAGGED, c.problem.total_q = -1)),
      WRONG("outs[0].data", "null", c.outs[0].data = nullptr),
      WRONG("outs[1].data", "null", c.outs[1].data = nullptr),
      WRONG("lses[0].data", "null", c.lses[0].data = nullptr),
      WRONG("lses[1].data", "null", c.lses[1].data = nullptr),
      WRONG("outs[1].type", "3", c.outs[1].type = LW_TYPE_F16),
      WRONG("lses[0].type", "2", c.lses[0].type = LW_TYPE_BF16),
      WRONG("outs[0].type", "0", c.outs[0].type = LW_TYPE_NONE),
      WRONG("outs[1].stride[1]", "9223372036854775807", c.outs[1].stride[1] = INT64_MAX),
      WRONG("lses[1].stride[2]", "-9223372036854775808", c.lses[1].stride[2] = INT64_MIN),
      WRONG("outs[0].data", "multiple of 4", c.outs[0].data = static_cast<const char*>(c.outs[0].data) + 2),
      WRONG("out", "null", c.outputs.out.data = nullptr),
      WRONG("out.type", "2", c.outputs.out.type = LW_TYPE_BF16),
      WRONG("lse.type", "3", c.outputs.lse.type = LW_TYPE_F16),
      WRONG("out.stride[3]", "0", c.outputs.out.stride[3] = 0),
      WRONG("lse.stride[2]", "0", c.outputs.lse.stride[2] = 0),
      WRONG("out.stride[1]", "29", c.outputs.out.stride[1] = 29),
      // Rows would be read after they were written.
      WRONG("out", "overlaps", c.outs[1].data = static_cast<const float*>(c.outputs.out.data) + 6),
      WRONG("out", "overlaps", (c.outs[0].data = c.outputs.out.data, c.outs[0].stride[2] = 0)),
      WRONG("lse", "overlaps", c.lses[0].data = static_cast<const float*>(c.outputs.lse.data) + 1),
      WRONG("lse", "overlaps", c.outputs.lse.data = c.outputs.out.data),
      WRONG("lse", "overlaps", c.outs[1].data = c.outputs.lse.data),
      // What a merge has none of.
      WRONG("state", "", c.outputs.state_max = c.outputs.lse),
      {"reserved", "", [](auto& c) { c.outs[1].reserved[0] = 1; }, LW_UNSUPPORTED},
      {"reserved", "", [](auto& c) { c.outputs.out.reserved[3] = 1; }, LW_UNSUPPORTED},
  };
  check_refused(table);
}

TEST_CASE("wrong arguments of lw_append are refused") {
  const std::vector<Wrong<Append>> table = {
      WRONG("cache", "null", c.cache_pointer = nullptr),
      WRONG("rows", "null", c.rows_pointer = nullptr),
      WRONG("slots", "null", c.slots_pointer = nullptr),
      WRONG("pages", "-1", c.pages = -1),
      WRONG("page_size", "0", c.page_size = 0),
      WRONG("page_size", "2147483648", c.page_size = int64_t{1} << 31),
      WRONG("heads", "0", c.heads = 0),
      WRONG("dim", "0", c.dim = 0),
      WRONG("dim", "65537", c.dim = 65537),
      WRONG("tokens", "-1", c.tokens = -1),
      WRONG("tokens", "-9223372036854775808", c.tokens = INT64_MIN),
      WRONG("slots[5]", "24", c.slots[5] = 24),
      WRONG("slots[0]", "-2", c.slots[0] = -2),
      WRONG("slots[4]", "2147483647", c.slots[4] = INT32_MAX),
      WRONG("slots[4]", "-2147483648", c.slots[4] = INT32_MIN),
      WRONG("slots[0]", "3", c.pages = 0),
      WRONG("slots", "multiple of 4",
            c.slots_pointer = reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(c.slots.data()) + 2)),
      WRONG("slots[4]", "17", c.pages = 2),
      WRONG("cache.type", "0", c.cache.type = LW_TYPE_NONE),
      WRONG("cache.type", "4", c.cache.type = LW_TYPE_BOOL),
      WRONG("rows.type", "3", c.rows.type = LW_TYPE_F16),
      WRONG("rows.type", "1", c.rows.type = LW_TYPE_F32),
      WRONG("cache.data", "null", c.cache.data = nullptr),
      WRONG("rows.data", "null", c.rows.data = nullptr),
      WRONG("cache.data", "multiple of 2", c.cache.data = static_cast<char*>(c.cache.data) + 1),
      WRONG("cache.stride[2]", "0", c.cache.stride[2] = 0),
      WRONG("cache.stride[2]", "4", c.cache.stride[2] = 4),
      WRONG("cache.stride[0]", "9223372036854775807", c.cache.stride[0] = INT64_MAX),
      WRONG("rows.stride[1]", "-9223372036854775808", c.rows.stride[1] = INT64_MIN),
      WRONG("overlaps", "rows", c.rows.data = c.cache.data),
      {"reserved", "", [](auto& c) { c.cache.reserved[0] = 1; }, LW_UNSUPPORTED},
      {"reserved", "", [](auto& c) { c.rows.reserved[3] = 7; }, LW_UNSUPPORTED},
  };
  check_refused(table);
}

TEST_CASE("P03: lengths of ragged and paged batches: each refused by name, whichever sequence it is") {
  const Case good = Case().batch(3).heads(2, 1).len(4, 30).dims(16).kv_lengths({30, 7, 30});
  for_each_target([&](const std::string& target) {
    for (const bool paged : {false, true}) {
      for (const int32_t bad : {-1, INT32_MIN, 31, INT32_MAX}) {
        for (size_t at = 0; at < 3; ++at) {
          Case c = good;
          Prepared p = (paged ? c.paged(4) : c.ragged_kv()).prepare();
          std::vector<int32_t> lengths = {30, 7, 30};
          lengths[at] = bad;
          p.inputs.kv_lengths = lengths.data();
          for (const Runner runner : {Runner::kOpenmp, Runner::kPartsReversed}) {
            const Result result = run_prepared(p, {target, 2, runner});
            const std::string message = result.status.message;
            INFO(message);
            CHECK(result.status.code == LW_INVALID_ARGUMENT);
            CHECK(message.find("kv_lengths[" + std::to_string(at) + "] is " + std::to_string(bad)) == 0);
            CHECK(result.damage == "");
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace lanewise::test
