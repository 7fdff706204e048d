// From tensors and flags to what the library takes: the problem, the inputs and the memory they point into. Checks that
// shapes and types fit each other, since the library sees no shapes; everything else (values, limits, what is
// supported) is left to it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flags.hpp"
#include "lanewise/lanewise.hpp"
#include "placed.hpp"
#include "tensor_set.hpp"

namespace lanewise::tools {

// May be moved, not copied: inputs point into the tensors.
struct ProblemCase {
  lanewise::Problem problem;
  lanewise::Inputs inputs;
  Placed q, k, v, mask, bias, state_max, state_sum, state_acc;
  std::map<std::string, io::Tensor> arrays;  // lengths, offsets, page table, slopes ...
  // What a run writes: out and state_acc, and without the dim axis lse, state_max and state_sum.
  std::vector<int64_t> out_shape, lse_shape;
  Axes axes = {-1, -1, -1, -1};  // of out_shape
  io::Type out_type = io::Type::f32;

  Axes row_axes() const { return {axes[0], axes[1], axes[2], -1}; }  // of lse_shape

  ProblemCase() = default;
  ProblemCase(ProblemCase&&) = default;
  ProblemCase& operator=(ProblemCase&&) = default;
};

// Throws Error with one line that names the tensor or flag.
ProblemCase make_case(TensorSet tensors, const Flags& flags);

// For a plan without tensors: batch, q_heads, kv_heads, q_len, kv_len, qk_dim, v_dim, and the flags that need no
// tensor.
lanewise::Problem make_problem(const std::vector<int64_t>& sizes, const Flags& flags);

// The standard slopes (Press et al., "Train Short, Test Long", and its code for other head counts than powers of two):
// 2^(-8i/n) for the n heads of the closest lower power of two, then every other slope of 2n heads.
std::vector<float> standard_slopes(int64_t heads);

// Query rows and keys of a sequence, and where query 0 stands.
struct SequenceSizes {
  int64_t q_len, kv_len, kv_start, q_offset;
};
SequenceSizes sequence_sizes(const ProblemCase& c, int64_t b);

// Visible scores of all heads, by length, causal, window and prefix; masks and biases are not looked at. For rates.
double visible_scores(const ProblemCase& c);

}  // namespace lanewise::tools
