// `lanewise explain`: what a plan decides for a problem, as `key: value` lines.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "command.hpp"
#include "flags.hpp"
#include "run_case.hpp"

namespace lanewise::tools {
namespace {

struct ExplainFlags : Flags {
  std::string shape;
};

const char* type_text(int32_t type) {
  return type == LW_TYPE_F32 ? "f32" : type == LW_TYPE_BF16 ? "bf16" : type == LW_TYPE_F16 ? "f16" : "none";
}

lanewise::Problem problem_of(const ExplainFlags& flags) {
  if (flags.shape.empty()) return make_case(load_tensors(flags, "", Load::sizes), flags).problem;
  if (!flags.input.empty() || !flags.npy.empty()) throw Error("--shape and tensors exclude each other");
  lanewise::Problem problem = make_problem(parse_integers("--shape", flags.shape, 7), flags);
  const auto type = [](const char* flag, const std::string& text, int32_t otherwise) {
    return text.empty() ? otherwise : lw_type(parse_dtype(flag, text));
  };
  problem.q_type = type("--dtype", flags.dtype, LW_TYPE_F32);
  problem.k_type = problem.v_type = type("--kv-dtype", flags.kv_dtype, problem.q_type);
  problem.out_type = type("--out-dtype", flags.out_dtype, problem.q_type);
  return problem;
}

int explain(const ExplainFlags& flags) {
  const RunOptions options = run_options(flags);
  if (flags.column_sums) throw Error("--column-sums is not in this version yet");
  const lanewise::Problem problem = problem_of(flags);
  const lanewise::Plan plan = make_plan(problem, flags.target);
  const int32_t threads = options.executor == "caller" ? 1 : options.threads > 0 ? options.threads : default_threads();
  const lw_explanation e = plan.explain(threads);
  const auto number = [](const char* key, int64_t value) {
    std::printf("%s: %lld\n", key, static_cast<long long>(value));
  };
  std::printf("shape: %lld,%lld,%lld,%lld,%lld,%lld,%lld\n", static_cast<long long>(problem.batch),
              static_cast<long long>(problem.q_heads), static_cast<long long>(problem.kv_heads),
              static_cast<long long>(problem.q_len), static_cast<long long>(problem.kv_len),
              static_cast<long long>(problem.qk_dim), static_cast<long long>(problem.v_dim));
  std::printf("types: q %s, k %s, v %s, out %s\n", type_text(problem.q_type), type_text(problem.k_type),
              type_text(problem.v_type), type_text(problem.out_type));
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.qk_dim)));
  std::printf("scale: %.9g\n", static_cast<double>(problem.has_scale != 0 ? problem.scale : scale));
  std::printf("causal: %s\n", problem.causal != 0 ? "yes" : "no");
  std::printf("window: %lld,%lld\n", static_cast<long long>(problem.window_left),
              static_cast<long long>(problem.window_right));
  std::printf("target: %s\nkernel: %s\narithmetic: %s\n", e.target, e.kernel, e.arithmetic);
  number("lanes", e.lanes);
  number("tile_rows", e.tile_rows);
  number("tile_keys", e.tile_keys);
  number("row_tiles", e.row_tiles);
  number("tasks", e.tasks);
  number("phases", e.phases);
  number("threads", threads);
  number("workspace", e.workspace);
  std::printf("note: %s\n", e.note != nullptr && e.note[0] != '\0' ? e.note : "none");
  return kSuccess;
}

}  // namespace

void add_explain(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("explain", "The plan for a problem, as key: value lines");
  const auto flags = std::make_shared<ExplainFlags>();
  add_problem_flags(*command, *flags);
  command->add_option("--shape", flags->shape, "batch,q_heads,kv_heads,q_len,kv_len,qk_dim,v_dim, instead of tensors")
      ->option_text("B,H,HK,L,S,D,DV");
  command->footer("Example: lanewise explain --shape 1,32,8,512,4096,128,128 --causal --threads 8");
  command->callback([flags, &chosen] { chosen = [flags] { return explain(*flags); }; });
}

}  // namespace lanewise::tools
