// Every rule, alone and in pairs, on every storage and in both kernels: the canonical arithmetic bit for bit, and the
// reference within its bound.
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <vector>

#include "support/canonical.hpp"
#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// 1 with probability `share`.
Array flags(const Shape& shape, uint64_t stream, float share) {
  Array array = random_array(shape, stream);
  for (float& x : array.values) x = x < 2 * share - 1 ? 1.0f : 0.0f;
  return array;
}

struct Rule {
  const char* name;
  void (*add)(Case&, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len);
};

// As many as pairs can be made of in a minute: each sees many of the library's branches.
const std::vector<Rule>& rules() {
  static const std::vector<Rule> list = {
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

const char* const kStorages[] = {"dense", "strided", "ragged", "paged"};

// `which` of kStorages.
void store(Case& c, size_t which) {
  if (which == 1) c.layouts(Layout::kBlhd, Layout::kTransposed, Layout::kSpread, Layout::kPaddedRows);
  if (which == 2) c.ragged_q().ragged_kv();
  if (which == 3) c.paged(7);
}

void check(const std::string& name, Case c) {
  INFO(name);
  const Expectation expected(c);
  const Result right = canonical(Case(c).dense().prepare());
  CHECK(expected.difference(right) == "");
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), 1e38f}) {
    Prepared p = c.prepare(poison == 1e38f ? Edge::kStart : Edge::kEnd, poison);
    for_each_target([&](const std::string& target) {
      Result result = run_prepared(p, {target, poison == 1e38f ? 7 : 1});
      INFO(target << ", poison " << poison);
      CHECK(result.damage == "");
      CHECK(expected.difference(result) == "");
      if (has_fma(target)) CHECK(bit_difference(right, result) == "");
    });
  }
}

TEST_CASE("each rule follows the canonical arithmetic on each storage, in both kernels") {
  for (const Rule& rule : rules()) {
    for (size_t storage = 0; storage < 4; ++storage) {
      for (const int64_t q_len : {2, 60}) {
        Case c = Case().batch(2).heads(4, 2).len(q_len, 300).dims(9, 7);
        c.kv_lengths({300, 211});
        if (q_len > 2) c.q_lengths({60, 33});
        rule.add(c, 2, 4, q_len, 300);
        store(c, storage);
        check(std::string(rule.name) + ", " + kStorages[storage] + ", " + std::to_string(q_len), c);
      }
    }
  }
}

TEST_CASE("pairs of rules follow the canonical arithmetic") {
  size_t n = 0;
  for (size_t a = 0; a < rules().size(); ++a) {
    for (size_t b = a + 1; b < rules().size(); ++b, ++n) {
      for (const int64_t q_len : {2, 50}) {
        Case c = Case().batch(2).heads(4, 2).len(q_len, 290).dims(8);
        c.kv_lengths({290, 130});
        rules()[a].add(c, 2, 4, q_len, 290);
        rules()[b].add(c, 2, 4, q_len, 290);
        const size_t storage = (n + (q_len > 2)) % 4;
        store(c, storage);
        const int32_t types[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};
        c.types(types[n % 3], types[(n + a) % 3], LW_TYPE_F32);
        check(std::string(rules()[a].name) + " and " + rules()[b].name + ", " + kStorages[storage] + ", " +
                  std::to_string(q_len),
              c);
      }
    }
  }
}

}  // namespace
}  // namespace lanewise::test
