#include "prepared_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <hwy/base.h>

#include "onednn_case.hpp"

namespace lanewise::bench {
namespace {

size_t bytes_of(int32_t type, int64_t elements) { return static_cast<size_t>(element_size(type) * elements); }

// Uniform over +-sqrt(3), variance 1; few bits, so that every type holds the same numbers.
HugeBuffer random_tensor(int32_t type, int64_t elements, uint32_t seed) {
  HugeBuffer buffer(bytes_of(type, elements));
  uint32_t state = seed;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(state >> 24) - 128) * (1.75f / 128.0f);
    if (type == LW_TYPE_F32) {
      buffer.as<float>()[i] = value;
    } else if (type == LW_TYPE_BF16) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      buffer.as<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
    } else {
      const hwy::float16_t half = hwy::F16FromF32(value);
      std::memcpy(buffer.as<uint16_t>() + i, &half, sizeof half);
    }
  }
  return buffer;
}

template <class Tensor, class Elem>
Tensor tensor_of(Elem* data, int32_t type, bool tokens_first, bool transposed, int64_t heads, int64_t len,
                 int64_t dim) {
  Tensor tensor = Tensor();
  tensor.data = data;
  tensor.type = type;
  tensor.stride[0] = heads * len * dim;
  tensor.stride[1] = tokens_first && !transposed ? dim : len * dim;
  tensor.stride[2] = tokens_first ? heads * dim : dim;
  tensor.stride[3] = 1;
  if (transposed) {  // [batch, head, dim, len] whatever the other tensors are
    tensor.stride[2] = 1;
    tensor.stride[3] = len;
  }
  return tensor;
}

class LanewiseCase : public PreparedCase {
 public:
  LanewiseCase(const AttentionCase& c, Plan plan)
      : plan_(std::move(plan)),
        tensors_(c),
        workspace_(static_cast<size_t>(plan_.workspace_size(c.threads))),
        executor_(c.threads == 1 ? Executor::caller() : Executor::openmp(c.threads)),
        threads_(c.threads) {}

  Status first_run() { return run_once(); }
  void run() override { (void)run_once(); }

  std::string label() const override {
    const lw_explanation e = plan_.explain(threads_);
    return std::string(e.target) + " " + e.kernel + " " + std::to_string(e.tile_rows) + "x" +
           std::to_string(e.tile_keys);
  }

  std::vector<Region> read_regions() const override {
    return {{tensors_.k.data(), tensors_.k.size()}, {tensors_.v.data(), tensors_.v.size()}};
  }

 private:
  Status run_once() {
    return plan_.run(tensors_.inputs, tensors_.outputs, workspace_.data(), static_cast<int64_t>(workspace_.size()),
                     executor_);
  }

  Plan plan_;
  CaseTensors tensors_;
  HugeBuffer workspace_;
  Executor executor_;
  int32_t threads_;
};

}  // namespace

CaseTensors::CaseTensors(const AttentionCase& c)
    : q(random_tensor(c.q_type, c.batch * c.q_heads * c.q_len * c.qk_dim, 1)),
      k(random_tensor(c.kv_type, c.batch * c.kv_heads * c.kv_len * c.qk_dim, 2)),
      v(random_tensor(c.kv_type, c.batch * c.kv_heads * c.kv_len * c.v_dim, 3)),
      out(bytes_of(c.q_type, c.batch * c.q_heads * c.q_len * c.v_dim)) {
  inputs.q = tensor_of<lw_const_tensor>(q.data(), c.q_type, c.tokens_first, false, c.q_heads, c.q_len, c.qk_dim);
  inputs.k =
      tensor_of<lw_const_tensor>(k.data(), c.kv_type, c.tokens_first, c.k_transposed, c.kv_heads, c.kv_len, c.qk_dim);
  inputs.v =
      tensor_of<lw_const_tensor>(v.data(), c.kv_type, c.tokens_first, c.v_transposed, c.kv_heads, c.kv_len, c.v_dim);
  outputs.out =
      tensor_of<lw_tensor>(out.data(), c.q_type, c.tokens_first, c.out_transposed, c.q_heads, c.q_len, c.v_dim);
}

Problem problem_of(const AttentionCase& c) {
  Problem p;
  p.batch = c.batch;
  p.q_heads = c.q_heads;
  p.kv_heads = c.kv_heads;
  p.q_len = c.q_len;
  p.kv_len = c.kv_len;
  p.qk_dim = c.qk_dim;
  p.v_dim = c.v_dim;
  p.q_type = p.out_type = c.q_type;
  p.k_type = p.v_type = c.kv_type;
  p.arithmetic = c.arithmetic;
  p.causal = c.causal ? 1 : 0;
  p.window_left = c.window_left;
  p.window_right = c.window_right;
  return p;
}

std::unique_ptr<PreparedCase> prepare(const AttentionCase& c, std::string& problem) {
  if (c.onednn) return prepare_onednn(c, problem);
  Options options;
  options.target = c.target.c_str();
  Plan plan;
  Status status = Plan::make(problem_of(c), options, plan);
  std::unique_ptr<LanewiseCase> prepared;
  if (status) {
    prepared = std::make_unique<LanewiseCase>(c, std::move(plan));
    status = prepared->first_run();
  }
  if (status) return prepared;
  problem = status.message();
  return nullptr;
}

double seconds_of(PreparedCase& prepared, int64_t runs, Clock clock) {
  const double start = now(clock);
  for (int64_t i = 0; i < runs; ++i) prepared.run();
  return (now(clock) - start) / static_cast<double>(runs);
}

int64_t runs_worth_timing(PreparedCase& prepared) {
  constexpr double kEnough = 200e-6;
  (void)seconds_of(prepared, 1);
  const double once = std::min(seconds_of(prepared, 1), seconds_of(prepared, 1));
  return std::max<int64_t>(1, std::llround(kEnough / std::max(once, 1e-8)));
}

}  // namespace lanewise::bench
