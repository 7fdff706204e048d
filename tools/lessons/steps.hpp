// The pieces of `lanewise worked-example` that can be tested as numbers: the online softmax key by key and block by
// block, and what happens without subtracting the row maximum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lessons/attention.hpp"

namespace lanewise::lessons {

// The online softmax over single keys, in double: what every attention kernel does, with blocks of one key.
struct OnlineStep {
  double score;
  double row_max;  // so far
  double rescale;  // exp(old maximum - new maximum): what sum and acc so far are multiplied by; 0 at the first key
  double row_sum;
  std::vector<double> acc;  // unnormalised output so far
};
// scores [keys], v [keys, v_dim].
std::vector<OnlineStep> online_softmax(const std::vector<double>& scores, const std::vector<double>& v, size_t v_dim);

// softmax with and without subtracting the largest score.
struct Overflow {
  float score;
  float naive_float;    // exp(score) in float32
  double naive_double;  // and in double
  double shifted;       // exp(score - largest)
  double naive_weight;  // naive_float / sum of naive_float
  double weight, weight_reference;
};
std::vector<Overflow> overflow_study(const std::vector<float>& scores, const std::string& target);

// One query over 1,024 seeded keys, d_k 64, in the library's blocks of 256, whose scores grow from block to block.
struct BlockStep {
  State block;                // of the block alone, from the kernel
  State merged;               // of the blocks so far
  double rescale;             // 2^(old row_max - new row_max)
  double lse, lse_reference;  // over the keys so far
};
struct BlockStudy {
  std::vector<BlockStep> steps;
  State whole;     // from one run of the kernel over all keys
  bool same_bits;  // of merged and whole
};
BlockStudy block_study(uint64_t seed, const std::string& target);

}  // namespace lanewise::lessons
