// A decoder with a paged cache, token by token: each step appends the new token's keys and values to the cache and lets
// its queries see all keys so far. Pages are taken from a pool as a sequence grows and lie in any order.
//
//   c++ -std=c++17 main.cpp $(pkg-config --cflags --libs lanewise) -o decode && ./decode
#include <lanewise/lanewise.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr int64_t kHeads = 8, kKvHeads = 2, kDim = 64, kTokens = 50, kPageSize = 16, kPages = 4;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::vector<float> random_numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed >> 8)) * 0x1p-23f - 1;
  }
  return numbers;
}

// [page, kv head, token in page, dim]
lw_tensor cache_view(float* pool) {
  return lanewise::TensorView<float>::strided(pool, kKvHeads * kPageSize * kDim, kPageSize * kDim, kDim, 1);
}

lw_const_tensor to_read(const lw_tensor& tensor) {
  return lanewise::TensorView<const float>::strided(static_cast<const float*>(tensor.data), tensor.stride[0],
                                                    tensor.stride[1], tensor.stride[2], tensor.stride[3]);
}

}  // namespace

int main() {
  // What a model would compute: queries, keys and values of all tokens, [token, head, dim].
  const std::vector<float> q = random_numbers(kTokens * kHeads * kDim, 1);
  const std::vector<float> k = random_numbers(kTokens * kKvHeads * kDim, 2);
  const std::vector<float> v = random_numbers(kTokens * kKvHeads * kDim, 3);
  std::vector<float> decoded(q.size()), prefilled(q.size());

  std::vector<float> k_pool(kPages * kKvHeads * kPageSize * kDim), v_pool(k_pool.size());
  const lw_tensor k_cache = cache_view(k_pool.data()), v_cache = cache_view(v_pool.data());
  const int32_t free_pages[kPages] = {2, 0, 3, 1};
  int32_t page_table[kPages] = {-1, -1, -1, -1};  // -1: not taken yet, and never looked at

  // The plan is for the largest cache; each step says how long it is now.
  lanewise::Problem problem;
  problem.q_heads = kHeads;
  problem.kv_heads = kKvHeads;
  problem.q_len = 1;
  problem.kv_len = kPages * kPageSize;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1;
  problem.kv_layout = LW_LAYOUT_PAGED;
  problem.page_size = kPageSize;
  problem.page_count = kPages;
  lanewise::Plan plan;
  lanewise::Status status = lanewise::Plan::make(problem, plan);
  const int64_t size = plan.workspace_size(2);
  const std::unique_ptr<void, Free> workspace(std::aligned_alloc(64, static_cast<size_t>(size)));

  for (int32_t token = 0; token < kTokens && status; ++token) {
    int32_t& page = page_table[token / kPageSize];
    if (page < 0) page = free_pages[token / kPageSize];
    const int32_t slot = page * static_cast<int32_t>(kPageSize) + token % static_cast<int32_t>(kPageSize);
    const auto row = [&](const std::vector<float>& all, int64_t heads) {
      return lanewise::TensorView<const float>::blhd(all.data() + token * heads * kDim, heads, 1, kDim);
    };
    status = lanewise::append(k_cache, kPages, kPageSize, kKvHeads, kDim, row(k, kKvHeads), 1, &slot);
    if (status) status = lanewise::append(v_cache, kPages, kPageSize, kKvHeads, kDim, row(v, kKvHeads), 1, &slot);

    const int32_t length = token + 1;
    lanewise::Inputs inputs;
    inputs.q = row(q, kHeads);
    inputs.k = to_read(k_cache);
    inputs.v = to_read(v_cache);
    inputs.kv_lengths = &length;
    inputs.page_table = page_table;
    inputs.page_table_stride[0] = kPages;
    inputs.page_table_stride[1] = 1;
    lanewise::Outputs outputs;
    outputs.out = lanewise::TensorView<float>::blhd(decoded.data() + token * kHeads * kDim, kHeads, 1, kDim);
    if (status) status = plan.run(inputs, outputs, workspace.get(), size);
  }

  // One causal prefill over all tokens gives the same bits, so an engine may mix both as it likes.
  lanewise::Problem whole;
  whole.q_heads = kHeads;
  whole.kv_heads = kKvHeads;
  whole.q_len = whole.kv_len = kTokens;
  whole.qk_dim = whole.v_dim = kDim;
  whole.causal = 1;
  lanewise::Inputs inputs;
  inputs.q = lanewise::TensorView<const float>::blhd(q.data(), kHeads, kTokens, kDim);
  inputs.k = lanewise::TensorView<const float>::blhd(k.data(), kKvHeads, kTokens, kDim);
  inputs.v = lanewise::TensorView<const float>::blhd(v.data(), kKvHeads, kTokens, kDim);
  lanewise::Outputs outputs;
  outputs.out = lanewise::TensorView<float>::blhd(prefilled.data(), kHeads, kTokens, kDim);
  if (status) status = lanewise::attend(whole, inputs, outputs);
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  const bool same = std::memcmp(decoded.data(), prefilled.data(), decoded.size() * sizeof(float)) == 0;
  std::printf("%d tokens decoded through %d pages: %s\n", static_cast<int>(kTokens), static_cast<int>(kPages),
              same ? "the bits of one prefill" : "other bits than one prefill");
  return same ? 0 : 1;
}
