// A bench case and its name, which says everything about it:
//
//   <what>/<types>/<arithmetic>/<rule>/q<q_len>_kv<kv_len>/b<batch>_h<q_heads>_<kv_heads>/d<dim>/<layout>/<target>/t<n>
//
//   what        attention; column_sums, row_statistics (maxima and entropies) or weights: those alone, by
//               lw_run_statistics from a run's lse
//   types       <q type>_<kv type>: f32, bf16, f16
//   arithmetic  canonical, native_bf16
//   rule        full, causal, window<left>_<right> (-1: open), mask<n> (bool, for all heads, n % of its 128 x 128 tiles
//               hidden), bias, bias_bf16, bias_f16 (one a head), softcap, alibi, sinks; several are joined by a dot: causal.window127_-1
//   batch       sequences; <n>+<m>: ragged, n sequences as the lengths say and m of one query each, their keys kv_len / 1,
//               / 2, ... / 128 in turns
//   dim         one number, or <qk_dim>_<v_dim>
//   layout      bhld or blhd, then any of _kt, _vt, _ot: K, V or the output with len as its last axis; _page<size>: K and V
//               in pages of so many keys, in random order; _vink: V is the first v_dim dims of K's rows
//   target      AVX3_ZEN4, AVX2, ...; .keys or .rows: all panels by that kernel, where it can
//   n           threads
// The same problem by oneDNN's matmul, softmax, matmul is called onednn/.../matmul/.../onednn/t<threads>.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lanewise/lanewise.h"

namespace lanewise::bench {

enum class Kernel { kChosen, kKeysInLanes, kRowsInLanes };

enum class Computes { kAttention, kColumnSums, kRowStatistics, kWeights };

struct AttentionCase {
  Computes computes = Computes::kAttention;
  bool onednn = false;
  int32_t q_type = LW_TYPE_F32, kv_type = LW_TYPE_F32;
  int32_t arithmetic = LW_ARITHMETIC_CANONICAL;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;
  int64_t masked_percent = -1;  // -1: no mask
  int32_t bias_type = LW_TYPE_NONE;
  bool softcap = false, alibi = false, sinks = false;
  int64_t q_len = 1, kv_len = 1;
  int64_t batch = 1, q_heads = 1, kv_heads = 1;
  int64_t decodes = 0;  // further sequences of one query
  int64_t qk_dim = 64, v_dim = 64;
  bool tokens_first = false;  // blhd
  bool k_transposed = false, v_transposed = false, out_transposed = false;
  int64_t page_size = 0;  // 0: no pages
  bool v_in_k = false;
  Kernel kernel = Kernel::kChosen;
  std::string target;
  int32_t threads = 1;
};

std::string name_of(const AttentionCase& c);

// The inverse: false if `name` is not exactly a case's name.
bool parse_name(const std::string& name, AttentionCase& c);

int64_t element_size(int32_t type);  // bytes

// The sequences of a case, one after the other.
struct Sequence {
  int64_t q_len, kv_len;
};
std::vector<Sequence> sequences_of(const AttentionCase& c);

// Pairs of query and key that the rules let see each other, over all heads and sequences.
double visible_scores(const AttentionCase& c);

// Multiply-adds of visible scores (and values), as two operations each.
double flops_of(const AttentionCase& c);

// Bytes of the keys (and values) that some query sees.
double key_bytes_of(const AttentionCase& c);

}  // namespace lanewise::bench
