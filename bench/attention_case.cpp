#include "attention_case.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace lanewise::bench {
namespace {

struct TypeName {
  int32_t type;
  const char* name;
};
constexpr TypeName kTypes[] = {{LW_TYPE_F32, "f32"}, {LW_TYPE_BF16, "bf16"}, {LW_TYPE_F16, "f16"}};

const char* type_text(int32_t type) {
  for (const TypeName& t : kTypes) {
    if (t.type == type) return t.name;
  }
  return "?";
}

bool parse_type(const std::string& text, int32_t& type) {
  for (const TypeName& t : kTypes) {
    if (text == t.name) {
      type = t.type;
      return true;
    }
  }
  return false;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

// "<prefix><number>": true and the number. At most 9 digits: sizes multiply.
bool parse_number(const std::string& text, const std::string& prefix, int64_t& number) {
  if (text.compare(0, prefix.size(), prefix) != 0) return false;
  const std::string digits = text.substr(prefix.size());
  const size_t sign = digits.compare(0, 1, "-") == 0 ? 1 : 0;
  if (digits.size() <= sign || digits.size() > 9 + sign) return false;
  if (digits.find_first_not_of("0123456789", sign) != std::string::npos) return false;
  number = std::atoll(digits.c_str());
  return true;
}

bool parse_size(const std::string& text, const std::string& prefix, int64_t& number) {
  return parse_number(text, prefix, number) && number >= 1;
}

struct ComputesName {
  Computes computes;
  const char* name;
};
constexpr ComputesName kComputes[] = {{Computes::kAttention, "attention"},
                                      {Computes::kColumnSums, "column_sums"},
                                      {Computes::kRowStatistics, "row_statistics"},
                                      {Computes::kWeights, "weights"}};

std::string what_text(const AttentionCase& c) {
  if (c.onednn) return "onednn";
  for (const ComputesName& what : kComputes) {
    if (what.computes == c.computes) return what.name;
  }
  return "?";
}

std::string rule_text(const AttentionCase& c) {
  std::string text;
  const auto add = [&](bool given, const std::string& rule) {
    if (given) text += (text.empty() ? "" : ".") + rule;
  };
  add(c.causal, "causal");
  add(c.window_left >= 0 || c.window_right >= 0,
      "window" + std::to_string(c.window_left) + "_" + std::to_string(c.window_right));
  add(c.masked_percent >= 0, "mask" + std::to_string(c.masked_percent));
  add(c.bias_type == LW_TYPE_F32, "bias");
  add(c.bias_type == LW_TYPE_BF16, "bias_bf16");
  add(c.bias_type == LW_TYPE_F16, "bias_f16");
  add(c.softcap, "softcap");
  add(c.alibi, "alibi");
  add(c.sinks, "sinks");
  return text.empty() ? "full" : text;
}

bool parse_rule(const std::string& text, AttentionCase& c) {
  for (const std::string& rule : split(text, '.')) {
    const std::vector<std::string> parts = split(rule, '_');
    if (rule == "causal") {
      c.causal = true;
    } else if (rule == "bias") {
      c.bias_type = LW_TYPE_F32;
    } else if (rule == "bias_bf16") {
      c.bias_type = LW_TYPE_BF16;
    } else if (rule == "bias_f16") {
      c.bias_type = LW_TYPE_F16;
    } else if (rule == "softcap") {
      c.softcap = true;
    } else if (rule == "alibi") {
      c.alibi = true;
    } else if (rule == "sinks") {
      c.sinks = true;
    } else if (parts.size() == 1 && parse_number(parts[0], "mask", c.masked_percent)) {
      if (c.masked_percent < 0 || c.masked_percent > 100) return false;
    } else if (parts.size() == 2 && parse_number(parts[0], "window", c.window_left)) {
      if (!parse_number(parts[1], "", c.window_right)) return false;
    } else if (rule != "full") {
      return false;
    }
  }
  return true;
}

std::string layout_text(const AttentionCase& c) {
  std::string text = c.tokens_first ? "blhd" : "bhld";
  if (c.k_transposed) text += "_kt";
  if (c.v_transposed) text += "_vt";
  if (c.out_transposed) text += "_ot";
  if (c.page_size > 0) text += "_page" + std::to_string(c.page_size);
  if (c.v_in_k) text += "_vink";
  return text;
}

bool parse_layout(const std::string& text, AttentionCase& c) {
  for (const std::string& part : split(text, '_')) {
    if (part == "blhd") c.tokens_first = true;
    if (part == "kt") c.k_transposed = true;
    if (part == "vt") c.v_transposed = true;
    if (part == "ot") c.out_transposed = true;
    if (part == "vink") c.v_in_k = true;
    if (part.compare(0, 4, "page") == 0 && !parse_size(part, "page", c.page_size)) return false;
  }
  return true;  // name_of tells whether anything else was in there
}

// b<batch>, or b<batch>+<decodes>.
bool parse_batch(const std::string& text, AttentionCase& c) {
  const std::vector<std::string> parts = split(text, '+');
  if (parts.size() == 1) return parse_size(parts[0], "b", c.batch);
  return parts.size() == 2 && parse_number(parts[0], "b", c.batch) && c.batch >= 0 &&
         parse_size(parts[1], "", c.decodes);
}

struct KernelName {
  Kernel kernel;
  const char* suffix;
};
constexpr KernelName kKernels[] = {
    {Kernel::kChosen, ""}, {Kernel::kKeysInLanes, ".keys"}, {Kernel::kRowsInLanes, ".rows"}};

std::string target_text(const AttentionCase& c) {
  if (c.onednn) return "onednn";
  std::string text = c.target;
  for (const KernelName& k : kKernels) {
    if (k.kernel == c.kernel) text += k.suffix;
  }
  return text;
}

void parse_target(const std::string& text, AttentionCase& c) {
  const size_t dot = std::min(text.find('.'), text.size());
  c.target = text.substr(0, dot);
  for (const KernelName& k : kKernels) {
    if (text.substr(dot) == k.suffix) c.kernel = k.kernel;
  }
}

// Combinations that have no tensors.
bool has_tensors(const AttentionCase& c) {
  const bool transposed = c.k_transposed || c.v_transposed || c.out_transposed;
  if (transposed && (c.page_size > 0 || c.decodes > 0)) return false;
  if (c.v_in_k && (c.v_dim > c.qk_dim || c.v_transposed)) return false;
  if ((c.masked_percent >= 0 || c.bias_type != LW_TYPE_NONE) && (c.decodes > 0 || c.onednn)) return false;
  return !c.onednn || (c.page_size == 0 && c.decodes == 0 && !c.v_in_k);
}

std::string arithmetic_text(const AttentionCase& c) {
  if (c.onednn) return "matmul";
  return c.arithmetic == LW_ARITHMETIC_NATIVE_BF16 ? "native_bf16" : "canonical";
}

}  // namespace

int64_t element_size(int32_t type) { return type == LW_TYPE_F32 ? 4 : 2; }

std::string name_of(const AttentionCase& c) {
  std::ostringstream name;
  name << what_text(c) << '/' << type_text(c.q_type) << '_' << type_text(c.kv_type) << '/' << arithmetic_text(c) << '/'
       << rule_text(c) << "/q" << c.q_len << "_kv" << c.kv_len << "/b" << c.batch;
  if (c.decodes > 0) name << '+' << c.decodes;
  name << "_h" << c.q_heads << '_' << c.kv_heads << "/d" << c.qk_dim;
  if (c.v_dim != c.qk_dim) name << '_' << c.v_dim;
  name << '/' << layout_text(c) << '/' << target_text(c) << "/t" << c.threads;
  return name.str();
}

bool parse_name(const std::string& name, AttentionCase& result) {
  const std::vector<std::string> parts = split(name, '/');
  if (parts.size() != 10) return false;
  AttentionCase c;
  c.onednn = parts[0] == "onednn";
  for (const ComputesName& what : kComputes) {
    if (parts[0] == what.name) c.computes = what.computes;
  }
  const std::vector<std::string> types = split(parts[1], '_');
  const std::vector<std::string> lengths = split(parts[4], '_');
  const std::vector<std::string> heads = split(parts[5], '_');
  const std::vector<std::string> dims = split(parts[6], '_');
  if (types.size() != 2 || lengths.size() != 2 || heads.size() != 3 || dims.empty()) return false;
  if (!parse_type(types[0], c.q_type) || !parse_type(types[1], c.kv_type)) return false;
  if (parts[2] == "native_bf16") c.arithmetic = LW_ARITHMETIC_NATIVE_BF16;
  if (!parse_rule(parts[3], c) || !parse_layout(parts[7], c)) return false;
  if (!parse_size(lengths[0], "q", c.q_len) || !parse_size(lengths[1], "kv", c.kv_len)) return false;
  if (!parse_batch(heads[0], c) || !parse_size(heads[1], "h", c.q_heads) || !parse_size(heads[2], "", c.kv_heads)) {
    return false;
  }
  if (!parse_size(dims[0], "d", c.qk_dim)) return false;
  c.v_dim = c.qk_dim;
  if (dims.size() == 2 && !parse_size(dims[1], "", c.v_dim)) return false;
  parse_target(parts[8], c);
  int64_t threads = 0;
  if (!parse_size(parts[9], "t", threads) || threads > 4096) return false;
  c.threads = static_cast<int32_t>(threads);
  // Writing it again shows what the parts above let pass.
  if (name_of(c) != name || !has_tensors(c)) return false;
  result = c;
  return true;
}

namespace {

struct Keys {
  int64_t begin, end;
};

// Keys that query i of a sequence sees.
Keys visible_keys(const AttentionCase& c, const Sequence& sequence, int64_t i) {
  const int64_t position = sequence.kv_len - sequence.q_len + i;
  Keys keys = {0, sequence.kv_len};
  if (c.window_left >= 0) keys.begin = std::max<int64_t>(keys.begin, position - c.window_left);
  if (c.window_right >= 0) keys.end = std::min(keys.end, position + c.window_right + 1);
  if (c.causal) keys.end = std::min(keys.end, position + 1);
  keys.end = std::max(keys.begin, keys.end);
  return keys;
}

}  // namespace

std::vector<Sequence> sequences_of(const AttentionCase& c) {
  std::vector<Sequence> sequences(static_cast<size_t>(c.batch), {c.q_len, c.kv_len});
  for (int64_t i = 0; i < c.decodes; ++i) sequences.push_back({1, std::max<int64_t>(1, c.kv_len >> (i % 8))});
  return sequences;
}

double visible_scores(const AttentionCase& c) {
  double pairs = 0;
  for (const Sequence& sequence : sequences_of(c)) {
    for (int64_t i = 0; i < sequence.q_len; ++i) {
      const Keys keys = visible_keys(c, sequence, i);
      pairs += static_cast<double>(keys.end - keys.begin);
    }
  }
  if (c.masked_percent > 0) pairs *= static_cast<double>(100 - c.masked_percent) / 100;
  return pairs * static_cast<double>(c.q_heads);
}

double flops_of(const AttentionCase& c) {
  const int64_t dims = c.computes == Computes::kAttention ? c.qk_dim + c.v_dim : c.qk_dim;
  return 2 * visible_scores(c) * static_cast<double>(dims);
}

double key_bytes_of(const AttentionCase& c) {
  const bool keys_alone = c.v_in_k || c.computes != Computes::kAttention;
  const int64_t row = element_size(c.kv_type) * (keys_alone ? c.qk_dim : c.qk_dim + c.v_dim) * c.kv_heads;
  double bytes = 0;
  for (const Sequence& sequence : sequences_of(c)) {
    // Bounds go up with the query, so the first and the last query's keys span all of them.
    const int64_t keys = visible_keys(c, sequence, sequence.q_len - 1).end - visible_keys(c, sequence, 0).begin;
    bytes += static_cast<double>(std::max<int64_t>(0, keys)) * static_cast<double>(row);
  }
  return bytes;
}

}  // namespace lanewise::bench
