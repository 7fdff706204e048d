// Three sequences that share a prefix (a system prompt) and decode one token each. The prefix is read once for all of
// them: their queries are rows of one problem over it. Two ways to put prefix and rest together:
//
//   merge      results (out, lse) of both, weighed by lse: any split, also over machines; right within rounding
//   continue   the rest starts from the prefix's state: the very bits of one run over all keys
//
//   c++ -std=c++17 main.cpp $(pkg-config --cflags --libs lanewise) -o prefix && ./prefix
#include <lanewise/lanewise.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t kBatch = 3, kHeads = 4, kDim = 32, kOwn = 70;
constexpr int64_t kPrefix = 4096;  // to continue from a state: a multiple of 4096 keys. To merge: any number

using View = lanewise::TensorView<float>;
using ConstView = lanewise::TensorView<const float>;

std::vector<float> random_numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed >> 8)) * 0x1p-23f - 1;
  }
  return numbers;
}

lanewise::Problem problem_of(int64_t batch, int64_t q_len, int64_t kv_len) {
  lanewise::Problem problem;
  problem.batch = batch;
  problem.q_heads = problem.kv_heads = kHeads;
  problem.q_len = q_len;
  problem.kv_len = kv_len;
  problem.qk_dim = problem.v_dim = kDim;
  return problem;
}

// Rows [batch, head, 1, dim] in memory, once as they are and once as the queries of a single sequence.
template <class Elem>
auto rows(Elem* data) {
  return lanewise::TensorView<Elem>::bhld(data, kHeads, 1, kDim);
}
template <class Elem>
auto rows_of_one_sequence(Elem* data) {
  return lanewise::TensorView<Elem>::strided(data, 0, kDim, kHeads * kDim, 1);
}
template <class Elem>
auto values(Elem* data) {  // lse and others without dim
  return lanewise::TensorView<Elem>::bhl(data, kHeads, 1);
}
template <class Elem>
auto values_of_one_sequence(Elem* data) {
  return lanewise::TensorView<Elem>::strided(data, 0, 1, kHeads, 0);
}

struct Result {
  std::vector<float> out = std::vector<float>(kBatch * kHeads * kDim), lse = std::vector<float>(kBatch * kHeads);
};

struct State {
  std::vector<float> max = std::vector<float>(kBatch * kHeads), sum = max,
                     acc = std::vector<float>(kBatch * kHeads * kDim);
};

}  // namespace

int main() {
  const std::vector<float> q = random_numbers(kBatch * kHeads * kDim, 1);
  // The prefix's keys and values [head, key, dim]; each sequence's own [batch, head, key, dim].
  const std::vector<float> prefix_k = random_numbers(kHeads * kPrefix * kDim, 2);
  const std::vector<float> prefix_v = random_numbers(kHeads * kPrefix * kDim, 3);
  const std::vector<float> own_k = random_numbers(kBatch * kHeads * kOwn * kDim, 4);
  const std::vector<float> own_v = random_numbers(kBatch * kHeads * kOwn * kDim, 5);

  // 1. The prefix, once: result and state.
  Result prefix, own, merged, continued, whole;
  State state;
  lanewise::Inputs inputs;
  inputs.q = rows_of_one_sequence(q.data());
  inputs.k = ConstView::bhld(prefix_k.data(), kHeads, kPrefix, kDim);
  inputs.v = ConstView::bhld(prefix_v.data(), kHeads, kPrefix, kDim);
  lanewise::Outputs outputs;
  outputs.out = rows_of_one_sequence(prefix.out.data());
  outputs.lse = values_of_one_sequence(prefix.lse.data());
  outputs.state_max = values_of_one_sequence(state.max.data());
  outputs.state_sum = values_of_one_sequence(state.sum.data());
  outputs.state_acc = rows_of_one_sequence(state.acc.data());
  lanewise::Status status = lanewise::attend(problem_of(1, kBatch, kPrefix), inputs, outputs);

  // 2. Each sequence's own keys, and both together by lw_merge.
  const auto over_own_keys = [&](Result& result) {
    inputs = lanewise::Inputs();
    inputs.q = rows(q.data());
    inputs.k = ConstView::bhld(own_k.data(), kHeads, kOwn, kDim);
    inputs.v = ConstView::bhld(own_v.data(), kHeads, kOwn, kDim);
    outputs = lanewise::Outputs();
    outputs.out = rows(result.out.data());
    outputs.lse = values(result.lse.data());
  };
  over_own_keys(own);
  if (status) status = lanewise::attend(problem_of(kBatch, 1, kOwn), inputs, outputs);
  const lw_const_tensor outs[] = {rows<const float>(prefix.out.data()), rows<const float>(own.out.data())};
  const lw_const_tensor lses[] = {values<const float>(prefix.lse.data()), values<const float>(own.lse.data())};
  outputs.out = rows(merged.out.data());
  outputs.lse = values(merged.lse.data());
  if (status) status = lanewise::merge(problem_of(kBatch, 1, kOwn), outs, lses, 2, outputs);

  // 3. The same keys again, continued from the prefix's state.
  const std::vector<int32_t> starts(kBatch, static_cast<int32_t>(kPrefix));
  over_own_keys(continued);
  inputs.kv_starts = starts.data();
  inputs.state_max = values<const float>(state.max.data());
  inputs.state_sum = values<const float>(state.sum.data());
  inputs.state_acc = rows<const float>(state.acc.data());
  if (status) status = lanewise::attend(problem_of(kBatch, 1, kOwn), inputs, outputs);

  // For comparison, each sequence with all of its keys copied behind one another.
  constexpr int64_t kAll = kPrefix + kOwn;
  std::vector<float> k(kBatch * kHeads * kAll * kDim), v(k.size());
  for (int64_t bh = 0; bh < kBatch * kHeads; ++bh) {
    const auto join = [&](const std::vector<float>& first, const std::vector<float>& second, std::vector<float>& all) {
      float* to = all.data() + bh * kAll * kDim;
      to = std::copy_n(first.data() + bh % kHeads * kPrefix * kDim, kPrefix * kDim, to);
      std::copy_n(second.data() + bh * kOwn * kDim, kOwn * kDim, to);
    };
    join(prefix_k, own_k, k);
    join(prefix_v, own_v, v);
  }
  over_own_keys(whole);
  inputs.k = ConstView::bhld(k.data(), kHeads, kAll, kDim);
  inputs.v = ConstView::bhld(v.data(), kHeads, kAll, kDim);
  if (status) status = lanewise::attend(problem_of(kBatch, 1, kAll), inputs, outputs);
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }

  float difference = 0;
  for (size_t i = 0; i < whole.out.size(); ++i) {
    difference = std::max(difference, std::fabs(merged.out[i] - whole.out[i]));
  }
  const bool same = std::memcmp(continued.out.data(), whole.out.data(), whole.out.size() * sizeof(float)) == 0 &&
                    std::memcmp(continued.lse.data(), whole.lse.data(), whole.lse.size() * sizeof(float)) == 0;
  std::printf("merged: within %.1e of one run over all keys; continued: %s\n", static_cast<double>(difference),
              same ? "its bits" : "other bits");
  return same && difference < 1e-6f ? 0 : 1;
}
