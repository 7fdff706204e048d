// Scores and weights of plain heads (no rules), by the library's kernels and by the float64 reference. The library
// stores neither, so both are asked for in a form that shows them:
//   a score   is the lse of a row that sees that one key (the log of a sum with one term);
//   a weight  is what comes out for values that are the identity matrix: out[i][j] = sum over n of weight[i][n] [n =
//   j].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"

namespace lanewise::lessons {

// float32, row-major: q [batch, q_len, dim], k [batch, kv_len, dim]. Query i of sequence b meets the keys of sequence
// b.
struct Heads {
  int64_t batch = 1, q_len = 1, kv_len = 1, dim = 1;
  const float* q = nullptr;
  const float* k = nullptr;
  float scale = 1;
};

struct Both {
  std::vector<double> kernel;  // float32, widened
  std::vector<double> reference;
};

// [batch, q_len, kv_len] both. target: one of lw_target_name; empty: the library's choice. Throw io::Error with the
// library's message.
Both scores_of(const Heads& heads, const std::string& target = "");
Both weights_of(const Heads& heads, const std::string& target = "");

// softmax of given scores: a query 1 and keys of one component each.
Both softmax_of(const std::vector<float>& scores, const std::string& target = "");

// The kernel's state of one query (no scale: heads.scale is used) over keys first ... first + count - 1, as the library
// hands it on: probs are 2^(score log2e - row_max) and row_max is an integer.
struct State {
  float row_max, row_sum;
  std::vector<float> acc;  // [v_dim]
};
State state_of(const Heads& heads, const std::vector<float>& v, int64_t v_dim, int64_t first, int64_t count,
               const std::string& target = "");

// What the library does with the states of two blocks (docs/NUMERICS.md): everything is brought to the larger maximum
// by powers of two, which are exact.
State merge(const State& a, const State& b);

// Runs a problem on the calling thread.
void run(const lw_problem& problem, const lw_inputs& inputs, const lw_outputs& outputs, const std::string& target);

}  // namespace lanewise::lessons
