// A host compiled with fast-math, or not (docs/RELIABILITY.md U05): attention of groups A and B, of rows that see nothing
// and of hidden NaN and infinities, through the header-only wrapper. Its own arithmetic is integers and copies, so that what
// differs between two builds of this file comes from the library or the headers.
#include <cstdint>
#include <cstring>
#include <vector>

#include "lanewise/lanewise.hpp"

namespace {

constexpr int64_t kHeads = 2, kQueries = 7, kKeys = 300, kDim = 20;
constexpr uint32_t kNan = 0x7fc00000, kInf = 0x7f800000, kMinusInf = 0xff800000;

void set_bits(float& value, uint32_t bits) { std::memcpy(&value, &bits, sizeof bits); }

struct Host {
  std::vector<float> q, k, v, bias;
  lw_problem problem = lw_problem_default();
  std::vector<int32_t> kv_lengths = {static_cast<int32_t>(kKeys)};

  Host() : q(kHeads * kQueries * kDim), k(kHeads * kKeys * kDim), v(k.size()), bias(kQueries * kKeys) {
    for (size_t n = 0; n < q.size(); ++n) q[n] = static_cast<float>(static_cast<int>(n * 37 % 64) - 32) / 32;
    for (size_t n = 0; n < k.size(); ++n) k[n] = static_cast<float>(static_cast<int>(n * 29 % 128) - 64) / 64;
    for (size_t n = 0; n < v.size(); ++n) v[n] = static_cast<float>(static_cast<int>(n * 53 % 256) - 128) / 128;
    problem.q_heads = problem.kv_heads = kHeads;
    problem.q_len = kQueries;
    problem.kv_len = kKeys;
    problem.qk_dim = problem.v_dim = kDim;
  }

  void spoil_key(int64_t key, uint32_t bits) {
    for (int64_t x = 0; x < kDim; ++x) {
      set_bits(k[static_cast<size_t>(key * kDim + x)], bits);
      set_bits(v[static_cast<size_t>(key * kDim + x)], bits);
    }
  }

  // Bits of out and lse.
  std::vector<uint32_t> run() {
    std::vector<float> out(q.size()), lse(kHeads * kQueries);
    lw_inputs inputs = lw_inputs_default();
    inputs.q = lanewise::TensorView<const float>::bhld(q.data(), kHeads, kQueries, kDim);
    inputs.k = lanewise::TensorView<const float>::bhld(k.data(), kHeads, kKeys, kDim);
    inputs.v = lanewise::TensorView<const float>::bhld(v.data(), kHeads, kKeys, kDim);
    inputs.kv_lengths = kv_lengths.data();
    if (problem.bias_type != LW_TYPE_NONE) {
      inputs.bias = lanewise::TensorView<const float>::bhld(bias.data(), 1, kQueries, kKeys);
      inputs.bias.stride[0] = inputs.bias.stride[1] = 0;
    }
    lw_outputs outputs = lw_outputs_default();
    outputs.out = lanewise::TensorView<float>::bhld(out.data(), kHeads, kQueries, kDim);
    outputs.lse = lanewise::TensorView<float>::bhl(lse.data(), kHeads, kQueries);
    const lw_status status = lw_attend(&problem, &inputs, &outputs, nullptr);
    std::vector<uint32_t> bits(out.size() + lse.size() + 1, static_cast<uint32_t>(status.code));
    std::memcpy(bits.data(), out.data(), out.size() * sizeof(float));
    std::memcpy(bits.data() + out.size(), lse.data(), lse.size() * sizeof(float));
    return bits;
  }
};

}  // namespace

// Bits of all results, one run behind another.
std::vector<uint32_t> HOST_NAME() {
  std::vector<uint32_t> all;
  const auto add = [&](Host& host) {
    for (const uint32_t bits : host.run()) all.push_back(bits);
  };
  Host plain;
  add(plain);
  Host empty;  // A09
  empty.kv_lengths[0] = 0;
  add(empty);
  Host more_queries;  // A07
  more_queries.kv_lengths[0] = 3;
  more_queries.problem.causal = 1;
  add(more_queries);
  for (const uint32_t content : {kNan, kInf, kMinusInf}) {  // B01, B09
    Host hidden;
    hidden.kv_lengths[0] = 250;
    hidden.spoil_key(250, content);
    add(hidden);
    Host by_bias;
    by_bias.problem.bias_type = LW_TYPE_F32;
    for (size_t n = 0; n < by_bias.bias.size(); ++n) {  // A01, A03: the first row sees nothing
      if (n / kKeys == 0 || n % kKeys == 5) set_bits(by_bias.bias[n], kMinusInf);
    }
    by_bias.spoil_key(5, content);
    add(by_bias);
  }
  Host tiny;  // values among the denormals, which fast-math switches off in a process it is linked into
  for (float& value : tiny.v) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    set_bits(value, (bits & 0x80000000) | ((bits & 0x007fffff) >> 3));
  }
  add(tiny);
  return all;
}
