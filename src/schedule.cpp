// The only file with OpenMP: kernels are called through pointers, so that no compiler outlines a kernel without its
// target's instructions.

#include "schedule.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "fp_environment.hpp"
#include "machine.hpp"
#include "status.hpp"
#include "tensors.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lanewise {
namespace {

constexpr double kNeverCut = 1e300;

// What all tasks of a run share.
struct Work {
  const lw_plan& plan;
  const Run& run;
  Rules rules;
  bool pack_k, pack_v;
  int64_t panel_tiles;
  int64_t heads_together;  // kv heads of few rows that one task takes, at most
  double largest_task;     // multiply-adds above which a panel's keys are cut into pieces
  int64_t split_panels;
  // Workspace: pieces' states, arrivals (one a split panel), then scratch of each worker.
  char* states;
  std::atomic<int32_t>* arrivals;
  char* scratch;
};

// Sequence b's part of a task: lengths, offsets, no pointers.
Task task_of(const Work& work, int64_t b) {
  const lw_problem& p = work.run.problem;
  Task task;
  task.qk_dim = p.qk_dim;
  task.v_dim = p.v_dim;
  task.group_size = p.q_heads / p.kv_heads;
  task.kv_start = work.run.kv_start(b);
  task.kv_len = work.run.kv_len(b);
  task.q_offset = work.run.q_offset(b);
  task.rules = &work.rules;
  task.q_positions = work.run.q_positions(b);
  task.q_positions_stride = work.run.inputs.q_positions_stride[1];
  task.native_bf16 = p.arithmetic == LW_ARITHMETIC_NATIVE_BF16;
  return task;
}

// A panel: rows of one (sequence, kv head), or few rows of several kv heads, the keys they may see, and how those are cut
// into pieces of whole blocks or spans.
struct Panel {
  int64_t row_begin, row_end;
  int64_t kv_heads;  // that have these rows
  int64_t key_begin, key_end;
  double cost;      // multiply-adds
  Deliver deliver;  // kResults: one piece
  int64_t first_unit, units;
  int64_t pieces;
  bool streams;  // keys come from memory: fetch them ahead

  int64_t rows() const { return (row_end - row_begin) * kv_heads; }
};

// Key rows [begin, end) that hold all that rows [row_begin, row_end) may see.
void key_hull(const Task& task, int64_t row_begin, int64_t row_end, int64_t& begin, int64_t& end) {
  int64_t first = position_of(task, row_begin), last = position_of(task, row_end - 1);
  if (task.q_positions != nullptr) {
    for (int64_t query = row_begin / task.group_size; query <= (row_end - 1) / task.group_size; ++query) {
      const int64_t position = task.q_positions[query * task.q_positions_stride];
      first = std::min(first, position);
      last = std::max(last, position);
    }
  }
  int64_t unused = 0;
  window_of(*task.rules, first - task.kv_start, task.kv_len, begin, unused);
  window_of(*task.rules, last - task.kv_start, task.kv_len, unused, end);
  end = std::max(begin, end);
  const int64_t prefix = prefix_of(*task.rules, task.kv_start, task.kv_len);
  if (prefix == 0) return;
  end = begin < end ? std::max(end, prefix) : prefix;
  begin = 0;
}

// Few panels read a long sequence, each once from end to end: from memory.
bool streams_from_memory(const Task& task, const Panels& panels) {
  constexpr int64_t kSecondCache = 1 << 18;  // elements of K and V
  return panels.count <= 4 && task.kv_len * (task.qk_dim + task.v_dim) > kSecondCache;
}

Panel panel_of(const Work& work, const Task& task, const Panels& panels, int64_t index, int64_t kv_heads) {
  const int64_t lanes = work.plan.kernels.lanes;
  const int64_t rows = panels.rows;
  Panel panel;
  panel.row_begin = tile_begin_vector(panels.vectors, panels.count, index) * lanes;
  panel.row_end = std::min(tile_begin_vector(panels.vectors, panels.count, index + 1) * lanes, rows);
  panel.kv_heads = kv_heads;
  panel.streams = streams_from_memory(task, panels);
  key_hull(task, panel.row_begin, panel.row_end, panel.key_begin, panel.key_end);
  panel.deliver = Deliver::kResults;
  panel.first_unit = 0;
  panel.units = panel.pieces = 1;
  panel.cost = static_cast<double>(panel.rows()) * static_cast<double>(panel.key_end - panel.key_begin) *
               static_cast<double>(task.qk_dim + task.v_dim);
  if (panel.cost <= work.largest_task || panel.rows() > (kv_heads > 1 ? work.plan.together_rows : work.plan.piece_rows))
    return panel;

  const int64_t wanted = static_cast<int64_t>(std::ceil(panel.cost / work.largest_task));
  const int64_t first = task.kv_start + panel.key_begin;
  const int64_t last = task.kv_start + panel.key_end - 1;
  for (const Deliver deliver : {Deliver::kSpans, Deliver::kBlocks}) {
    const int64_t unit = deliver == Deliver::kSpans ? kSpanKeys : kBlockKeys;
    panel.deliver = deliver;
    panel.first_unit = first / unit;
    panel.units = last / unit - first / unit + 1;
    panel.pieces = std::min(wanted, panel.units);
    if (panel.pieces == wanted) break;
  }
  if (panel.pieces == 1) panel.deliver = Deliver::kResults;
  return panel;
}

// Walks the tasks in order of their numbers: sequence, kv head (or several together), panel, piece. Numbers only go up,
// so a worker's whole walk costs one pass over the panels and no memory.
class TaskCursor {
 public:
  explicit TaskCursor(const Work& work) : work_(work) { begin_sequence(); }

  // Moves to task `index`, not before the last one. False: there is none.
  bool seek(int64_t index) {
    while (sequence_ < work_.run.problem.batch && index >= first_ + panel_.pieces) next_panel();
    piece_ = index - first_;
    return sequence_ < work_.run.problem.batch;
  }

  // Moves to the next panel. False: there is none.
  bool next_panel() {
    first_ += panel_.pieces;
    if (panel_.deliver != Deliver::kResults) {
      ++split_;
      states_ += panel_.units * state_size();
    }
    if (++index_ < panels_.count) {
      begin_panel();
    } else {
      index_ = 0;
      if (++head_task_ == head_tasks_) {
        head_task_ = 0;
        ++sequence_;
        begin_sequence();
      } else {
        begin_panel();
      }
    }
    return sequence_ < work_.run.problem.batch;
  }

  bool at_end() const { return sequence_ >= work_.run.problem.batch; }
  int64_t sequence() const { return sequence_; }
  int64_t kv_head() const { return first_head(head_task_); }  // the first one
  int64_t piece() const { return piece_; }
  int64_t first() const { return first_; }    // number of the panel's first task
  int64_t split() const { return split_; }    // split panels before this one
  int64_t states() const { return states_; }  // floats of states before this panel's
  int64_t state_size() const { return piece_state_size(panel_.rows(), task_.v_dim); }
  const Panel& panel() const { return panel_; }
  const Task& task() const { return task_; }

 private:
  // The first sequence from sequence_ on that has rows.
  void begin_sequence() {
    for (; sequence_ < work_.run.problem.batch; ++sequence_) {
      panels_ = panels_of(work_.plan, work_.run.q_len(sequence_), work_.panel_tiles);
      if (panels_.count == 0) continue;
      task_ = task_of(work_, sequence_);
      const bool few = panels_.rows <= work_.plan.kernels.few_rows;
      const int64_t together =
          few ? std::max<int64_t>(1, std::min(work_.heads_together, kMaxTogetherRows / panels_.rows)) : 1;
      head_tasks_ = (work_.run.problem.kv_heads + together - 1) / together;
      begin_panel();
      return;
    }
  }
  // Causal rows at the end see the most keys: the longest panels first.
  void begin_panel() {
    panel_ = panel_of(work_, task_, panels_, panels_.count - 1 - index_,
                      first_head(head_task_ + 1) - first_head(head_task_));
  }
  int64_t first_head(int64_t head_task) const { return work_.run.problem.kv_heads * head_task / head_tasks_; }

  const Work& work_;
  int64_t sequence_ = 0, head_task_ = 0, head_tasks_ = 1, index_ = 0, piece_ = 0;
  int64_t first_ = 0, split_ = 0, states_ = 0;
  Panels panels_ = {0, 0, 0};
  Panel panel_ = {};
  Task task_;
};

// First element of (batch or page 0, head, token) of a tensor.
template <class Tensor>
auto* data_at(const Tensor& tensor, int64_t batch, int64_t head, int64_t token) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor.data)>>, const char, char>;
  return static_cast<Byte*>(tensor.data) +
         (batch * tensor.stride[0] + head * tensor.stride[1] + token * tensor.stride[2]) * type_size(tensor.type);
}

template <class To, class From>
To rows_at(const Run& run, const From& tensor, int64_t b, int64_t head) {
  To to;
  if (tensor.data == nullptr) return to;
  to.data = data_at(tensor, run.inputs.cu_seqlens_q != nullptr ? 0 : b, head, run.q_token(b));
  to.type = tensor.type;
  to.head_stride = tensor.stride[1];
  to.len_stride = tensor.stride[2];
  to.dim_stride = tensor.stride[3];
  return to;
}

KeyTensor keys_at(const Run& run, const lw_const_tensor& tensor, int64_t b, int64_t kv_head) {
  const lw_inputs& in = run.inputs;
  KeyTensor keys;
  keys.type = tensor.type;
  // Strides of axes of size 1 are not used, so they may be anything.
  keys.head_stride = run.problem.kv_heads > 1 ? tensor.stride[1] : 0;
  keys.len_stride = tensor.stride[2];
  keys.dim_stride = tensor.stride[3];
  if (in.page_table != nullptr) {
    keys.data = data_at(tensor, 0, kv_head, 0);
    keys.page_table = in.page_table + b * in.page_table_stride[0];
    keys.page_table_stride = in.page_table_stride[1];
    keys.page_size = run.problem.page_size;
    keys.page_stride = tensor.stride[0];
    if (keys.page_size == 1) keys.len_stride = 0;
  } else {
    keys.data = data_at(tensor, in.cu_seqlens_kv != nullptr ? 0 : b, kv_head, run.kv_token(b));
    if (run.kv_len(b) <= 1) keys.len_stride = 0;
  }
  return keys;
}

// The task at the cursor, all of its panel's keys.
Task full_task(const Work& work, const TaskCursor& at, void* scratch) {
  const Run& run = work.run;
  Task task = at.task();
  const Panel& panel = at.panel();
  const int64_t b = at.sequence();
  const int64_t q_head = at.kv_head() * task.group_size;
  task.row_begin = panel.row_begin;
  task.row_end = panel.row_end;
  task.kv_heads = panel.kv_heads;
  task.key_begin = panel.key_begin;
  task.key_end = panel.key_end;
  task.q = rows_at<QueryTensor>(run, run.inputs.q, b, q_head);
  if (panel.key_begin < panel.key_end) {
    task.k = keys_at(run, run.inputs.k, b, at.kv_head());
    task.v = keys_at(run, run.inputs.v, b, at.kv_head());
  }
  task.state_in = {rows_at<QueryTensor>(run, run.inputs.state_max, b, q_head),
                   rows_at<QueryTensor>(run, run.inputs.state_sum, b, q_head),
                   rows_at<QueryTensor>(run, run.inputs.state_acc, b, q_head)};
  task.out = rows_at<ResultTensor>(run, run.outputs.out, b, q_head);
  task.lse = rows_at<ResultTensor>(run, run.outputs.lse, b, q_head);
  task.state_out = {rows_at<ResultTensor>(run, run.outputs.state_max, b, q_head),
                    rows_at<ResultTensor>(run, run.outputs.state_sum, b, q_head),
                    rows_at<ResultTensor>(run, run.outputs.state_acc, b, q_head)};
  const lw_inputs& in = run.inputs;
  task.mask = rows_at<QueryTensor>(run, in.mask, b, q_head);
  task.bias = rows_at<QueryTensor>(run, in.bias, b, q_head);
  task.mask_begin = run.problem.mask_tail > 0 ? task.kv_len - run.problem.mask_tail : 0;
  if (in.block_indptr != nullptr) {
    task.block_mask.indptr = in.block_indptr + b * in.block_indptr_stride[0] + q_head * in.block_indptr_stride[1];
    task.block_mask.indices = in.block_indices;
    task.block_mask.head_stride = in.block_indptr_stride[1];
    task.block_mask.block_rows = run.problem.block_mask_rows;
    task.block_mask.block_keys = run.problem.block_mask_keys;
  }
  if (in.alibi_slopes != nullptr) task.slopes = in.alibi_slopes + b * in.alibi_batch_stride + q_head;
  if (in.sinks != nullptr) task.sinks = in.sinks + q_head;
  task.pack_k = work.pack_k;
  task.pack_v = work.pack_v;
  task.streams = panel.streams;
  task.scratch = scratch;
  if (panel.deliver != Deliver::kResults) {
    task.deliver = panel.deliver;
    task.states = reinterpret_cast<float*>(work.states) + at.states();
  }
  return task;
}

// `count` rows of `dim` elements at `data`, if they lie together.
FetchAhead rows_together(const void* data, int64_t len_stride, int64_t dim_stride, int64_t dim, int64_t count,
                         int32_t type) {
  FetchAhead ahead;
  if (data == nullptr || len_stride != dim || dim_stride != 1) return ahead;
  ahead.data = static_cast<const char*>(data);
  ahead.lines = (count * dim * type_size(type) + 63) / 64;
  return ahead;
}

// Longer sequences stream through the caches by themselves.
constexpr int64_t kLongestAhead = 1024;

// What the task at `next` will read first, as hints for `task`: short sequences read every row once, and would wait for
// memory at each (L = S = 128, 96 heads: 75 to 81 % of the long rate; docs/PERFORMANCE.md).
void hint(const Work& work, const TaskCursor& next, Task& task) {
  const Task then = full_task(work, next, nullptr);
  if (then.kv_len > kLongestAhead) return;
  if (then.group_size == 1) {
    const char* q = static_cast<const char*>(then.q.data) + then.row_begin * then.q.len_stride * type_size(then.q.type);
    task.ahead[0] =
        rows_together(q, then.q.len_stride, then.q.dim_stride, then.qk_dim, then.row_end - then.row_begin, then.q.type);
  }
  if (then.k.data == task.k.data || then.k.page_table != nullptr) return;
  task.ahead[1] =
      rows_together(then.k.data, then.k.len_stride, then.k.dim_stride, then.qk_dim, then.kv_len, then.k.type);
  task.ahead[2] =
      rows_together(then.v.data, then.v.len_stride, then.v.dim_stride, then.v_dim, then.kv_len, then.v.type);
}

void merge_panel(const Work& work, const TaskCursor& at, void* scratch) {
  work.plan.kernels.merge_pieces(full_task(work, at, scratch), at.panel().first_unit, at.panel().units);
}

// next: what this worker is likely to do afterwards; nullptr: unknown.
void run_task(const Work& work, const TaskCursor& at, const TaskCursor* next, bool merge, void* scratch) {
  const Panel& panel = at.panel();
  Task task = full_task(work, at, scratch);
  if (panel.deliver != Deliver::kResults) {
    // Units [from, to) of the panel are this piece's.
    const int64_t unit = panel.deliver == Deliver::kSpans ? kSpanKeys : kBlockKeys;
    const int64_t from = panel.units * at.piece() / panel.pieces;
    const int64_t to = panel.units * (at.piece() + 1) / panel.pieces;
    task.key_begin = std::max(panel.key_begin, (panel.first_unit + from) * unit - task.kv_start);
    task.key_end = std::min(panel.key_end, (panel.first_unit + to) * unit - task.kv_start);
    task.states += from * at.state_size();
  }
  if (next != nullptr) hint(work, *next, task);
  const KernelTable& kernels = work.plan.kernels;
  if (panel.row_end - panel.row_begin <= kernels.few_rows) {
    kernels.keys_in_lanes(task);
  } else {
    (task.native_bf16 ? kernels.native_rows_in_lanes : kernels.rows_in_lanes)(task);
  }
  if (panel.deliver == Deliver::kResults || !merge) return;
  // The last piece to arrive merges: no task waits for another.
  if (work.arrivals[at.split()].fetch_add(1, std::memory_order_acq_rel) == panel.pieces - 1)
    merge_panel(work, at, scratch);
}

// A kv head's rows of K or V lie in runs too short for memory to be read at its full rate, with other heads' rows
// between them: tokens before heads, or small pages (docs/PERFORMANCE.md: runs of 512 bytes lose a third).
bool heads_interleave(const Run& run, const lw_const_tensor& tensor) {
  constexpr int64_t kLongRun = 32768;  // bytes
  const lw_problem& p = run.problem;
  const bool paged = p.kv_layout == LW_LAYOUT_PAGED;
  const int64_t tokens = paged ? p.page_size : p.kv_layout == LW_LAYOUT_RAGGED ? p.total_kv : p.kv_len;
  if (tokens <= 1) return paged;  // the stride of tokens is not used
  const int64_t head = std::abs(tensor.stride[1]), token = std::abs(tensor.stride[2]);
  return head < token || (paged && p.page_size < kLongRun / std::max<int64_t>(1, token * type_size(tensor.type)));
}

// kv heads whose rows of one token together fill a small page of memory: what is worth reading in one go.
int64_t heads_together_of(const Run& run) {
  constexpr int64_t kWorthReading = 4096;  // bytes
  const lw_inputs& in = run.inputs;
  if (run.problem.kv_heads == 1 || in.k.stride[3] != 1 || in.v.stride[3] != 1) return 1;
  if (!heads_interleave(run, in.k) && !heads_interleave(run, in.v)) return 1;
  const int64_t row = std::min(run.problem.qk_dim, run.problem.v_dim) * type_size(in.k.type);
  return std::clamp<int64_t>((kWorthReading + row - 1) / row, 1, std::min(run.problem.kv_heads, kMaxTogetherRows));
}

// Of the whole run, without rules: enough to tell whether threads are worth waking.
double multiply_adds(const Run& run) {
  const lw_problem& p = run.problem;
  double pairs = 0;
  for (int64_t b = 0; b < p.batch; ++b) pairs += static_cast<double>(run.q_len(b)) * static_cast<double>(run.kv_len(b));
  return pairs * static_cast<double>(p.q_heads) * static_cast<double>(p.qk_dim + p.v_dim);
}

// `threads`: as many as there may be; comes back as those worth waking.
Work work_of(const lw_plan& plan, const Run& run, void* workspace, int32_t& threads) {
  const bool paged = run.problem.kv_layout == LW_LAYOUT_PAGED;
  // native_bf16 reads keys as they are, and always copies values: it pairs their rows.
  const bool native = run.problem.arithmetic == LW_ARITHMETIC_NATIVE_BF16;
  const bool pack_k = paged || (native ? strides_need_packing(run.inputs.k) : must_pack(run.inputs.k));
  const bool pack_v = paged || must_pack(run.inputs.v);
  threads = static_cast<int32_t>(std::min<double>(threads, 1 + multiply_adds(run) / kWorkPerThread));
  const Rules rules = rules_of(run.problem, run.inputs.q_positions != nullptr);
  Work work = {plan,
               run,
               rules,
               pack_k,
               pack_v,
               panel_tiles_of(plan, run.problem, threads),
               rules.plain() && run.problem.arithmetic != LW_ARITHMETIC_NATIVE_BF16 ? heads_together_of(run) : 1,
               kNeverCut,
               0,
               nullptr,
               nullptr,
               nullptr};
  if (threads > 1) {
    double total = 0;
    TaskCursor uncut(work);
    for (; !uncut.at_end(); uncut.next_panel()) total += uncut.panel().cost;
    work.largest_task = total / static_cast<double>(kPiecesPerThread * std::min(threads, kMaxCutThreads));
    TaskCursor cut(work);
    while (!cut.at_end()) cut.next_panel();
    work.split_panels = cut.split();
    threads = static_cast<int32_t>(std::max<int64_t>(1, std::min(int64_t{threads}, cut.first())));
  }
  const WorkspaceLayout layout = workspace_layout(plan, threads);
  work.states = static_cast<char*>(workspace);
  work.arrivals = reinterpret_cast<std::atomic<int32_t>*>(work.states + layout.states);
  work.scratch = work.states + layout.states + layout.arrivals;
  return work;
}

// One worker: takes tasks from the shared counter until none is left.
struct Share {
  const Work& work;
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  const volatile int32_t* should_stop;
  int64_t workers = 1;

  void run(int64_t worker) {
    const FpEnvironment environment;
    char* const scratch = work.scratch + worker * work.plan.task_scratch;
    TaskCursor cursor(work);
    for (;;) {
      if (should_stop != nullptr && *should_stop != 0) {
        stopped.store(true, std::memory_order_relaxed);
        return;
      }
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (!cursor.seek(index)) return;
      TaskCursor peek = cursor;  // workers take turns, more or less
      run_task(work, cursor, peek.seek(index + workers) ? &peek : nullptr, true, scratch);
    }
  }
};

void run_share(void* argument, int64_t worker) { static_cast<Share*>(argument)->run(worker); }

#if defined(_OPENMP)
// libgomp hangs when a forked child of a process with a thread team opens a region: the child stays on its calling
// thread. The process is remembered at load: its team may be the host's.
const pid_t kProcess = getpid();
bool is_forked_child() { return getpid() != kProcess; }
#endif

}  // namespace

int32_t threads_for(const lw_executor& executor) {
  if (executor.kind == LW_EXECUTOR_CALLER) return 1;
  if (executor.kind == LW_EXECUTOR_CALLBACK) return std::max(executor.threads, 1);
#if defined(_OPENMP)
  if (omp_in_parallel()) return 1;  // the host's threads already fill the machine
  // OMP_NUM_THREADS, affinity; a container's quota is unknown to the OpenMP runtimes.
  static const bool chosen_by_user = std::getenv("OMP_NUM_THREADS") != nullptr;
  const int32_t limit = executor.threads > 0 ? executor.threads : omp_get_max_threads();
  if (executor.threads > 0 || chosen_by_user) return limit;
  return std::min(limit, usable_cpus());
#else
  return 1;
#endif
}

lw_status execute(const lw_plan& plan, const Run& run, void* workspace, int32_t threads, const lw_executor& executor) {
  int32_t workers = threads;
  const Work work = [&] {
    const FpEnvironment environment;  // workers cut the same pieces in it
    return work_of(plan, run, workspace, workers);
  }();
  for (int64_t i = 0; i < work.split_panels; ++i) work.arrivals[i].store(0, std::memory_order_relaxed);
  Share share{work, {0}, {false}, executor.should_stop, workers};
  if (workers == 1) {
    share.run(0);
  } else if (executor.kind == LW_EXECUTOR_CALLBACK) {
    executor.parallel_for(executor.context, workers, &run_share, &share);
  } else {
#if defined(_OPENMP)
    if (is_forked_child()) {
      share.run(0);
    } else {
#pragma omp parallel num_threads(workers)
      share.run(omp_get_thread_num());
    }
#else
    share.run(0);
#endif
  }
  if (share.stopped.load(std::memory_order_relaxed))
    return failure(LW_STOPPED, "stopped by should_stop; outputs are incomplete");
  return ok();
}

lw_status execute_part(const lw_plan& plan, const Run& run, void* workspace, int32_t phase, int32_t ith, int32_t nth) {
  const FpEnvironment environment;
  int32_t threads = nth;
  const Work work = work_of(plan, run, workspace, threads);
  char* const scratch = work.scratch + ith * plan.task_scratch;
  TaskCursor cursor(work);
  if (phase == 0) {
    for (int64_t task = ith; cursor.seek(task); task += nth) {
      TaskCursor peek = cursor;
      run_task(work, cursor, peek.seek(task + nth) ? &peek : nullptr, false, scratch);
    }
  } else {
    for (; !cursor.at_end(); cursor.next_panel()) {
      if (cursor.panel().deliver != Deliver::kResults && cursor.split() % nth == ith)
        merge_panel(work, cursor, scratch);
    }
  }
  return ok();
}

}  // namespace lanewise
