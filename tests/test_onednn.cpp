// An independent opinion: matmul, softmax, matmul, with the matmuls from oneDNN and the softmax in plain double. It
// agrees with the reference and with the library, so neither's idea of attention is only its own.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <dnnl.hpp>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

using Memory = dnnl::memory;

// c[rows, columns] = a[rows, inner] b, where b is [inner, columns] or its transpose in memory. float32, row-major.
class Matmul {
 public:
  Matmul(const dnnl::engine& engine, int64_t rows, int64_t inner, int64_t columns, bool b_is_transposed)
      : a_({rows, inner}, Memory::data_type::f32, Memory::format_tag::ab),
        b_({inner, columns}, Memory::data_type::f32, b_is_transposed ? Memory::format_tag::ba : Memory::format_tag::ab),
        c_({rows, columns}, Memory::data_type::f32, Memory::format_tag::ab),
        engine_(engine),
        primitive_(description()) {}

  void operator()(dnnl::stream& stream, const float* a, const float* b, float* c) const {
    primitive_.execute(stream, {{DNNL_ARG_SRC, Memory(a_, engine_, const_cast<float*>(a))},
                                {DNNL_ARG_WEIGHTS, Memory(b_, engine_, const_cast<float*>(b))},
                                {DNNL_ARG_DST, Memory(c_, engine_, c)}});
    stream.wait();
  }

 private:
  dnnl::matmul::primitive_desc description() const {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl::matmul::primitive_desc(engine_, a_, b_, c_);
#else
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_, b_, c_), engine_);
#endif
  }

  Memory::desc a_, b_, c_;
  dnnl::engine engine_;
  dnnl::matmul primitive_;
};

struct Attention {
  Array out, lse;
};

// Bottom-right causal or none; dense, row-major.
Attention attend_with_onednn(Case& c, bool causal) {
  const Array &q = c.q(), &k = c.k(), &v = c.v();
  const int64_t q_len = q.shape[2], kv_len = k.shape[2], group = q.shape[1] / k.shape[1];
  const double scale = 1 / std::sqrt(static_cast<double>(q.shape[3]));
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const Matmul scores_of(engine, q_len, q.shape[3], kv_len, true), mix(engine, q_len, kv_len, v.shape[3], false);
  Attention result = {Array({q.shape[0], q.shape[1], q_len, v.shape[3]}), Array({q.shape[0], q.shape[1], q_len, 1})};
  std::vector<float> scores(static_cast<size_t>(q_len * kv_len));
  for (int64_t b = 0; b < q.shape[0]; ++b) {
    for (int64_t h = 0; h < q.shape[1]; ++h) {
      scores_of(stream, &q.values[q.index(b, h, 0)], &k.values[k.index(b, h / group, 0)], scores.data());
      for (int64_t i = 0; i < q_len; ++i) {
        float* row = &scores[static_cast<size_t>(i * kv_len)];
        const int64_t visible = causal ? std::min(kv_len, kv_len - q_len + i + 1) : kv_len;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < visible; ++j) top = std::max(top, scale * static_cast<double>(row[j]));
        for (int64_t j = 0; j < visible; ++j) sum += std::exp(scale * static_cast<double>(row[j]) - top);
        result.lse.at(b, h, i) = static_cast<float>(top + std::log(sum));
        for (int64_t j = 0; j < kv_len; ++j) {
          row[j] = j < visible ? static_cast<float>(std::exp(scale * static_cast<double>(row[j]) - top) / sum) : 0.0f;
        }
      }
      mix(stream, scores.data(), &v.values[v.index(b, h / group, 0)], &result.out.values[result.out.index(b, h, 0)]);
    }
  }
  return result;
}

struct Subject {
  const char* name;
  Case c;
  bool causal;
};

// oneDNN rounds like any float32 computation: products into scores, weights once, a sum over keys. That is the bound of
// docs/NUMERICS.md (chain and blocks), so it is held to the same as the library, and the two to twice that.
TEST_CASE("oneDNN, the reference and the library agree") {
  std::vector<Subject> subjects = {
      {"full", Case().batch(2).heads(4, 4).len(60, 200).dims(64), false},
      {"grouped causal", Case().heads(6, 2).len(100, 300).dims(80, 48).causal(), true},
      {"square causal", Case().heads(2, 2).len(256, 256).dims(128).causal(), true},
      {"decode", Case().batch(3).heads(8, 1).len(1, 1000).dims(64), false},
      {"large scores", Case().heads(2, 1).len(40, 333).dims(32).amplitudes(20, 20, 5), false},
      {"tiny", Case().heads(1, 1).len(1, 1).dims(1), false},
  };
  for (Subject& subject : subjects) {
    const Attention other = attend_with_onednn(subject.c, subject.causal);
    const Expectation expected(subject.c);
    Result as_result;
    as_result.status = {LW_OK, ""};
    as_result.out = other.out;
    as_result.lse = other.lse;
    INFO(subject.name);
    CHECK(expected.difference(as_result) == "");
    const Prepared p = subject.c.prepare();
    for_each_target([&](const std::string& target) {
      const Result result = subject.c.run({target});
      CHECK(expected.difference(result) == "");
      REQUIRE(result.out.values.size() == other.out.values.size());
      for (size_t n = 0; n < result.out.values.size(); ++n) {
        const size_t row = n / static_cast<size_t>(p.problem.v_dim);
        const double bound = 2 * out_bound(p.problem, expected.reference_result(), row);
        const double value = static_cast<double>(result.out.values[n]),
                     theirs = static_cast<double>(other.out.values[n]);
        if (!agrees(value, theirs, bound))
          FAIL("element " << n << " on " << target << ": " << value << " and " << theirs);
      }
    });
  }
}

}  // namespace
}  // namespace lanewise::test
