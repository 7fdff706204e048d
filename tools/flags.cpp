#include "flags.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <system_error>

namespace lanewise::tools {

std::string check_integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? ""
                                                                  : io::quote(text) + " is not an integer of 64 bits";
}

std::string check_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() ? "" : io::quote(text) + " is not a number";
}

const std::vector<TensorName>& tensor_names() {
  static const std::vector<TensorName> names = {
      {"q", "--q",
       "queries, f32 bf16 f16: [batch, heads, len, dim], [heads, len, dim], [len, dim]; ragged [total, heads, dim]"},
      {"k", "--k", "keys, as q; with a page table [pages, kv_heads, page_size, dim]"},
      {"v", "--v", "values, as k"},
      {"mask", "--mask",
       "bool, 1 = attend: [batch, q_heads, q_len, kv_len], any axis may be 1; [batch, kv_len]; ragged "
       "[q_heads or 1, total_q, kv_len]"},
      {"mask_bits", "--mask-bits", "u8, the same with bits along the last axis"},
      {"bias", "--bias", "f32 bf16 f16, added to the scores; shaped as mask"},
      {"lengths", "--lengths", "i32 [batch]: keys of each sequence"},
      {"q_lengths", "--q-lengths", "i32 [batch]: queries of each sequence"},
      {"cu_seqlens_q", "--cu-seqlens-q", "i32 [batch + 1]: where each sequence's queries begin (ragged q)"},
      {"cu_seqlens_kv", "--cu-seqlens-kv", "i32 [batch + 1]: the same for keys and values"},
      {"page_table", "--page-table", "i32 [batch, most pages]: page ids"},
      {"q_positions", "--q-positions", "i32 [batch, q_len] or [total_q]: positions in place of q_offset + i"},
      {"kv_start", "--kv-start", "i32 [batch]: position of the first key"},
      {"q_offset", "--q-offsets", "i32 [batch]: position of the first query (in IN: q_offset)"},
      {"sinks", "--sinks", "f32 [q_heads]: a logit in each head's denominator"},
      {"alibi_slopes", "--alibi-slopes", "f32 [q_heads] or [batch, q_heads]"},
      {"block_indptr", "--block-indptr",
       "i32 [tile rows + 1], [q_heads, ...] or [batch, q_heads, ...]: where each tile row's columns begin"},
      {"block_indices", "--block-indices", "i32 [n]: the listed tile columns of each tile row, ascending"},
      {"state_max", "--state-max", "f32 [batch, q_heads, q_len]: an earlier run's state, to continue from"},
      {"state_sum", "--state-sum", "f32 [batch, q_heads, q_len]"},
      {"state_acc", "--state-acc", "f32 [batch, q_heads, q_len, v_dim]"},
  };
  return names;
}

void add_problem_flags(CLI::App& app, Flags& flags) {
  app.add_option("IN", flags.input,
                 "safetensors file with q, k, v and whatever else the problem has, named as the options below with _ "
                 "for -; out and lse are no inputs but expected results")
      ->option_text("IN.safetensors");
  const std::string tensors = "Tensors from npy files, instead of or beside IN";
  for (const TensorName& entry : tensor_names()) {
    if (entry.flag == nullptr) continue;
    const std::string name = entry.name;
    app.add_option_function<std::string>(
           entry.flag, [&flags, name](const std::string& path) { flags.npy[name] = path; }, entry.help)
        ->option_text("FILE")
        ->group(tensors);
  }
  const std::string rules = "Rules";
  app.add_flag("--causal", flags.causal, "a query sees keys up to its own position")->group(rules);
  app.add_option("--q-offset", flags.q_offset,
                 "position of query 0 on the key axis (default: the last query is at the last key)")
      ->check(check_integer)
      ->option_text("N")
      ->group(rules);
  app.add_option("--window", flags.window, "a query at p sees keys p - L ... p + R; -1 is open")
      ->option_text("L,R")
      ->group(rules);
  app.add_option("--prefix", flags.prefix, "the first N positions are visible whatever causal and window say")
      ->check(check_integer)
      ->option_text("N")
      ->group(rules);
  app.add_option("--scale", flags.scale, "multiplies q k (default 1/sqrt(qk_dim))")
      ->check(check_number)
      ->option_text("X")
      ->group(rules);
  app.add_option("--softcap", flags.softcap, "score = X tanh(score / X); 0 is off")
      ->check(check_number)
      ->option_text("X")
      ->group(rules);
  app.add_flag("--alibi", flags.alibi, "ALiBi with the standard slopes")->group(rules);
  app.add_option("--mask-tail", flags.mask_tail,
                 "the mask is of the last N keys of each sequence; earlier ones are seen")
      ->check(check_integer)
      ->option_text("N")
      ->group(rules);
  app.add_option("--block-mask", flags.block_mask, "tile size of block_indptr and block_indices")
      ->option_text("ROWS,KEYS")
      ->group(rules);
  const std::string storage = "Storage";
  app.add_option("--layout", flags.layout, "bhld: [batch, heads, len, dim]; blhd: [batch, len, heads, dim]")
      ->option_text("bhld|blhd")
      ->group(storage);
  app.add_option("--dtype", flags.dtype, "convert q, k, v on reading")->option_text("f32|bf16|f16")->group(storage);
  app.add_option("--kv-dtype", flags.kv_dtype, "convert k, v on reading")->option_text("f32|bf16|f16")->group(storage);
  app.add_option("--out-dtype", flags.out_dtype, "type of out (default: q's)")
      ->option_text("f32|bf16|f16")
      ->group(storage);
  app.add_option("--pad", flags.pad, "lay tensors out with N poisoned elements after each row")
      ->check(check_integer)
      ->option_text("N")
      ->group(storage);
  app.add_option("--ignore", flags.ignored, "tensors of IN not to use")
      ->option_text("NAME,...")
      ->delimiter(',')
      ->group(storage);
  const std::string run = "Run";
  app.add_option("--arithmetic", flags.arithmetic, "default canonical")
      ->option_text("canonical|native_bf16|best")
      ->group(run);
  app.add_option("--target", flags.target, "instruction set (default: LANEWISE_TARGET, else the best)")
      ->option_text("NAME")
      ->group(run);
  app.add_option("--threads", flags.threads, "at most N threads; 0: OpenMP's default")
      ->check(check_integer)
      ->option_text("N")
      ->group(run);
  app.add_option("--executor", flags.executor, "who runs the tasks (default openmp)")
      ->option_text("openmp|caller|callback|parts")
      ->group(run);
}

std::vector<int64_t> parse_integers(const std::string& what, const std::string& text, size_t count) {
  std::vector<int64_t> values;
  const char* next = text.c_str();
  while (true) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(next, &end, 10);
    const bool digit = *next == '-' || (*next >= '0' && *next <= '9');
    if (!digit || end == next || errno != 0 || (*end != ',' && *end != '\0')) break;
    values.push_back(value);
    if (*end == '\0' && values.size() == count && text.size() == static_cast<size_t>(end - text.c_str())) return values;
    if (*end == '\0') break;
    next = end + 1;
  }
  throw Error(what + " " + io::quote(text) + ": " + std::to_string(count) + " integers separated by commas are needed");
}

io::Type parse_dtype(const std::string& what, const std::string& text) {
  if (text == "f32" || text == "F32") return io::Type::f32;
  if (text == "bf16" || text == "BF16") return io::Type::bf16;
  if (text == "f16" || text == "F16") return io::Type::f16;
  throw Error(what + " " + io::quote(text) + ": f32, bf16 and f16 are allowed");
}

}  // namespace lanewise::tools
