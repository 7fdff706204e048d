// Wrong arguments: each gives a status whose message names the argument and the value it had, and no output byte is
// written. One table of changes to a call that is right.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"
#include "support/wrong.hpp"

namespace lanewise::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Everything lw_plan_make and lw_run take.
struct Call {
  Prepared p;
  lw_options options = lw_options_default();
  lw_executor executor = lw_executor_default();
  GuardedBuffer workspace_buffer;
  void* workspace = nullptr;
  int64_t workspace_size = 0;
  const lw_problem* problem;
  const lw_inputs* inputs;
  const lw_outputs* outputs;
  std::vector<int32_t> q_lengths = {5, 4}, kv_lengths = {9, 8}, kv_starts = {0, 4096};
  std::vector<uint8_t> q, v;  // as they were

  Call() {
    Case c = Case().batch(2).heads(4, 2).len(5, 9).dims(8, 6).causal().with_state();
    const Result state = Case(c).run({targets().at(0)});
    p = c.continue_from(state).prepare();
    p.inputs.q_lengths = q_lengths.data();
    p.inputs.kv_lengths = kv_lengths.data();
    p.inputs.kv_starts = kv_starts.data();
    problem = &p.problem;
    inputs = &p.inputs;
    outputs = &p.outputs;
    lw_plan* plan = nullptr;
    REQUIRE(lw_plan_make(problem, &options, &plan).code == LW_OK);
    workspace_size = lw_plan_workspace_size(plan, 2);
    lw_plan_free(plan);
    workspace_buffer = GuardedBuffer(static_cast<size_t>(workspace_size), Edge::kEnd, 64);
    workspace = workspace_buffer.data();
    executor.threads = 2;
    q.assign(p.q.data(), p.q.data() + p.q.size());
    v.assign(p.v.data(), p.v.data() + p.v.size());
  }

  lw_status run() {
    lw_plan* plan = nullptr;
    const lw_status made = lw_plan_make(problem, &options, &plan);
    if (made.code != LW_OK) {
      CHECK(plan == nullptr);
      return made;
    }
    const lw_status ran = lw_run(plan, inputs, outputs, workspace, workspace_size, &executor);
    lw_plan_free(plan);
    return ran;
  }
  bool untouched() const {
    return outputs_untouched(p) && std::equal(q.begin(), q.end(), p.q.data()) &&
           std::equal(v.begin(), v.end(), p.v.data()) && workspace_buffer.untouched();
  }
};

const int32_t* odd(const int32_t* array) {
  return reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(array) + 2);
}

const std::vector<Wrong<Call>> kWrongProblems = {
    WRONG("problem", "null", c.problem = nullptr),
    WRONG("problem.struct_size", "0", c.p.problem.struct_size = 0),
    WRONG("problem.struct_size", "8", c.p.problem.struct_size = 8),
    WRONG("problem.struct_size", "-1", c.p.problem.struct_size = -1),
    WRONG("problem.struct_size", "9223372036854775807", c.p.problem.struct_size = INT64_MAX),
    WRONG("batch", "-1", c.p.problem.batch = -1),
    WRONG("batch", "2147483648", c.p.problem.batch = int64_t{1} << 31),
    WRONG("q_heads", "0", c.p.problem.q_heads = 0),
    WRONG("q_heads", "-4", c.p.problem.q_heads = -4),
    WRONG("q_heads", "5", c.p.problem.q_heads = 5),
    WRONG("kv_heads", "0", c.p.problem.kv_heads = 0),
    WRONG("kv_heads", "8", c.p.problem.kv_heads = 8),
    WRONG("q_len", "-1", c.p.problem.q_len = -1),
    WRONG("q_len", "2147483648", c.p.problem.q_len = int64_t{1} << 31),
    WRONG("kv_len", "-9223372036854775808", c.p.problem.kv_len = INT64_MIN),
    WRONG("kv_len", "9223372036854775807", c.p.problem.kv_len = INT64_MAX),
    WRONG("qk_dim", "0", c.p.problem.qk_dim = 0),
    WRONG("qk_dim", "65537", c.p.problem.qk_dim = 65537),
    WRONG("v_dim", "0", c.p.problem.v_dim = 0),
    WRONG("v_dim", "-6", c.p.problem.v_dim = -6),
    WRONG("q_type", "0", c.p.problem.q_type = LW_TYPE_NONE),
    WRONG("q_type", "99", c.p.problem.q_type = 99),
    WRONG("k_type", "4", c.p.problem.k_type = LW_TYPE_BOOL),
    WRONG("v_type", "-1", c.p.problem.v_type = -1),
    WRONG("out_type", "5", c.p.problem.out_type = LW_TYPE_BITS),
    WRONG("mask_type", "1", c.p.problem.mask_type = LW_TYPE_F32),
    WRONG("bias_type", "4", c.p.problem.bias_type = LW_TYPE_BOOL),
    WRONG("arithmetic", "3", c.p.problem.arithmetic = 3),
    WRONG("arithmetic", "-1", c.p.problem.arithmetic = -1),
    WRONG("arithmetic", "native_bf16", c.p.problem.arithmetic = LW_ARITHMETIC_NATIVE_BF16),
    WRONG("q_layout", "2", c.p.problem.q_layout = LW_LAYOUT_PAGED),
    WRONG("kv_layout", "3", c.p.problem.kv_layout = 3),
    WRONG("causal", "2", c.p.problem.causal = 2),
    WRONG("causal", "-1", c.p.problem.causal = -1),
    WRONG("has_scale", "7", c.p.problem.has_scale = 7),
    WRONG("scale", "nan", (c.p.problem.has_scale = 1, c.p.problem.scale = kNan)),
    WRONG("scale", "inf", (c.p.problem.has_scale = 1, c.p.problem.scale = kInf)),
    WRONG("scale", "-2e+38", (c.p.problem.has_scale = 1, c.p.problem.scale = -2e38f)),
    WRONG("softcap", "-1", c.p.problem.softcap = -1),
    WRONG("softcap", "nan", c.p.problem.softcap = kNan),
    WRONG("softcap", "1e-07", c.p.problem.softcap = 1e-7f),
    WRONG("softcap", "1e+07", c.p.problem.softcap = 1e7f),
    WRONG("window_left", "-2", c.p.problem.window_left = -2),
    WRONG("window_right", "-2", c.p.problem.window_right = -2),
    WRONG("window_right", "9223372036854775807", c.p.problem.window_right = INT64_MAX),
    WRONG("has_q_offset", "-1", c.p.problem.has_q_offset = -1),
    WRONG("q_offset", "9223372036854775807", (c.p.problem.has_q_offset = 1, c.p.problem.q_offset = INT64_MAX)),
    WRONG("q_offset", "-9223372036854775808", (c.p.problem.has_q_offset = 1, c.p.problem.q_offset = INT64_MIN)),
    WRONG("prefix_len", "-1", c.p.problem.prefix_len = -1),
    WRONG("alibi", "2", c.p.problem.alibi = 2),
    WRONG("sinks", "2", c.p.problem.sinks = 2),
    WRONG("total_q", "-1", c.p.problem.total_q = -1),
    WRONG("page_size", "-16", c.p.problem.page_size = -16),
    {"reserved", "", [](Call& c) { c.p.problem.reserved[3] = 1; }, LW_UNSUPPORTED},
    WRONG("options.struct_size", "1", c.options.struct_size = 1),
    WRONG("target", "AVX9", c.options.target = "AVX9"),
    WRONG("target", "''", c.options.target = ""),
};

const std::vector<Wrong<Call>> kWrongRuns = {
    WRONG("inputs", "null", c.inputs = nullptr),
    WRONG("outputs", "null", c.outputs = nullptr),
    WRONG("inputs.struct_size", "16", c.p.inputs.struct_size = 16),
    WRONG("outputs.struct_size", "0", c.p.outputs.struct_size = 0),
    WRONG("batch", "3", c.p.inputs.batch = 3),
    WRONG("batch", "-2", c.p.inputs.batch = -2),
    WRONG("q_len", "6", c.p.inputs.q_len = 6),
    WRONG("q_len", "-9223372036854775808", c.p.inputs.q_len = INT64_MIN),
    WRONG("kv_len", "10", c.p.inputs.kv_len = 10),
    WRONG("q.data", "null", c.p.inputs.q.data = nullptr),
    WRONG("k.data", "null", c.p.inputs.k.data = nullptr),
    WRONG("v.data", "null", c.p.inputs.v.data = nullptr),
    WRONG("q.type", "0", c.p.inputs.q.type = LW_TYPE_NONE),
    WRONG("k.type", "2", c.p.inputs.k.type = LW_TYPE_BF16),
    WRONG("v.type", "77", c.p.inputs.v.type = 77),
    WRONG("out.type", "3", c.p.outputs.out.type = LW_TYPE_F16),
    WRONG("lse.type", "2", c.p.outputs.lse.type = LW_TYPE_BF16),
    WRONG("q.data", "multiple of 4", c.p.inputs.q.data = static_cast<const char*>(c.p.inputs.q.data) + 2),
    WRONG("out.data", "multiple of 4", c.p.outputs.out.data = static_cast<char*>(c.p.outputs.out.data) + 1),
    WRONG("q.stride[0]", "9223372036854775807", c.p.inputs.q.stride[0] = INT64_MAX),
    WRONG("k.stride[2]", "-9223372036854775808", c.p.inputs.k.stride[2] = INT64_MIN),
    WRONG("v.stride[3]", "4611686018427387904", c.p.inputs.v.stride[3] = int64_t{1} << 62),
    WRONG("q", "address space", c.p.inputs.q.stride[1] = int64_t{1} << 59),
    WRONG("out.stride[3]", "0", c.p.outputs.out.stride[3] = 0),
    WRONG("out.stride[2]", "5", c.p.outputs.out.stride[2] = 5),
    WRONG("out.stride", "6", c.p.outputs.out.stride[0] = -6),
    WRONG("lse.stride[1]", "0", c.p.outputs.lse.stride[1] = 0),
    WRONG("state_acc.stride[2]", "0", c.p.outputs.state_acc.stride[2] = 0),
    WRONG("q_lengths[1]", "-1", c.q_lengths[1] = -1),
    WRONG("q_lengths[0]", "6", c.q_lengths[0] = 6),
    WRONG("kv_lengths[0]", "-2147483648", c.kv_lengths[0] = INT32_MIN),
    WRONG("kv_lengths[1]", "10", c.kv_lengths[1] = 10),
    WRONG("kv_lengths[1]", "2147483647", c.kv_lengths[1] = INT32_MAX),
    WRONG("kv_starts[0]", "-1", c.kv_starts[0] = -1),
    WRONG("kv_starts[1]", "4097", c.kv_starts[1] = 4097),
    WRONG("overrides", "16", c.p.inputs.overrides = 16),
    WRONG("overrides", "-1", c.p.inputs.overrides = -1),
    WRONG("scale", "nan", (c.p.inputs.overrides = LW_OVERRIDE_SCALE, c.p.inputs.scale = kNan)),
    WRONG("softcap", "-1", (c.p.inputs.overrides = LW_OVERRIDE_SOFTCAP, c.p.inputs.softcap = -1)),
    WRONG("window_left", "-5", (c.p.inputs.overrides = LW_OVERRIDE_WINDOW, c.p.inputs.window_left = -5)),
    WRONG("q_offset", "9223372036854775807",
          (c.p.inputs.overrides = LW_OVERRIDE_Q_OFFSET, c.p.inputs.q_offset = INT64_MAX)),
    WRONG("checks", "2", c.p.inputs.checks = 2),
    {"reserved", "", [](Call& c) { c.p.inputs.reserved[0] = 1; }, LW_UNSUPPORTED},
    {"reserved", "", [](Call& c) { c.p.outputs.reserved[15] = -1; }, LW_UNSUPPORTED},
    {"q.reserved", "", [](Call& c) { c.p.inputs.q.reserved[1] = 1; }, LW_UNSUPPORTED},
    {"lse.reserved", "", [](Call& c) { c.p.outputs.lse.reserved[0] = 1; }, LW_UNSUPPORTED},
    WRONG("out.data", "null", (c.p.outputs = lw_outputs_default())),
    WRONG("state_max", "", c.p.outputs.state_max = lw_tensor()),
    WRONG("state_sum", "", c.p.inputs.state_sum = lw_const_tensor()),
    WRONG("state_acc", "null", c.p.inputs.state_acc.data = nullptr),
    WRONG("cu_seqlens_q", "ragged", c.p.inputs.cu_seqlens_q = c.q_lengths.data()),
    WRONG("cu_seqlens_kv", "ragged", c.p.inputs.cu_seqlens_kv = c.q_lengths.data()),
    WRONG("page_table", "paged", c.p.inputs.page_table = c.q_lengths.data()),
    WRONG("mask", "mask_type", c.p.inputs.mask.data = c.q_lengths.data()),
    WRONG("bias", "bias_type", c.p.inputs.bias.data = c.q_lengths.data()),
    WRONG("alibi_slopes", "alibi", c.p.inputs.alibi_slopes = static_cast<const float*>(c.p.inputs.q.data)),
    WRONG("sinks", "sinks", c.p.inputs.sinks = static_cast<const float*>(c.p.inputs.q.data)),
    WRONG("out", "overlaps q", c.p.inputs.q.data = c.p.outputs.out.data),
    WRONG("out", "overlaps v", c.p.outputs.out.data = const_cast<void*>(c.p.inputs.v.data)),
    WRONG("lse", "overlaps out", c.p.outputs.lse.data = static_cast<float*>(c.p.outputs.out.data) + 3),
    WRONG("state_sum", "overlaps state_max", c.p.outputs.state_sum.data = c.p.outputs.state_max.data),
    // Rows with gaps inside a tensor without.
    WRONG("lse", "overlaps q",
          (c.p.outputs.lse.data = static_cast<float*>(const_cast<void*>(c.p.inputs.q.data)) + 1,
           c.p.outputs.lse.stride[0] = 100, c.p.outputs.lse.stride[1] = 20, c.p.outputs.lse.stride[2] = 3)),
    WRONG("out", "overlaps k",
          (c.p.outputs.out.data = static_cast<float*>(const_cast<void*>(c.p.inputs.k.data)) + 200,
           c.p.outputs.out.stride[0] = 200, c.p.outputs.out.stride[1] = 40, c.p.outputs.out.stride[2] = -7)),
    WRONG("workspace", "overlaps out", c.p.outputs.out.data = c.workspace),
    WRONG("workspace", "overlaps q", c.p.inputs.q.data = static_cast<char*>(c.workspace) + 192),
    WRONG("workspace", "overlaps v", c.p.inputs.v.data = static_cast<char*>(c.workspace) - 64),
    WRONG("q_lengths", "multiple of 4", c.p.inputs.q_lengths = odd(c.p.inputs.q_lengths)),
    WRONG("kv_lengths", "multiple of 4", c.p.inputs.kv_lengths = odd(c.p.inputs.kv_lengths)),
    WRONG("q_offsets", "multiple of 4", c.p.inputs.q_offsets = odd(c.q_lengths.data())),
    WRONG("kv_starts", "multiple of 4", c.p.inputs.kv_starts = odd(c.p.inputs.kv_starts)),
    WRONG("workspace", "null", c.workspace = nullptr),
    WRONG("workspace_size", "63", c.workspace_size = 63),
    WRONG("workspace_size", "-1", c.workspace_size = -1),
    WRONG("workspace", "multiple of 64", c.workspace = static_cast<char*>(c.workspace) - 32),
    WRONG("executor.struct_size", "4", c.executor.struct_size = 4),
    WRONG("executor.kind", "3", c.executor.kind = 3),
    WRONG("executor.kind", "-1", c.executor.kind = -1),
    WRONG("executor.threads", "-2", c.executor.threads = -2),
    WRONG("executor.parallel_for", "null", c.executor.kind = LW_EXECUTOR_CALLBACK),
};

TEST_CASE("wrong problems are refused when the plan is made") { check_refused(kWrongProblems); }

TEST_CASE("wrong runs are refused before the first write") { check_refused(kWrongRuns); }

TEST_CASE("null and senseless arguments of the other calls") {
  Call call;
  lw_plan* plan = nullptr;
  CHECK(lw_plan_make(&call.p.problem, nullptr, nullptr).code == LW_INVALID_ARGUMENT);
  REQUIRE(lw_plan_make(&call.p.problem, nullptr, &plan).code == LW_OK);
  CHECK(lw_run(nullptr, call.inputs, call.outputs, call.workspace, call.workspace_size, nullptr).code ==
        LW_INVALID_ARGUMENT);
  const auto part = [&](const lw_plan* of, int32_t phase, int32_t ith, int32_t nth) {
    return lw_run_part(of, call.inputs, call.outputs, call.workspace, call.workspace_size, phase, ith, nth).code;
  };
  CHECK(part(nullptr, 0, 0, 1) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, -1, 0, 1) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 2, 0, 1) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 0, -1, 1) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 0, 2, 2) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 0, 0, 0) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 0, 0, -3) == LW_INVALID_ARGUMENT);
  CHECK(part(plan, 0, 0, 1000) == LW_INVALID_ARGUMENT);  // the workspace is for two
  CHECK(outputs_untouched(call.p));
  lw_explanation explanation = {};
  CHECK(lw_plan_explain(plan, 1, nullptr).code == LW_INVALID_ARGUMENT);
  CHECK(lw_plan_explain(plan, 1, &explanation).code == LW_INVALID_ARGUMENT);  // struct_size 0
  explanation.struct_size = sizeof explanation;
  CHECK(lw_plan_explain(nullptr, 1, &explanation).code == LW_INVALID_ARGUMENT);
  CHECK(lw_plan_workspace_size(nullptr, 1) == 0);
  CHECK(lw_plan_phases(nullptr) == 0);
  lw_plan_free(plan);
  lw_plan_free(nullptr);
  CHECK(lw_attend(nullptr, call.inputs, call.outputs, nullptr).code == LW_INVALID_ARGUMENT);
  CHECK(lw_attend(call.problem, nullptr, call.outputs, nullptr).code == LW_INVALID_ARGUMENT);
  CHECK(lw_attend(call.problem, call.inputs, nullptr, nullptr).code == LW_INVALID_ARGUMENT);
  CHECK(outputs_untouched(call.p));
}

TEST_CASE("a target that is compiled in but not for this CPU is refused, an unknown one lists the known") {
  for (int32_t n = 0; n < lw_target_count(); ++n) {
    lw_options options = lw_options_default();
    options.target = lw_target_name(n);
    lw_problem problem = lw_problem_default();
    problem.qk_dim = problem.v_dim = 8;
    lw_plan* plan = nullptr;
    const lw_status status = lw_plan_make(&problem, &options, &plan);
    CHECK(status.code == (lw_target_supported(n) ? LW_OK : LW_UNSUPPORTED));
    if (status.code != LW_OK) CHECK(std::string(status.message).find(lw_target_name(n)) != std::string::npos);
    lw_plan_free(plan);
    options.target = "AVX9";
    CHECK(std::string(lw_plan_make(&problem, &options, &plan).message).find(lw_target_name(n)) != std::string::npos);
  }
  CHECK(lw_target_name(-1) == nullptr);
  CHECK(lw_target_name(lw_target_count()) == nullptr);
  CHECK(lw_target_supported(-1) == 0);
  CHECK(lw_target_supported(1000) == 0);
}

}  // namespace
}  // namespace lanewise::test
