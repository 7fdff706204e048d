// An engine with its own thread pool: lanewise hands it shares of a run through lw_executor.parallel_for.
//
//   c++ -std=c++17 main.cpp $(pkg-config --cflags --libs lanewise) -pthread -o pool && ./pool
#include <lanewise/lanewise.hpp>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

// The engine's pool, as small as it gets. What lanewise asks of it: share(argument, i) once for each i, on any threads
// in any order, and a return when all are done. The calling thread takes part here, but need not.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Pool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void parallel_for(int64_t n, lw_share share, void* argument) {
    std::unique_lock<std::mutex> lock(mutex_);
    share_ = share;
    argument_ = argument;
    next_ = 0;
    count_ = unfinished_ = n;
    wake_.notify_all();
    work(lock);
    done_.wait(lock, [this] { return unfinished_ == 0; });
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      work(lock);
      wake_.wait(lock, [this] { return stop_ || next_ < count_; });
    }
  }
  void work(std::unique_lock<std::mutex>& lock) {
    while (next_ < count_) {
      const int64_t index = next_++;
      lock.unlock();
      share_(argument_, index);
      lock.lock();
      if (--unfinished_ == 0) done_.notify_all();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  lw_share share_ = nullptr;
  void* argument_ = nullptr;
  int64_t next_ = 0, count_ = 0, unfinished_ = 0;
  bool stop_ = false;
};

// The C function that lanewise calls. It must return normally: no exception may leave it.
void run_in_pool(void* context, int64_t n, lw_share share, void* argument) {
  static_cast<Pool*>(context)->parallel_for(n, share, argument);
}

constexpr int64_t kHeads = 4, kLen = 300, kDim = 64, kElements = kHeads * kLen * kDim;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

int main() {
  std::vector<float> q(kElements), k(kElements), v(kElements), out(kElements), alone(kElements);
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
    k[i] = static_cast<float>(i * 53 % 103) / 50 - 1;
    v[i] = static_cast<float>(i * 71 % 107) / 50 - 1;
  }
  lanewise::Problem problem;
  problem.q_heads = problem.kv_heads = kHeads;
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1;
  lanewise::Plan plan;
  lanewise::Status status = lanewise::Plan::make(problem, plan);

  constexpr int kThreads = 3;
  const int64_t size = plan.workspace_size(kThreads);
  const std::unique_ptr<void, Free> workspace(std::aligned_alloc(64, static_cast<size_t>(size)));
  lanewise::Inputs inputs;
  inputs.q = lanewise::TensorView<const float>::bhld(q.data(), kHeads, kLen, kDim);
  inputs.k = lanewise::TensorView<const float>::bhld(k.data(), kHeads, kLen, kDim);
  inputs.v = lanewise::TensorView<const float>::bhld(v.data(), kHeads, kLen, kDim);
  lanewise::Outputs outputs;
  outputs.out = lanewise::TensorView<float>::bhld(out.data(), kHeads, kLen, kDim);

  Pool pool(kThreads);
  const lanewise::Executor executor = lanewise::Executor::callback(&pool, run_in_pool, kThreads);
  if (status) status = plan.run(inputs, outputs, workspace.get(), size, executor);

  // The calling thread alone gives the same bits.
  outputs.out.data = alone.data();
  if (status) status = plan.run(inputs, outputs, workspace.get(), size, lanewise::Executor::caller());
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  const bool same = std::memcmp(out.data(), alone.data(), out.size() * sizeof(float)) == 0;
  std::printf("a pool of %d threads: %s\n", kThreads, same ? "the bits of one thread" : "other bits than one thread");
  return same ? 0 : 1;
}
