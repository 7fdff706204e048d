#include "case_weights.hpp"

#include <cmath>
#include <cstring>

#include "check.hpp"
#include "command.hpp"
#include "run_case.hpp"

namespace lanewise::tools {
namespace {

// Values that are the identity matrix, for each sequence and head: as k, with its keys in place of its dim.
io::Tensor identity_like(const io::Tensor& k, bool blhd) {
  std::vector<int64_t> shape = k.shape;
  if (shape.size() < 2 || shape.size() > 4) return copy(k);  // make_case says what is wrong
  const Axes axes = dense_axes(blhd, shape.size());
  const int64_t keys = axis_size(shape, axes, 2), heads = axis_size(shape, axes, 1), batch = axis_size(shape, axes, 0);
  shape.back() = keys;
  int64_t elements = 0;
  if (!io::element_count(shape, elements) || elements > 16 * kMostWeights) {
    throw Error("k " + io::shape_text(k.shape) +
                " is too large for its weights to be shown: at most 2,048 keys, fewer "
                "with several heads");
  }
  io::Tensor identity = io::make_tensor("v", io::Type::f32, shape);
  if (elements == 0) return identity;
  std::memset(identity.bytes.data(), 0, identity.bytes.size());
  const std::array<int64_t, 4> stride = strides_of(shape, axes);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < keys; ++j) {
        identity.as<float>()[b * stride[0] + h * stride[1] + j * stride[2] + j] = 1;
      }
    }
  }
  return io::is_float(k.type) ? io::convert(identity, k.type) : std::move(identity);  // 0 and 1 are exact
}

ReferenceResult all_of(const ProblemCase& c) {
  ReferenceResult result;
  reference_of(
      c, default_threads(), [](int64_t, int64_t) { return true; }, result);
  return result;
}

}  // namespace

io::Tensor copy(const io::Tensor& tensor) {
  io::Tensor result = io::make_tensor(tensor.name, tensor.type, tensor.shape);
  if (tensor.bytes.size() > 0) std::memcpy(result.bytes.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

bool CaseWeights::undefined(int64_t b, int64_t h, int64_t i) const {
  return kv_len > 0 && std::isnan(reference[row(b, h, i)]);
}

CaseWeights weights_of_case(const TensorSet& tensors, const Flags& flags) {
  for (const char* name : {"cu_seqlens_q", "cu_seqlens_kv", "page_table", "state_max", "state_sum", "state_acc"}) {
    if (tensors.count(name) != 0)
      throw Error(std::string("tensor '") + name + "': weights are shown of dense tensors only");
  }
  const auto k = tensors.find("k");
  if (k == tensors.end() || tensors.count("q") == 0) throw Error("tensors 'q' and 'k' are needed");
  const auto with_identity = [&](const Flags& rules, bool visibility) {
    TensorSet set;
    for (const auto& [name, tensor] : tensors) {
      if (visibility && (name == "sinks" || name == "alibi_slopes")) continue;
      if (name != "v") set[name] = copy(tensor);
    }
    set["v"] = identity_like(k->second, flags.layout == "blhd");
    return make_case(std::move(set), rules);
  };
  Flags rules = flags;
  rules.out_dtype = "f32";
  rules.pad = 0;
  const ProblemCase c = with_identity(rules, false);
  const lw_problem& p = c.problem;
  const double count = static_cast<double>(p.batch) * static_cast<double>(p.q_heads) * static_cast<double>(p.q_len) *
                       static_cast<double>(p.kv_len);
  if (count > static_cast<double>(kMostWeights)) {
    throw Error(format(
        "%.0f weights (%lld sequences x %lld heads x %lld queries x %lld keys) are too many for a picture; "
        "at most %lld are allowed",
        count, static_cast<long long>(p.batch), static_cast<long long>(p.q_heads), static_cast<long long>(p.q_len),
        static_cast<long long>(p.kv_len), static_cast<long long>(kMostWeights)));
  }
  CaseWeights result = {p.batch, p.q_heads, p.q_len, p.kv_len, {}, {}, {}};
  const RunResult run = run_case(c, run_options(rules));
  // out has q's order of axes; the weights are [batch, heads, queries, keys].
  const RowIndex index = {strides_of(c.out_shape, c.axes), nullptr};
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t i = 0; i < p.q_len; ++i) {
        for (int64_t j = 0; j < p.kv_len; ++j) result.kernel.push_back(run.out.as<float>()[index(b, h, i) + j]);
      }
    }
  }
  result.reference = all_of(c).out;
  // What a query sees: with all scores equal every visible key has a weight.
  Flags equal = rules;
  equal.scale = 0;
  equal.softcap = 0;
  equal.alibi = false;
  for (const double weight : all_of(with_identity(equal, true)).out) result.visible.push_back(!(weight == 0));
  return result;
}

}  // namespace lanewise::tools
