// The flags that describe a problem, shared by the subcommands that compute or plan one. Only what was typed: what it
// means for the tensors is problem_case.hpp's work.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor.hpp"

namespace CLI {
class App;
}

namespace lanewise::tools {

using io::Error;

struct Flags {
  std::string input;                       // a safetensors file; empty: none
  std::map<std::string, std::string> npy;  // tensor name -> npy file
  std::vector<std::string> ignored;        // tensors of the file that are not to be used
  std::string layout = "bhld";
  std::string dtype, kv_dtype, out_dtype;
  std::string arithmetic = "canonical";
  std::string target;
  std::string executor = "openmp";
  int32_t threads = 0;
  bool causal = false;
  std::optional<int64_t> q_offset;
  std::string window;  // "L,R"
  int64_t prefix = 0;
  std::optional<double> scale;
  double softcap = 0;
  bool alibi = false;
  int64_t pad = 0;
  std::string block_mask;  // "ROWS,KEYS"
  int64_t mask_tail = 0;
};

// A tensor that a file may hold or a flag may name.
struct TensorName {
  const char* name;
  const char* flag;  // --q, --mask-bits ...; null: only in a file
  const char* help;
};
const std::vector<TensorName>& tensor_names();

// Adds all of Flags, the input file and one --NAME FILE.npy flag a tensor to a subcommand.
void add_problem_flags(CLI::App& app, Flags& flags);

// For CLI11's check(): what is wrong with the text, or nothing. CLI11 itself takes an empty text for "not given" and
// cuts off large numbers.
std::string check_integer(const std::string& text);
std::string check_number(const std::string& text);

// "4,-1" as exactly `count` integers; `what` names the flag in the message.
std::vector<int64_t> parse_integers(const std::string& what, const std::string& text, size_t count);

// f32, bf16, f16 in any case; `what` names the flag.
io::Type parse_dtype(const std::string& what, const std::string& text);

}  // namespace lanewise::tools
