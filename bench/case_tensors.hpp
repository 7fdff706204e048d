// The tensors of a case, on huge pages, and the problem they belong to.
#pragma once

#include <cstdint>
#include <vector>

#include "attention_case.hpp"
#include "huge_buffer.hpp"
#include "lanewise/lanewise.hpp"

namespace lanewise::bench {

// Not of a oneDNN case.
Problem problem_of(const AttentionCase& c);

// q, k, v filled with numbers of variance 1, out zero; inputs and outputs point into them.
struct CaseTensors {
  explicit CaseTensors(const AttentionCase& c);
  CaseTensors(const CaseTensors&) = delete;

  HugeBuffer q, k, v, out, mask, bias;
  std::vector<float> slopes, sinks;  // [q_heads]
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_kv, kv_lengths, page_table;
  Inputs inputs;
  Outputs outputs;
};

}  // namespace lanewise::bench
