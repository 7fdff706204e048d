#include "rule_list.hpp"

#include <algorithm>
#include <limits>

#include "rnd.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// 1 with probability `share`.
Array flags(const Shape& shape, uint64_t stream, float share) {
  Array array = random_array(shape, stream);
  for (float& x : array.values) x = x < 2 * share - 1 ? 1.0f : 0.0f;
  return array;
}

}  // namespace

const std::vector<NamedRule>& rule_list() {
  static const std::vector<NamedRule> list = {
      {"causal", [](Case& c, int64_t, int64_t, int64_t, int64_t) { c.causal(); }},
      {"window", [](Case& c, int64_t, int64_t, int64_t, int64_t) { c.window(19, 7); }},
      {"prefix", [](Case& c, int64_t, int64_t, int64_t, int64_t) { c.causal().window(11, -1).prefix(5); }},
      {"q_positions",
       [](Case& c, int64_t batch, int64_t, int64_t q_len, int64_t kv_len) {
         std::vector<int32_t> positions;
         for (int64_t n = 0; n < batch * q_len; ++n)
           positions.push_back(static_cast<int32_t>((rnd(77, uint64_t(n)) + 1) / 2 * static_cast<float>(kv_len)));
         c.causal().q_positions(positions);
       }},
      {"softcap", [](Case& c, int64_t, int64_t, int64_t, int64_t) { c.softcap(0.7f); }},
      {"alibi",
       [](Case& c, int64_t, int64_t heads, int64_t, int64_t) {
         std::vector<float> slopes;
         for (int64_t h = 0; h < heads; ++h) slopes.push_back(0.3f / static_cast<float>(h + 1));
         c.alibi(slopes);
       }},
      {"mask",
       [](Case& c, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) {
         c.mask(flags({batch, heads, q_len, kv_len}, 31, 0.6f));
       }},
      {"shared mask",
       [](Case& c, int64_t batch, int64_t, int64_t, int64_t kv_len) {
         c.mask(flags({batch, 1, 1, kv_len}, 32, 0.4f), LW_TYPE_BITS);
       }},
      {"tail mask",
       [](Case& c, int64_t, int64_t, int64_t q_len, int64_t kv_len) {
         c.tail_mask(flags({1, 1, q_len, std::min<int64_t>(kv_len, 37)}, 33, 0.5f), LW_TYPE_BITS);
       }},
      {"bias",
       [](Case& c, int64_t, int64_t heads, int64_t q_len, int64_t kv_len) {
         Array bias = random_array({1, heads, q_len, kv_len}, 34, 2);
         for (size_t n = 0; n < bias.values.size(); n += 7) bias.values[n] = n % 2 ? -kInf : -3.4028235e38f;
         c.bias(bias);
       }},
      {"bf16 bias",
       [](Case& c, int64_t batch, int64_t, int64_t, int64_t kv_len) {
         c.bias(random_array({batch, 1, 1, kv_len}, 35), LW_TYPE_BF16, Layout::kSpread);
       }},
      {"block mask",
       [](Case& c, int64_t, int64_t heads, int64_t q_len, int64_t kv_len) {
         c.block_mask(16, 24, flags({1, heads, (q_len + 15) / 16, (kv_len + 23) / 24}, 36, 0.5f));
       }},
      {"sinks",
       [](Case& c, int64_t, int64_t heads, int64_t, int64_t) {
         std::vector<float> sinks;
         for (int64_t h = 0; h < heads; ++h) sinks.push_back(static_cast<float>(h) - 1);
         c.sinks(sinks);
       }},
  };
  return list;
}

}  // namespace lanewise::test
