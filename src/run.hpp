// A run's arguments: sizes and rules of this run, sequence by sequence, and their checks (before any tensor is
// touched).
#pragma once

#include <cstdint>

#include "lanewise/lanewise.h"
#include "tensors.hpp"

namespace lanewise {

// A run's arguments, checked: sizes resolved, rules with this run's overrides.
struct Run {
  lw_problem problem;  // batch, q_len, kv_len: this run's; rules: this run's
  lw_inputs inputs;
  lw_outputs outputs;

  int64_t q_len(int64_t b) const {
    if (inputs.cu_seqlens_q != nullptr) return int64_t{inputs.cu_seqlens_q[b + 1]} - inputs.cu_seqlens_q[b];
    return inputs.q_lengths != nullptr ? inputs.q_lengths[b] : problem.q_len;
  }
  int64_t kv_len(int64_t b) const {
    if (inputs.kv_lengths != nullptr) return inputs.kv_lengths[b];
    if (inputs.cu_seqlens_kv != nullptr) return int64_t{inputs.cu_seqlens_kv[b + 1]} - inputs.cu_seqlens_kv[b];
    return problem.kv_len;
  }
  // Rows before sequence b in a ragged tensor.
  int64_t q_token(int64_t b) const { return inputs.cu_seqlens_q != nullptr ? inputs.cu_seqlens_q[b] : 0; }
  int64_t kv_token(int64_t b) const { return inputs.cu_seqlens_kv != nullptr ? inputs.cu_seqlens_kv[b] : 0; }
  int64_t kv_start(int64_t b) const { return inputs.kv_starts != nullptr ? inputs.kv_starts[b] : 0; }
  // Position of query 0 of sequence b on the key axis.
  int64_t q_offset(int64_t b) const {
    if (inputs.q_offsets != nullptr) return inputs.q_offsets[b];
    if (problem.has_q_offset) return problem.q_offset;
    return kv_start(b) + kv_len(b) - q_len(b);
  }
  // The positions of sequence b's queries; nullptr: q_offset + i.
  const int32_t* q_positions(int64_t b) const {
    if (inputs.q_positions == nullptr) return nullptr;
    return inputs.q_positions + (inputs.cu_seqlens_q != nullptr ? q_token(b) * inputs.q_positions_stride[1]
                                                                : b * inputs.q_positions_stride[0]);
  }
};

// Axes of this run's tensors. A ragged tensor has one axis of tokens for all sequences, a paged one has pages for
// sequences.
struct RunAxes {
  Axes q, k, v, out, rows;  // rows: lse and the like
  Axes mask, bias;          // bits: bytes of the mask
};
RunAxes axes_of(const Run& run);

// Everything about the inputs but their tensors. scores_alone: nothing of values, states and sinks is used.
lw_status check_inputs(const lw_problem& planned, const lw_inputs* inputs, bool scores_alone, Run& run);

// `planned`: the checked problem of the plan. workspace: what the run needs of it.
lw_status check_run(const lw_problem& planned, const lw_inputs* inputs, const lw_outputs* outputs,
                    const Range& workspace, Run& run);

lw_status check_workspace(const void* workspace, int64_t size, int64_t needed, int32_t threads);
lw_status check_executor(const lw_executor* executor, lw_executor& checked);

}  // namespace lanewise
