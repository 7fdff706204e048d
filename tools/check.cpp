#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "src/problem.hpp"

namespace lanewise::tools {
namespace {

int64_t bytes_of(int32_t type) { return type == LW_TYPE_F32 ? 4 : type == LW_TYPE_BF16 || type == LW_TYPE_F16 ? 2 : 1; }

void advance(lw_const_tensor& tensor, int64_t heads) {
  if (tensor.data == nullptr) return;
  tensor.data = static_cast<const uint8_t*>(tensor.data) + heads * tensor.stride[1] * bytes_of(tensor.type);
}

ReferenceResult head_reference(const ProblemCase& c, int64_t h) {
  const HeadProblem head = head_problem(c, h);
  return reference(head.problem, head.inputs);
}

// Row numbers as in ReferenceResult.
size_t reference_row(const ProblemCase& c, int64_t b, int64_t h, int64_t i) {
  const lw_problem& p = c.problem;
  if (p.q_layout == LW_LAYOUT_RAGGED) return static_cast<size_t>((c.inputs.cu_seqlens_q[b] + i) * p.q_heads + h);
  return static_cast<size_t>((b * p.q_heads + h) * p.q_len + i);
}

// Number among all heads' rows of row r of head h.
size_t row_of_head(const ProblemCase& c, int64_t h, size_t r) {
  const size_t q_len = c.problem.q_layout == LW_LAYOUT_RAGGED ? 1 : static_cast<size_t>(c.problem.q_len);
  return (r / q_len * static_cast<size_t>(c.problem.q_heads) + static_cast<size_t>(h)) * q_len + r % q_len;
}

void insert_head(const ProblemCase& c, int64_t h, const ReferenceResult& head, ReferenceResult& all) {
  const int64_t rows = static_cast<int64_t>(head.lse.size());
  const int64_t dim = c.problem.v_dim;
  all.softcapped = head.softcapped;
  for (int64_t r = 0; r < rows; ++r) {
    const size_t to = row_of_head(c, h, static_cast<size_t>(r));
    const size_t from = static_cast<size_t>(r);
    all.lse[to] = head.lse[from];
    all.score_magnitude[to] = head.score_magnitude[from];
    all.value_magnitude[to] = head.value_magnitude[from];
    all.blocks[to] = head.blocks[from];
    std::copy_n(head.out.begin() + r * dim, dim, all.out.begin() + static_cast<int64_t>(to) * dim);
  }
}

template <class Visit>
void for_each_row(const ProblemCase& c, const Visit& visit) {
  for (int64_t b = 0; b < c.problem.batch; ++b) {
    const int64_t q_len = sequence_sizes(c, b).q_len;
    for (int64_t h = 0; h < c.problem.q_heads; ++h) {
      for (int64_t i = 0; i < q_len; ++i) visit(b, h, i, reference_row(c, b, h, i));
    }
  }
}

double allowed_out(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference, size_t row,
                   double value) {
  const double bound = out_bound(problem_as_run(c, run), reference, row);
  return bound + rounding_bound(c.problem.out_type, std::fabs(value) + bound);
}

double allowed_lse(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference, size_t row) {
  return lse_bound(problem_as_run(c, run), reference, row);
}

// Where rows of out or lse begin.
RowIndex row_index(const ProblemCase& c, bool lse) {
  return {strides_of(lse ? c.lse_shape : c.out_shape, lse ? c.row_axes() : c.axes), c.inputs.cu_seqlens_q};
}

// As an index of the tensor in the file; x < 0: of lse.
std::string position_text(const ProblemCase& c, int64_t b, int64_t h, int64_t i, int64_t x) {
  const int64_t index[4] = {b, h, i + (c.inputs.cu_seqlens_q != nullptr ? c.inputs.cu_seqlens_q[b] : 0), x};
  std::vector<int64_t> position((x < 0 ? c.lse_shape : c.out_shape).size());
  for (size_t a = 0; a < 4; ++a) {
    const size_t axis = static_cast<size_t>(c.axes[a]);
    if (c.axes[a] >= 0 && axis < position.size()) position[axis] = index[a];
  }
  return io::shape_text(position);
}

// Runs through out (or lse): expected(first element of the row, row, x) and allowed(row, expected value).
template <class Expected, class Allowed>
Comparison compare(const ProblemCase& c, const io::Tensor& output, bool lse, const Expected& expected,
                   const Allowed& allowed) {
  Comparison result;
  const RowIndex index = row_index(c, lse);
  const int64_t columns = lse ? 1 : c.problem.v_dim;
  for_each_row(c, [&](int64_t b, int64_t h, int64_t i, size_t row) {
    const int64_t first = index(b, h, i);
    for (int64_t x = 0; x < columns; ++x) {
      const double wanted = expected(first, row, x);
      const auto where = [&] { return position_text(c, b, h, i, lse ? -1 : x); };
      result.add(io::element(output, first + x), wanted, allowed(row, wanted), where);
    }
  });
  return result;
}

}  // namespace

lw_problem problem_as_run(const ProblemCase& c, const RunResult& run) {
  lw_problem problem = c.problem;
  const char* arithmetic = run.explanation.arithmetic;
  const bool native = arithmetic != nullptr && std::string(arithmetic) == "native_bf16";
  problem.arithmetic = native ? LW_ARITHMETIC_NATIVE_BF16 : LW_ARITHMETIC_CANONICAL;
  return problem;
}

HeadProblem head_problem(const ProblemCase& c, int64_t h) {
  HeadProblem head = {c.problem, c.inputs};
  lw_problem& problem = head.problem;
  lw_inputs& in = head.inputs;
  const int64_t kv_head = h / group_size(problem);
  problem.q_heads = problem.kv_heads = 1;
  for (lw_const_tensor* tensor : {&in.q, &in.mask, &in.bias, &in.state_max, &in.state_sum, &in.state_acc})
    advance(*tensor, h);
  for (lw_const_tensor* tensor : {&in.k, &in.v}) advance(*tensor, kv_head);
  if (in.alibi_slopes != nullptr) in.alibi_slopes += h;
  if (in.sinks != nullptr) in.sinks += h;
  if (in.block_indptr != nullptr) in.block_indptr += h * in.block_indptr_stride[1];
  return head;
}

ReferenceResult head_of(const ProblemCase& c, const ReferenceResult& all, int64_t h) {
  ReferenceResult head;
  head.softcapped = all.softcapped;
  const size_t rows = all.lse.size() / static_cast<size_t>(c.problem.q_heads);
  for (size_t r = 0; r < rows; ++r) {
    const size_t from = row_of_head(c, h, r);
    head.lse.push_back(all.lse[from]);
    head.score_magnitude.push_back(all.score_magnitude[from]);
  }
  return head;
}

bool reference_of(const ProblemCase& c, int32_t threads, const Progress& progress, ReferenceResult& result) {
  const lw_problem& p = c.problem;
  const int64_t rows = p.q_heads * (p.q_layout == LW_LAYOUT_RAGGED ? p.total_q : p.batch * p.q_len);
  result.out.assign(static_cast<size_t>(rows * p.v_dim), 0.0);
  for (std::vector<double>* values : {&result.lse, &result.score_magnitude, &result.value_magnitude}) {
    values->assign(static_cast<size_t>(rows), 0.0);
  }
  result.blocks.assign(static_cast<size_t>(rows), 0);
  return each_head(p.q_heads, threads, progress, [&](int64_t h) -> std::function<void()> {
    auto head = std::make_shared<ReferenceResult>(head_reference(c, h));
    return [&c, &result, h, head] { insert_head(c, h, *head, result); };
  });
}

bool each_head(int64_t heads, int32_t threads, const Progress& progress,
               const std::function<std::function<void()>(int64_t)>& compute) {
  std::mutex mutex;
  std::exception_ptr failure;
  int64_t next = 0, done = 0;
  bool stopped = false;
  const auto work = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    while (next < heads && !failure && !stopped) {
      const int64_t h = next++;
      lock.unlock();
      std::function<void()> deliver;
      std::exception_ptr thrown;
      try {
        deliver = compute(h);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) {
        failure = thrown;
        return;
      }
      deliver();
      stopped = !progress(++done, heads);
    }
  };
  std::vector<std::thread> pool;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, heads); ++t) pool.emplace_back(work);
  } catch (const std::exception&) {  // fewer threads, then
  }
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
  return !stopped;
}

void Comparison::add(double value, double expected, double allowed, const std::function<std::string()>& where) {
  ++compared;
  double error = std::fabs(value - expected);
  if (value == expected || (std::isnan(value) && std::isnan(expected))) error = 0;
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  // An infinite error (NaN or inf on one side alone) is never within an allowance, which may be infinite itself, or NaN for
  // a row that is NaN.
  const bool fails = error != 0 && (!(error <= allowed) || std::isinf(error));
  over += fails;
  if (error > largest_error) {
    largest_error = error;
    largest_at = where();
  }
  const double share = error == 0 ? 0 : allowed > 0 ? error / allowed : std::numeric_limits<double>::infinity();
  if (share > largest_share || std::isnan(share)) {
    largest_share = share;
    allowed_there = allowed;
  }
}

RowCounts count_rows(const ProblemCase& c, const ReferenceResult& reference) {
  RowCounts counts;
  for_each_row(c, [&](int64_t, int64_t, int64_t, size_t row) {
    ++counts.rows;
    counts.without_keys += reference.blocks[row] == 0;
    counts.undefined += std::isnan(reference.lse[row]);
  });
  return counts;
}

Comparison compare_out(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference) {
  const size_t dim = static_cast<size_t>(c.problem.v_dim);
  return compare(
      c, run.out, false,
      [&](int64_t, size_t row, int64_t x) { return reference.out[row * dim + static_cast<size_t>(x)]; },
      [&](size_t row, double value) { return allowed_out(c, run, reference, row, value); });
}

Comparison compare_lse(const ProblemCase& c, const RunResult& run, const ReferenceResult& reference) {
  return compare(
      c, run.lse, true, [&](int64_t, size_t row, int64_t) { return reference.lse[row]; },
      [&](size_t row, double) { return allowed_lse(c, run, reference, row); });
}

Comparison compare_expected(const ProblemCase& c, const RunResult& run, bool lse, const io::Tensor& expected,
                            double tolerance, const ReferenceResult* reference) {
  return compare(
      c, lse ? run.lse : run.out, lse,
      [&](int64_t first, size_t, int64_t x) { return io::element(expected, first + x); },
      [&](size_t row, double wanted) {
        if (tolerance >= 0) return tolerance;
        return lse ? allowed_lse(c, run, *reference, row) : allowed_out(c, run, *reference, row, wanted);
      });
}

}  // namespace lanewise::tools
