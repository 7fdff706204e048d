// Rules of a problem that come from flags alone, and what they make visible.
#include <algorithm>
#include <cmath>

#include "problem_case.hpp"

namespace lanewise::tools {

lanewise::Problem make_problem(const std::vector<int64_t>& sizes, const Flags& flags) {
  lanewise::Problem p;
  p.batch = sizes[0];
  p.q_heads = sizes[1];
  p.kv_heads = sizes[2];
  p.q_len = sizes[3];
  p.kv_len = sizes[4];
  p.qk_dim = sizes[5];
  p.v_dim = sizes[6];
  if (flags.arithmetic == "native_bf16") {
    p.arithmetic = LW_ARITHMETIC_NATIVE_BF16;
  } else if (flags.arithmetic == "best") {
    p.arithmetic = LW_ARITHMETIC_BEST;
  } else if (flags.arithmetic != "canonical") {
    throw Error("--arithmetic " + io::quote(flags.arithmetic) + ": canonical, native_bf16 and best are allowed");
  }
  p.causal = flags.causal;
  p.prefix_len = flags.prefix;
  if (!flags.window.empty()) {
    const std::vector<int64_t> window = parse_integers("--window", flags.window, 2);
    p.window_left = window[0];
    p.window_right = window[1];
  }
  p.alibi = flags.alibi;
  if (flags.scale) {
    // Larger than any float would become inf on conversion; the library's limit of 1e38 is its own check.
    if (!(std::fabs(*flags.scale) <= 3e38)) throw Error("--scale: a finite number of at most 1e38 is needed");
    p.has_scale = 1;
    p.scale = static_cast<float>(*flags.scale);
  }
  if (!(std::fabs(flags.softcap) <= 3e38)) throw Error("--softcap: 0 (off) or a number in 1e-6 ... 1e6 is needed");
  p.softcap = static_cast<float>(flags.softcap);
  // A cap so small that it rounds to 0 must not become "off".
  if (flags.softcap != 0 && p.softcap == 0) throw Error("--softcap: 0 (off) or a number in 1e-6 ... 1e6 is needed");
  if (flags.q_offset) {
    p.has_q_offset = 1;
    p.q_offset = *flags.q_offset;
  }
  return p;
}

std::vector<float> standard_slopes(int64_t heads) {
  std::vector<float> slopes(static_cast<size_t>(heads));
  const lanewise::Status status = lanewise::alibi_slopes(heads, slopes.data());
  if (!status) throw Error(status.message());
  return slopes;
}

SequenceSizes sequence_sizes(const ProblemCase& c, int64_t b) {
  const lw_inputs& in = c.inputs;
  SequenceSizes s = {c.problem.q_len, c.problem.kv_len, in.kv_starts != nullptr ? in.kv_starts[b] : 0, 0};
  if (in.cu_seqlens_q != nullptr) s.q_len = int64_t{in.cu_seqlens_q[b + 1]} - in.cu_seqlens_q[b];
  if (in.cu_seqlens_kv != nullptr) s.kv_len = int64_t{in.cu_seqlens_kv[b + 1]} - in.cu_seqlens_kv[b];
  if (in.q_lengths != nullptr) s.q_len = in.q_lengths[b];
  if (in.kv_lengths != nullptr) s.kv_len = in.kv_lengths[b];
  s.q_offset = s.kv_start + s.kv_len - s.q_len;
  if (c.problem.has_q_offset != 0) s.q_offset = c.problem.q_offset;
  if (in.q_offsets != nullptr) s.q_offset = in.q_offsets[b];
  return s;
}

double visible_scores(const ProblemCase& c) {
  const lw_problem& p = c.problem;
  double total = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceSizes s = sequence_sizes(c, b);
    const int64_t first_row = c.inputs.cu_seqlens_q != nullptr ? c.inputs.cu_seqlens_q[b] : 0;
    for (int64_t i = 0; i < s.q_len; ++i) {
      int64_t position = s.q_offset + i;
      if (c.inputs.q_positions != nullptr) {
        position = c.inputs.q_positions[b * c.inputs.q_positions_stride[0] + (first_row + i)];
      }
      int64_t begin = 0;
      int64_t end = s.kv_len;  // as key rows, relative to kv_start
      if (p.causal != 0) end = std::min(end, position + 1 - s.kv_start);
      if (p.window_left >= 0) begin = std::max(begin, position - p.window_left - s.kv_start);
      if (p.window_right >= 0) end = std::min(end, position + p.window_right + 1 - s.kv_start);
      const int64_t prefix = std::clamp<int64_t>(p.prefix_len - s.kv_start, 0, s.kv_len);
      const int64_t in_reach = std::max<int64_t>(0, end - std::max(begin, prefix));
      total += static_cast<double>(prefix + in_reach);
    }
  }
  return total * static_cast<double>(p.q_heads);
}

}  // namespace lanewise::tools
