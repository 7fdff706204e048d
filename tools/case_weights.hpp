// Attention weights of a problem from files, which neither the library nor the reference stores: both are run with
// values that are the identity matrix, so that out[i][j] is the weight of key j. For pictures and lessons: small and
// dense problems alone.
#pragma once

#include <cstdint>
#include <vector>

#include "problem_case.hpp"

namespace lanewise::tools {

// Most weights (batch x heads x queries x keys) computed at once.
inline constexpr int64_t kMostWeights = int64_t{1} << 22;

struct CaseWeights {
  int64_t batch, heads, q_len, kv_len;
  // [batch, heads, q_len, kv_len]
  std::vector<double> kernel;     // float32, widened
  std::vector<double> reference;  // float64
  std::vector<bool> visible;

  size_t row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>(((b * heads + h) * q_len + i) * kv_len);
  }
  bool undefined(int64_t b, int64_t h, int64_t i) const;  // NaN: a score was NaN or +inf
};

// `tensors` as for make_case; v is not looked at and may be missing. Throws Error where the problem is too large or
// not one of dense q, k.
CaseWeights weights_of_case(const TensorSet& tensors, const Flags& flags);

io::Tensor copy(const io::Tensor& tensor);

}  // namespace lanewise::tools
