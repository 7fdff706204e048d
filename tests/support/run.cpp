#include "run.hpp"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "targets.hpp"

namespace lanewise::test {
namespace {

int64_t offset_of(const lw_tensor& tensor, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (a ? a * tensor.stride[0] : 0) + (b ? b * tensor.stride[1] : 0) + (c ? c * tensor.stride[2] : 0) +
         (d ? d * tensor.stride[3] : 0);
}

int64_t rows_of(const Prepared& p, int64_t b) {
  const lw_inputs& in = p.inputs;
  if (in.cu_seqlens_q) return in.cu_seqlens_q[b + 1] - in.cu_seqlens_q[b];
  return in.q_lengths ? in.q_lengths[b] : p.logical_q_len;
}

// Reads a tensor's values and puts canaries in their places: whatever else was written is then visible.
void take(const Prepared& p, const lw_tensor& tensor, const GuardedBuffer& buffer, const char* name, int64_t dim,
          Array& array, std::string& damage) {
  if (!tensor.data) return;
  const int64_t batch = p.inputs.batch >= 0 ? p.inputs.batch : p.problem.batch;
  const size_t size = static_cast<size_t>(type_size(tensor.type));
  array = Array({batch, p.problem.q_heads, p.logical_q_len, dim});
  array.each([&](int64_t b, int64_t h, int64_t i, int64_t x, float& value) {
    if (i >= rows_of(p, b)) return;
    const bool ragged = p.inputs.cu_seqlens_q != nullptr;
    const int64_t offset = offset_of(tensor, ragged ? 0 : b, h, ragged ? p.inputs.cu_seqlens_q[b] + i : i, x);
    value = load(tensor.type, tensor.data, offset);
    std::memset(static_cast<uint8_t*>(tensor.data) + offset * static_cast<int64_t>(size), GuardedBuffer::kCanary, size);
  });
  if (!buffer.untouched()) damage += std::string(name) + ": wrote outside its rows; ";
}

struct Pool {
  int32_t threads;
};

void parallel_for(void* context, int64_t n, lw_share share, void* argument) {
  std::atomic<int64_t> left{n};
  const auto work = [&] {
    for (int64_t i = left.fetch_sub(1) - 1; i >= 0; i = left.fetch_sub(1) - 1) share(argument, i);
  };
  std::vector<std::thread> team;
  for (int32_t t = 1; t < static_cast<Pool*>(context)->threads; ++t) team.emplace_back(work);
  work();
  for (std::thread& thread : team) thread.join();
}

lw_status run_parts(const lw_plan* plan, const Prepared& p, void* workspace, int64_t size, int32_t parts, bool team) {
  std::vector<lw_status> statuses(static_cast<size_t>(parts));
  for (int32_t phase = 0; phase < lw_plan_phases(plan); ++phase) {
    const auto part = [&, phase](int32_t ith) {
      statuses[static_cast<size_t>(ith)] = lw_run_part(plan, &p.inputs, &p.outputs, workspace, size, phase, ith, parts);
    };
    std::vector<std::thread> threads;
    for (int32_t ith = parts - 1; ith >= 0; --ith) {
      if (team) {
        threads.emplace_back(part, ith);
      } else {
        part(ith);
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (const lw_status& status : statuses) {
      if (status.code != LW_OK) return status;
    }
  }
  return statuses[0];
}

lw_status run_on(const lw_plan* plan, const Prepared& p, void* workspace, int64_t size, const How& how) {
  if (how.runner == Runner::kPartsReversed || how.runner == Runner::kPartsOnThreads) {
    return run_parts(plan, p, workspace, size, how.threads, how.runner == Runner::kPartsOnThreads);
  }
  lw_executor executor = lw_executor_default();
  executor.threads = how.threads;
  Pool pool = {how.threads};
  if (how.runner == Runner::kCaller) executor.kind = LW_EXECUTOR_CALLER;
  if (how.runner == Runner::kCallback) {
    executor.kind = LW_EXECUTOR_CALLBACK;
    executor.context = &pool;
    executor.parallel_for = parallel_for;
  }
  return lw_run(plan, &p.inputs, &p.outputs, workspace, size, &executor);
}

}  // namespace

std::string bit_difference(const Result& a, const Result& b) {
  for (const Result* r : {&a, &b}) {
    if (r->status.code != LW_OK) return r->target + ": " + r->status.message;
  }
  const auto differ = [](const char* name, const Array& x, const Array& y) {
    const std::string difference = bit_difference(x, y);
    return difference.empty() ? difference : std::string(name) + ": " + difference;
  };
  std::string text = differ("out", a.out, b.out);
  if (text.empty()) text = differ("lse", a.lse, b.lse);
  if (text.empty()) text = differ("state_max", a.state_max, b.state_max);
  if (text.empty()) text = differ("state_sum", a.state_sum, b.state_sum);
  if (text.empty()) text = differ("state_acc", a.state_acc, b.state_acc);
  return text;
}

bool outputs_untouched(const Prepared& p) {
  return p.out.untouched() && p.lse.untouched() && p.state_max.untouched() && p.state_sum.untouched() &&
         p.state_acc.untouched();
}

void reset_outputs(Prepared& p) {
  for (const GuardedBuffer* buffer : {&p.out, &p.lse, &p.state_max, &p.state_sum, &p.state_acc}) {
    if (buffer->size()) std::memset(buffer->data(), GuardedBuffer::kCanary, buffer->size());
  }
}

PreparedPlan::PreparedPlan(const lw_problem& problem, const std::string& target) {
  lw_options options = lw_options_default();
  options.target = target.c_str();
  status_ = lw_plan_make(&problem, &options, &plan_);
}

Result PreparedPlan::run(Prepared& p, const How& how) const {
  Result result;
  result.target = how.target;
  result.status = status_;
  if (status_.code != LW_OK) return result;
  reset_outputs(p);
  const int64_t size = lw_plan_workspace_size(plan_, how.threads);
  GuardedBuffer workspace(static_cast<size_t>(size), p.edge, 64);
  how.before();
  result.status = run_on(plan_, p, size ? workspace.data() : nullptr, size, how);
  how.after();
  count_case(how.target);

  if (!workspace.canaries_intact()) result.damage += "workspace: wrote outside; ";
  if (result.status.code != LW_OK) {
    if (!outputs_untouched(p)) result.damage += "outputs: written in spite of an error; ";
    return result;
  }
  take(p, p.outputs.out, p.out, "out", p.problem.v_dim, result.out, result.damage);
  take(p, p.outputs.lse, p.lse, "lse", 1, result.lse, result.damage);
  take(p, p.outputs.state_max, p.state_max, "state_max", 1, result.state_max, result.damage);
  take(p, p.outputs.state_sum, p.state_sum, "state_sum", 1, result.state_sum, result.damage);
  take(p, p.outputs.state_acc, p.state_acc, "state_acc", p.problem.v_dim, result.state_acc, result.damage);
  return result;
}

Result run_prepared(Prepared& prepared, const How& how) {
  return PreparedPlan(prepared.problem, how.target).run(prepared, how);
}

}  // namespace lanewise::test
