#include "statistics.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "canonical.hpp"
#include "compare.hpp"
#include "src/reference.hpp"
#include "targets.hpp"

namespace lanewise::test {
namespace {

// Sizes of one call.
struct Sizes {
  explicit Sizes(const Prepared& prepared, const StatisticsRequest& request)
      : p(prepared),
        asked(request),
        batch(p.inputs.batch >= 0 ? p.inputs.batch : p.problem.batch),
        kv_len(p.inputs.kv_len >= 0 ? p.inputs.kv_len : p.problem.kv_len) {}

  const Prepared& p;
  const StatisticsRequest& asked;
  int64_t batch, kv_len;

  bool ragged_q() const { return p.inputs.cu_seqlens_q != nullptr; }
  bool ragged_kv() const { return p.inputs.cu_seqlens_kv != nullptr; }
  int64_t rows(int64_t b) const {
    if (ragged_q()) return p.inputs.cu_seqlens_q[b + 1] - p.inputs.cu_seqlens_q[b];
    return p.inputs.q_lengths ? p.inputs.q_lengths[b] : p.logical_q_len;
  }
  int64_t keys(int64_t b) const {
    if (p.inputs.kv_lengths) return p.inputs.kv_lengths[b];
    return ragged_kv() ? p.inputs.cu_seqlens_kv[b + 1] - p.inputs.cu_seqlens_kv[b] : kv_len;
  }
  bool counts(int64_t b, int64_t i) const {
    const int64_t n = rows(b);
    const auto from_start = [n](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); };
    return i < n && i >= from_start(asked.row_begin) && i < from_start(asked.row_end);
  }
};

// The value at [b, h, row, x], which becomes a canary.
float take(const lw_tensor& tensor, int64_t b, int64_t h, int64_t row, int64_t x) {
  float* at = static_cast<float*>(tensor.data) + (b ? b * tensor.stride[0] : 0) + (h ? h * tensor.stride[1] : 0) +
              (row ? row * tensor.stride[2] : 0) + (x ? x * tensor.stride[3] : 0);
  const float value = *at;
  std::memset(static_cast<void*>(at), GuardedBuffer::kCanary, sizeof *at);
  return value;
}

void parallel_for(void*, int64_t n, lw_share share, void* argument) {
  for (int64_t i = n - 1; i >= 0; --i) share(argument, i);
}

}  // namespace

std::string bit_difference(const Statistics& a, const Statistics& b) {
  for (const Statistics* s : {&a, &b}) {
    if (s->status.code != LW_OK) return s->status.message;
  }
  for (const auto& [name, part] : {std::pair<const char*, Array Statistics::*>{"weights", &Statistics::weights},
                                   {"column_sums", &Statistics::column_sums},
                                   {"row_max", &Statistics::row_max},
                                   {"row_entropy", &Statistics::row_entropy}}) {
    const std::string difference = bit_difference(a.*part, b.*part);
    if (!difference.empty()) return std::string(name) + ": " + difference;
  }
  return "";
}

StatisticsBuffers place_statistics(const Prepared& p, const Array& lse, const StatisticsRequest& request) {
  const Sizes sizes(p, request);
  StatisticsBuffers to;
  to.statistics = lw_statistics_default();
  lw_statistics& s = to.statistics;
  s.row_begin = request.row_begin;
  s.row_end = request.row_end;
  s.accumulate = request.columns_before != nullptr;
  std::vector<int32_t> offsets = {0};
  for (int64_t b = 0; b < sizes.batch; ++b) offsets.push_back(offsets.back() + static_cast<int32_t>(sizes.rows(b)));
  const Surroundings around = {p.edge, std::numeric_limits<float>::quiet_NaN()};
  place_input(to.lse, to.lse_buffer, sizes.ragged_q() ? join_sequences(lse, offsets, 2) : lse, Layout::kBhld,
              LW_TYPE_F32, around,
              [&](int64_t b, int64_t i) { return sizes.ragged_q() ? i >= offsets.back() : i >= sizes.rows(b); });
  const int64_t outer = sizes.ragged_q() ? 1 : sizes.batch, heads = p.problem.q_heads;
  const int64_t rows = sizes.ragged_q() ? offsets.back() : p.logical_q_len;
  const auto place = [&](bool wanted, lw_tensor& tensor, GuardedBuffer& buffer, const Shape& shape, Layout layout) {
    if (wanted) place_output(tensor, buffer, shape, layout, LW_TYPE_F32, p.edge);
  };
  place(request.weights, s.weights, to.weights, {outer, heads, rows, sizes.kv_len}, request.weights_layout);
  place(request.row_max, s.row_max, to.row_max, {outer, heads, rows, 1}, Layout::kBhld);
  place(request.row_entropy, s.row_entropy, to.row_entropy, {outer, heads, rows, 1}, Layout::kBhld);
  const int64_t columns_outer = sizes.ragged_kv() ? 1 : sizes.batch;
  const int64_t columns = sizes.ragged_kv() ? p.inputs.cu_seqlens_kv[sizes.batch] : sizes.kv_len;
  place(request.column_sums, s.column_sums, to.column_sums, {columns_outer, heads, columns, 1}, request.columns_layout);
  if (request.columns_before != nullptr) {
    request.columns_before->each([&](int64_t b, int64_t h, int64_t j, int64_t, float value) {
      if (j >= sizes.keys(b)) return;
      const int64_t row = sizes.ragged_kv() ? p.inputs.cu_seqlens_kv[b] + j : j;
      static_cast<float*>(s.column_sums.data)[(sizes.ragged_kv() ? 0 : b) * s.column_sums.stride[0] +
                                              h * s.column_sums.stride[1] + row * s.column_sums.stride[2]] = value;
    });
  }
  // Strides that are not used.
  if (sizes.ragged_q()) to.lse.stride[0] = s.weights.stride[0] = s.row_max.stride[0] = INT64_MIN;
  if (sizes.ragged_kv()) s.column_sums.stride[0] = INT64_MAX;
  return to;
}

Statistics run_statistics(const PreparedPlan& plan, const Prepared& p, const Array& lse,
                          const StatisticsRequest& request, const How& how) {
  const Sizes sizes(p, request);
  StatisticsBuffers to = place_statistics(p, lse, request);
  lw_inputs inputs = p.inputs;
  inputs.v = inputs.state_max = inputs.state_sum = inputs.state_acc = lw_const_tensor();
  inputs.sinks = nullptr;
  lw_executor executor = lw_executor_default();
  executor.threads = how.threads;
  if (how.runner == Runner::kCaller) executor.kind = LW_EXECUTOR_CALLER;
  if (how.runner == Runner::kCallback) {
    executor.kind = LW_EXECUTOR_CALLBACK;
    executor.parallel_for = &parallel_for;
  }
  const int64_t size = lw_plan_workspace_size(plan.get(), how.threads);
  GuardedBuffer workspace(static_cast<size_t>(size), p.edge, 64);
  Statistics result;
  result.target = how.target;
  how.before();
  void* const scratch = size ? workspace.data() : nullptr;
  if (how.runner == Runner::kPartsReversed) {
    for (int32_t ith = how.threads - 1; ith >= 0 && result.status.code == LW_OK; --ith) {
      result.status =
          lw_run_statistics_part(plan.get(), &inputs, &to.lse, &to.statistics, scratch, size, ith, how.threads);
    }
  } else {
    result.status = lw_run_statistics(plan.get(), &inputs, &to.lse, &to.statistics, scratch, size, &executor);
  }
  how.after();
  count_case(how.target);
  if (!workspace.canaries_intact()) result.damage += "workspace: wrote outside; ";
  if (result.status.code != LW_OK) {
    for (const GuardedBuffer* buffer : {&to.weights, &to.column_sums, &to.row_max, &to.row_entropy}) {
      if (!buffer->untouched() || !buffer->canaries_intact()) result.damage += "written in spite of an error; ";
    }
    return result;
  }
  const lw_statistics& s = to.statistics;
  const auto row_of = [&](int64_t b, int64_t i) { return sizes.ragged_q() ? p.inputs.cu_seqlens_q[b] + i : i; };
  const auto take_rows = [&](const lw_tensor& tensor, Array& array, int64_t columns) {
    if (!tensor.data) return;
    array = Array({sizes.batch, p.problem.q_heads, p.logical_q_len, columns});
    array.each([&](int64_t b, int64_t h, int64_t i, int64_t x, float& value) {
      if (!sizes.counts(b, i) || (columns > 1 && x >= sizes.keys(b)) || (&tensor == &s.weights && x >= sizes.keys(b)))
        return;
      value = take(tensor, sizes.ragged_q() ? 0 : b, h, row_of(b, i), x);
    });
  };
  take_rows(s.weights, result.weights, sizes.kv_len);
  take_rows(s.row_max, result.row_max, 1);
  take_rows(s.row_entropy, result.row_entropy, 1);
  if (s.column_sums.data) {
    result.column_sums = Array({sizes.batch, p.problem.q_heads, sizes.kv_len, 1});
    result.column_sums.each([&](int64_t b, int64_t h, int64_t j, int64_t, float& value) {
      if (j >= sizes.keys(b)) return;
      const int64_t row = sizes.ragged_kv() ? p.inputs.cu_seqlens_kv[b] + j : j;
      value = take(s.column_sums, sizes.ragged_kv() ? 0 : b, h, row, 0);
    });
  }
  for (const auto& [name, buffer] : {std::pair<const char*, const GuardedBuffer*>{"weights", &to.weights},
                                     {"column_sums", &to.column_sums},
                                     {"row_max", &to.row_max},
                                     {"row_entropy", &to.row_entropy}}) {
    if (!buffer->untouched() || !buffer->canaries_intact())
      result.damage += std::string(name) + ": wrote outside its rows or columns; ";
  }
  return result;
}

Statistics run_with_statistics(Case c, const StatisticsRequest& request, const How& how) {
  Prepared p = c.prepare();
  const PreparedPlan plan(p.problem, how.target);
  Statistics failed;
  const Result run = plan.run(p, {how.target});
  failed.status = run.status;
  if (run.status.code != LW_OK) return failed;
  return run_statistics(plan, p, run.lse, request, how);
}

std::string reference_difference(const Case& c, const Expectation& whole, const StatisticsRequest& request,
                                 const Statistics& statistics) {
  if (statistics.status.code != LW_OK) return statistics.status.message;
  if (!statistics.damage.empty()) return statistics.damage;
  const Prepared p = Case(c).dense().prepare();
  const ReferenceStatistics reference =
      reference_statistics(p.problem, p.inputs, whole.reference_result(), request.row_begin, request.row_end);
  const auto difference = [](const char* name, const Array& values, const ReferenceStatistics::Values& right) {
    if (values.values.empty()) return std::string();
    if (values.values.size() != right.value.size()) return std::string(name) + ": sizes differ";
    for (size_t n = 0; n < right.value.size(); ++n) {
      const double value = static_cast<double>(values.values[n]);
      if (agrees(value, right.value[n], right.bound[n])) continue;
      return std::string(name) + "[" + std::to_string(n) + "] is " + std::to_string(value) + ", expected " +
             std::to_string(right.value[n]) + ", off by " + std::to_string((value - right.value[n]) / right.bound[n]) +
             " bounds";
    }
    return std::string();
  };
  for (const std::string& text : {difference("weights", statistics.weights, reference.weights),
                                  difference("column_sums", statistics.column_sums, reference.column_sums),
                                  difference("row_max", statistics.row_max, reference.row_max),
                                  difference("row_entropy", statistics.row_entropy, reference.row_entropy)}) {
    if (!text.empty()) return text;
  }
  return "";
}

StatisticsRequest store_with_statistics(Case& c, size_t which) {
  StatisticsRequest request;
  if (which == 1) {
    c.layouts(Layout::kBlhd, Layout::kTransposed, Layout::kSpread, Layout::kPaddedRows);
    request.weights_layout = Layout::kTransposed;
    request.columns_layout = Layout::kSpread;
  }
  if (which == 2) c.ragged_q().ragged_kv();
  if (which == 3) c.paged(7);
  return request;
}

void check_statistics(const std::string& name, const Case& c, const StatisticsRequest& request) {
  INFO(name);
  const Prepared dense = Case(c).dense().prepare();
  const Expectation expected(c);
  const Statistics right = canonical_statistics(dense, canonical(dense).lse, request);
  CHECK(reference_difference(c, expected, request, right) == "");
  for_each_target([&](const std::string& target) {
    INFO(target);
    const Statistics result = run_with_statistics(c, request, {target, 1, Runner::kCaller});
    CHECK(reference_difference(c, expected, request, result) == "");
    const Statistics by_seven = run_with_statistics(c, request, {target, 7, Runner::kCallback});
    CHECK(by_seven.damage == "");
    CHECK(bit_difference(result, by_seven) == "");
    if (has_fma(target)) CHECK(bit_difference(right, result) == "");
  });
}

}  // namespace lanewise::test
