// A bench case and its name, which says everything about it:
//
//   attention/<q type>_<kv
//   type>/<arithmetic>/<rule>/q<q_len>_kv<kv_len>/b<batch>_h<q_heads>_<kv_heads>/d<dim>/<layout>/<target>/t<threads>
//
//   types       f32, bf16, f16
//   arithmetic  canonical, native_bf16
//   rule        full, causal, window<left>_<right> (-1: open); several are joined by a dot: causal.window127_-1
//   dim         one number, or <qk_dim>_<v_dim>
//   layout      bhld or blhd, then any of _kt, _vt, _ot: K, V or the output with len as its last axis
//   target      AVX3_ZEN4, AVX2, ...
// The same problem by oneDNN's matmul, softmax, matmul is called onednn/.../matmul/.../onednn/t<threads>.
#pragma once

#include <cstdint>
#include <string>

#include "lanewise/lanewise.h"

namespace lanewise::bench {

struct AttentionCase {
  bool onednn = false;
  int32_t q_type = LW_TYPE_F32, kv_type = LW_TYPE_F32;
  int32_t arithmetic = LW_ARITHMETIC_CANONICAL;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;
  int64_t q_len = 1, kv_len = 1;
  int64_t batch = 1, q_heads = 1, kv_heads = 1;
  int64_t qk_dim = 64, v_dim = 64;
  bool tokens_first = false;  // blhd
  bool k_transposed = false, v_transposed = false, out_transposed = false;
  std::string target;
  int32_t threads = 1;
};

std::string name_of(const AttentionCase& c);

// The inverse: false if `name` is not exactly a case's name.
bool parse_name(const std::string& name, AttentionCase& c);

int64_t element_size(int32_t type);  // bytes

// Pairs of query and key that the rules let see each other, over all heads and sequences.
double visible_scores(const AttentionCase& c);

// Multiply-adds of visible scores, as two operations each.
double flops_of(const AttentionCase& c);

// Bytes of the keys and values that some query sees.
double key_bytes_of(const AttentionCase& c);

}  // namespace lanewise::bench
