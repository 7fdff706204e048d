#include "onednn_case.hpp"

#ifdef LANEWISE_ONEDNN_MAJOR

#include <cmath>
#include <unordered_map>

#include <dnnl.hpp>

#include "case_tensors.hpp"
#include "huge_buffer.hpp"

#if defined(_OPENMP)
#include <omp.h>  // oneDNN takes its number of threads from the runtime alone
#endif

namespace lanewise::bench {
namespace {

using dnnl::memory;

memory::desc descriptor(const int64_t* stride, int64_t batch, int64_t heads, int64_t rows, int64_t columns,
                        bool transposed) {
  memory::dims dims = {batch, heads, rows, columns};
  memory::dims strides = {stride[0], stride[1], stride[2], stride[3]};
  if (transposed) {
    std::swap(dims[2], dims[3]);
    std::swap(strides[2], strides[3]);
  }
  return memory::desc(dims, memory::data_type::f32, strides);
}

dnnl::matmul make_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                         const memory::desc& c, float scale) {
  dnnl::primitive_attr attributes;
  if (scale != 1.0f) {
    dnnl::post_ops scaling;
#if LANEWISE_ONEDNN_MAJOR >= 3
    scaling.append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
#else
    scaling.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, scale, 0.0f);
#endif
    attributes.set_post_ops(scaling);
  }
#if LANEWISE_ONEDNN_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine, a, b, c, attributes));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine));
#endif
}

dnnl::softmax_forward make_softmax(const dnnl::engine& engine, const memory::desc& scores) {
#if LANEWISE_ONEDNN_MAJOR >= 3
  return dnnl::softmax_forward(dnnl::softmax_forward::primitive_desc(
      engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, scores, scores, 3));
#else
  return dnnl::softmax_forward(dnnl::softmax_forward::primitive_desc(
      dnnl::softmax_forward::desc(dnnl::prop_kind::forward_inference, scores, 3), engine));
#endif
}

class OneDnnCase : public PreparedCase {
 public:
  explicit OneDnnCase(const AttentionCase& c)
      : threads_(c.threads),
        tensors_(c),
        scores_(static_cast<size_t>(c.batch * c.q_heads * c.q_len * c.kv_len) * sizeof(float)) {
    set_threads();
    const int64_t score_stride[4] = {c.q_heads * c.q_len * c.kv_len, c.q_len * c.kv_len, c.kv_len, 1};
    const Inputs& in = tensors_.inputs;
    const memory::desc q = descriptor(in.q.stride, c.batch, c.q_heads, c.q_len, c.qk_dim, false);
    const memory::desc k = descriptor(in.k.stride, c.batch, c.q_heads, c.kv_len, c.qk_dim, true);
    const memory::desc v = descriptor(in.v.stride, c.batch, c.q_heads, c.kv_len, c.v_dim, false);
    const memory::desc out = descriptor(tensors_.outputs.out.stride, c.batch, c.q_heads, c.q_len, c.v_dim, false);
    const memory::desc scores = descriptor(score_stride, c.batch, c.q_heads, c.q_len, c.kv_len, false);
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.qk_dim));
    const memory q_memory(q, engine_, tensors_.q.data()), k_memory(k, engine_, tensors_.k.data());
    const memory v_memory(v, engine_, tensors_.v.data()), out_memory(out, engine_, tensors_.out.data());
    const memory score_memory(scores, engine_, scores_.data());
    steps_ = {
        {make_matmul(engine_, q, k, scores, scale),
         {{DNNL_ARG_SRC, q_memory}, {DNNL_ARG_WEIGHTS, k_memory}, {DNNL_ARG_DST, score_memory}}},
        {make_softmax(engine_, scores), {{DNNL_ARG_SRC, score_memory}, {DNNL_ARG_DST, score_memory}}},
        {make_matmul(engine_, scores, v, out, 1.0f),
         {{DNNL_ARG_SRC, score_memory}, {DNNL_ARG_WEIGHTS, v_memory}, {DNNL_ARG_DST, out_memory}}},
    };
  }

  void run() override {
    set_threads();
    for (Step& step : steps_) step.primitive.execute(stream_, step.arguments);
    stream_.wait();
  }
  std::string label() const override { return "oneDNN matmul, softmax, matmul"; }
  std::vector<Region> read_regions() const override {
    return {{tensors_.k.data(), tensors_.k.size()}, {tensors_.v.data(), tensors_.v.size()}};
  }

 private:
  struct Step {
    dnnl::primitive primitive;
    std::unordered_map<int, memory> arguments;
  };

  void set_threads() const {
#if defined(_OPENMP)
    omp_set_num_threads(threads_);
#endif
  }

  int32_t threads_;
  CaseTensors tensors_;
  HugeBuffer scores_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Step> steps_;
};

}  // namespace

std::unique_ptr<PreparedCase> prepare_onednn(const AttentionCase& c, std::string& problem) {
  if (c.causal || c.window_left >= 0 || c.window_right >= 0 || c.q_heads != c.kv_heads || c.q_type != LW_TYPE_F32 ||
      c.kv_type != LW_TYPE_F32) {
    problem = "three oneDNN primitives do full attention on float32 without grouped heads";
    return nullptr;
  }
  try {
    auto prepared = std::make_unique<OneDnnCase>(c);
    prepared->run();
    return prepared;
  } catch (const dnnl::error& error) {
    problem = error.what();
    return nullptr;
  }
}

}  // namespace lanewise::bench

#else

namespace lanewise::bench {
std::unique_ptr<PreparedCase> prepare_onednn(const AttentionCase&, std::string& problem) {
  problem = "this build has no oneDNN";
  return nullptr;
}
}  // namespace lanewise::bench

#endif  // LANEWISE_ONEDNN_MAJOR
