// Wrong arguments of ragged batches and pages: a status that names the argument and its value, and no output byte.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

struct Wrong {
  const char* name;   // the argument, as the message must name it
  const char* value;  // as the message must show it
  std::function<void(Prepared&)> change;
};

#define WRONG(name, value, statement)           \
  {                                             \
    name, value, [](Prepared& p) { statement; } \
  }

int32_t& entry(const int32_t* array, size_t n) { return const_cast<int32_t*>(array)[n]; }

const int32_t* odd(const int32_t* array) {
  return reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(array) + 1);
}

void check_refused(const Case& good, const std::vector<Wrong>& table) {
  {
    Prepared p = Case(good).prepare();
    const Result result = run_prepared(p, {targets().at(0), 2});
    REQUIRE(std::string(result.status.message) == "");
  }
  for (const Wrong& wrong : table) {
    Prepared p = Case(good).prepare();
    wrong.change(p);
    const Result result = run_prepared(p, {targets().at(0), 2});
    const std::string message = result.status.message;
    INFO(wrong.name << " " << wrong.value << ": status " << result.status.code << " \"" << message << "\"");
    CHECK(result.status.code == LW_INVALID_ARGUMENT);
    CHECK(message.find(wrong.name) != std::string::npos);
    CHECK(message.find(wrong.value) != std::string::npos);
    CHECK(result.damage == "");
    CHECK(outputs_untouched(p));
  }
}

TEST_CASE("wrong ragged batches are refused") {
  // Offsets of q: 0 5 5 9, of k and v: 0 7 10 12.
  const Case good =
      Case().batch(3).heads(2, 1).len(5, 7).dims(8).q_lengths({5, 0, 4}).kv_lengths({7, 3, 2}).ragged_q().ragged_kv();
  const std::vector<Wrong> table = {
      WRONG("cu_seqlens_q", "null", p.inputs.cu_seqlens_q = nullptr),
      WRONG("cu_seqlens_kv", "null", p.inputs.cu_seqlens_kv = nullptr),
      WRONG("cu_seqlens_q[0]", "1", entry(p.inputs.cu_seqlens_q, 0) = 1),
      WRONG("cu_seqlens_q[0]", "-1", entry(p.inputs.cu_seqlens_q, 0) = -1),
      WRONG("cu_seqlens_q", "4", entry(p.inputs.cu_seqlens_q, 2) = 4),       // falls
      WRONG("cu_seqlens_q", "6", entry(p.inputs.cu_seqlens_q, 1) = 6),       // a sequence of 6, capacity 5
      WRONG("cu_seqlens_q[3]", "10", entry(p.inputs.cu_seqlens_q, 3) = 10),  // past total_q
      WRONG("cu_seqlens_q", "-2147483648", entry(p.inputs.cu_seqlens_q, 1) = INT32_MIN),
      WRONG("cu_seqlens_kv[0]", "2", entry(p.inputs.cu_seqlens_kv, 0) = 2),
      WRONG("cu_seqlens_kv", "8", entry(p.inputs.cu_seqlens_kv, 1) = 8),
      WRONG("cu_seqlens_kv", "2147483647", entry(p.inputs.cu_seqlens_kv, 3) = INT32_MAX),
      WRONG("cu_seqlens_q", "multiple of 4", p.inputs.cu_seqlens_q = odd(p.inputs.cu_seqlens_q)),
      WRONG("cu_seqlens_kv", "multiple of 4", p.inputs.cu_seqlens_kv = odd(p.inputs.cu_seqlens_kv)),
      WRONG("total_q", "-1", p.problem.total_q = -1),
      WRONG("total_q", "2147483648", p.problem.total_q = int64_t{1} << 31),
      WRONG("total_kv", "-5", p.problem.total_kv = -5),
      WRONG("q_lengths", "q_layout", p.inputs.q_lengths = p.inputs.cu_seqlens_q),
      WRONG("page_table", "paged", p.inputs.page_table = p.inputs.cu_seqlens_q),
      WRONG("q.data", "null", p.inputs.q.data = nullptr),
      WRONG("out.stride[2]", "0", p.outputs.out.stride[2] = 0),
      WRONG("out", "overlaps", p.outputs.out.data = const_cast<void*>(p.inputs.k.data)),
      WRONG("k.stride[2]", "-9223372036854775808", p.inputs.k.stride[2] = INT64_MIN),
  };
  check_refused(good, table);
}

TEST_CASE("wrong pages are refused") {
  const Case good = Case().batch(2).heads(2, 1).len(3, 20).dims(8).kv_lengths({20, 9}).paged(4);
  const std::vector<Wrong> table = {
      WRONG("page_size", "0", p.problem.page_size = 0),
      WRONG("page_size", "-4", p.problem.page_size = -4),
      WRONG("page_size", "2147483648", p.problem.page_size = int64_t{1} << 31),
      WRONG("page_count", "-1", p.problem.page_count = -1),
      WRONG("page_table", "null", p.inputs.page_table = nullptr),
      WRONG("kv_lengths", "null", p.inputs.kv_lengths = nullptr),
      WRONG("kv_lengths[1]", "21", entry(p.inputs.kv_lengths, 1) = 21),
      WRONG("kv_lengths[0]", "-1", entry(p.inputs.kv_lengths, 0) = -1),
      WRONG("page_table[0][4]", "-1", entry(p.inputs.page_table, 4) = -1),
      WRONG("page_table[1][0]", "1000",
            entry(p.inputs.page_table, static_cast<size_t>(p.inputs.page_table_stride[0])) = 1000),
      WRONG("page_table", "is", p.problem.page_count = 1),
      WRONG("page_table", "multiple of 4", p.inputs.page_table = odd(p.inputs.page_table)),
      WRONG("cu_seqlens_kv", "ragged", p.inputs.cu_seqlens_kv = p.inputs.kv_lengths),
      WRONG("k.data", "null", p.inputs.k.data = nullptr),
      WRONG("v.type", "3", p.inputs.v.type = LW_TYPE_F16),
      WRONG("v.stride[0]", "9223372036854775807", p.inputs.v.stride[0] = INT64_MAX),
  };
  check_refused(good, table);
}

}  // namespace
}  // namespace lanewise::test
