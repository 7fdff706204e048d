// Wrong masks, biases, slopes, sinks and positions: each gives a status that names the argument, and nothing is written.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

Case right_case() {
  Case c = Case().batch(2).heads(4, 2).len(5, 40).dims(8).causal().softcap(5).prefix(3);
  c.mask(Array({2, 4, 5, 40}, 1.0f)).bias(Array({1, 1, 5, 40}, 0.5f)).alibi({1, 2, 3, 4}).sinks({0, 1, 2, 3});
  c.block_mask(2, 16, Array({1, 4, 3, 3}, 1.0f)).q_positions({35, 36, 37, 38, 39, 35, 36, 37, 38, 39});
  return c;
}

struct Wrong {
  const char* name;   // as the message must name the argument
  const char* value;  // as the message must show its value
  std::function<void(Prepared&)> change;
};

template <class T>
const T* odd(const T* array) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(array) + 1);
}

void check_refused(const Wrong& wrong) {
  for (const std::string& target : targets()) {
    Prepared p = right_case().prepare();
    wrong.change(p);
    const Result result = run_prepared(p, {target});
    INFO(wrong.name << ": " << result.status.message);
    CHECK(result.status.code == LW_INVALID_ARGUMENT);
    CHECK(std::string(result.status.message).find(wrong.name) != std::string::npos);
    CHECK(std::string(result.status.message).find(wrong.value) != std::string::npos);
    CHECK(result.damage == "");
  }
}

TEST_CASE("the case that wrong ones change is right") { right_case().check(); }

TEST_CASE("wrong problems with rules are refused") {
  const std::vector<Wrong> list = {
      {"mask_type", "6", [](Prepared& p) { p.problem.mask_type = 6; }},
      {"bias_type", "5", [](Prepared& p) { p.problem.bias_type = LW_TYPE_BITS; }},
      {"mask_tail", "-1", [](Prepared& p) { p.problem.mask_tail = -1; }},
      {"mask_tail", "41", [](Prepared& p) { p.problem.mask_tail = 41; }},
      {"mask_tail", "7", [](Prepared& p) { p.problem.mask_tail = 7, p.problem.mask_type = LW_TYPE_NONE; }},
      {"block_mask_rows", "-2", [](Prepared& p) { p.problem.block_mask_rows = -2; }},
      {"block_mask_keys", "0", [](Prepared& p) { p.problem.block_mask_keys = 0; }},
      {"block_mask_rows", "0", [](Prepared& p) { p.problem.block_mask_rows = 0; }},
      {"prefix_len", "2147483648", [](Prepared& p) { p.problem.prefix_len = int64_t{1} << 31; }},
      {"softcap", "2e+06", [](Prepared& p) { p.problem.softcap = 2e6f; }},
      {"alibi", "3", [](Prepared& p) { p.problem.alibi = 3; }},
  };
  for (const Wrong& wrong : list) check_refused(wrong);
}

TEST_CASE("wrong arguments of rules are refused") {
  static int32_t bad_indices[12];
  static int32_t bad_indptr[16];
  const std::vector<Wrong> list = {
      {"mask.data", "null", [](Prepared& p) { p.inputs.mask.data = nullptr; }},
      {"bias.data", "null", [](Prepared& p) { p.inputs.bias.data = nullptr; }},
      {"alibi_slopes", "null", [](Prepared& p) { p.inputs.alibi_slopes = nullptr; }},
      {"sinks", "null", [](Prepared& p) { p.inputs.sinks = nullptr; }},
      {"block_indptr", "null", [](Prepared& p) { p.inputs.block_indptr = nullptr; }},
      {"block_indices", "null", [](Prepared& p) { p.inputs.block_indices = nullptr; }},
      {"mask.type", "bits", [](Prepared& p) { p.inputs.mask.type = LW_TYPE_BITS; }},
      {"mask.type", "none", [](Prepared& p) { p.inputs.mask.type = LW_TYPE_NONE; }},
      {"bias.type", "bf16", [](Prepared& p) { p.inputs.bias.type = LW_TYPE_BF16; }},
      {"mask.stride[2]", "9223372036854775807", [](Prepared& p) { p.inputs.mask.stride[2] = INT64_MAX; }},
      {"bias.stride[3]", "4611686018427387904", [](Prepared& p) { p.inputs.bias.stride[3] = int64_t{1} << 62; }},
      {"bias.data", "multiple of 4",
       [](Prepared& p) { p.inputs.bias.data = static_cast<const char*>(p.inputs.bias.data) + 2; }},
      {"out", "overlaps bias", [](Prepared& p) { p.inputs.bias.data = p.outputs.out.data; }},
      {"out", "overlaps bias",  // which is broadcast over heads and has no gaps
       [](Prepared& p) { p.outputs.out.data = static_cast<float*>(const_cast<void*>(p.inputs.bias.data)) + 9; }},
      {"alibi_slopes", "multiple of 4", [](Prepared& p) { p.inputs.alibi_slopes = odd(p.inputs.alibi_slopes); }},
      {"sinks", "multiple of 4", [](Prepared& p) { p.inputs.sinks = odd(p.inputs.sinks); }},
      {"block_indptr", "multiple of 4", [](Prepared& p) { p.inputs.block_indptr = odd(p.inputs.block_indptr); }},
      {"block_indices", "multiple of 4", [](Prepared& p) { p.inputs.block_indices = odd(p.inputs.block_indices); }},
      {"q_positions", "multiple of 4", [](Prepared& p) { p.inputs.q_positions = odd(p.inputs.q_positions); }},
      {"mask_type", "mask.data", [](Prepared& p) { p.problem.mask_type = LW_TYPE_NONE; }},
      {"bias_type", "bias.data", [](Prepared& p) { p.problem.bias_type = LW_TYPE_NONE; }},
      {"alibi", "alibi_slopes", [](Prepared& p) { p.problem.alibi = 0; }},
      {"sinks", "sinks = 1", [](Prepared& p) { p.problem.sinks = 0; }},
      {"block_mask_rows", "block_indptr",
       [](Prepared& p) { p.problem.block_mask_rows = p.problem.block_mask_keys = 0; }},
      {"block_indices[1]", "0",
       [](Prepared& p) {
         for (int n = 0; n < 12; ++n) bad_indices[n] = 0;
         p.inputs.block_indices = bad_indices;
       }},
      {"block_indices[0]", "3",
       [](Prepared& p) {
         for (int n = 0; n < 12; ++n) bad_indices[n] = 3;
         p.inputs.block_indices = bad_indices;
       }},
      {"block_indptr", "-1",
       [](Prepared& p) {
         bad_indptr[0] = -1;
         p.inputs.block_indptr = bad_indptr;
       }},
  };
  for (const Wrong& wrong : list) check_refused(wrong);
}

}  // namespace
}  // namespace lanewise::test
