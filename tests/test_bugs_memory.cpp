// Failures other attention kernels had (docs/RELIABILITY.md), groups P, T, U, and rows of R and W that need nothing
// more: work buffers, alignment, targets, the floating-point environment, memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/float_mode.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

TEST_CASE("P01: the work size is enough for tasks of several tiles of rows, with keys and values copied") {
  constexpr Layout kSpread = Layout::kSpread;
  for (Case c : {Case().heads(4, 4).len(1000, 16).dims(64), Case().heads(1, 1).len(1000, 16).dims(128)}) {
    c.layouts(kSpread, kSpread, kSpread, kSpread);
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      Prepared p = c.prepare();
      const Result result = PreparedPlan(p.problem, target).run(p, {target, 1, Runner::kCaller});
      CHECK(result.damage == "");
      CHECK(expected.difference(result) == "");
    });
  }
}

TEST_CASE("P01: the work size asked for is enough, for any number of threads") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t kv_len : {1, 100, 2048, 2049}) {
    Case c = Case().stored_as(storage).heads(2, 2).len(1, kv_len).dims(128);
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      const Result alone = plan.run(p, {target});
      CHECK(expected.difference(alone) == "");
      for (int32_t threads = 2; threads <= 96; threads += threads < 8 ? 1 : 11) {
        const Result result = plan.run(p, {target, threads, Runner::kPartsReversed});
        CHECK(result.damage == "");
        CHECK(bit_difference(alone, result) == "");
      }
    });
  }
}

TEST_CASE("P03: one bad length among good ones") {
  const std::vector<int32_t> bad_lengths = {-1, INT32_MIN, 31, INT32_MAX};
  for_each_target([&](const std::string& target) {
    for (const int32_t bad : bad_lengths) {
      for (size_t at = 0; at < 3; ++at) {
        Case c = Case().batch(3).len(4, 30).dims(16);
        Prepared p = c.prepare();
        std::vector<int32_t> lengths = {30, 7, 30};
        lengths[at] = bad;
        p.inputs.kv_lengths = lengths.data();
        const Result result = run_prepared(p, {target, 2});
        CHECK(result.status.code == LW_INVALID_ARGUMENT);
        CHECK(std::string(result.status.message)
                  .find("kv_lengths[" + std::to_string(at) + "] is " + std::to_string(bad)) != std::string::npos);
        CHECK(result.damage == "");
      }
    }
  });
}

TEST_CASE("P05: a context at the cache's capacity, and past it") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (const int64_t context : {63, 64}) Case().stored_as(storage).len(1, context).dims(32).capacity(1, 1, 64).check();
  for_each_target_of(Case().stored_as(storage), [&](const std::string& target) {
    Case past = Case().stored_as(storage).len(1, 65).dims(32).capacity(1, 1, 64);
    const Result result = past.run({target});
    CHECK(result.status.code == LW_INVALID_ARGUMENT);
    CHECK(result.damage == "");
  });
}

// A copy of a buffer that starts `by` bytes after a 64-byte boundary.
struct Shifted {
  GuardedBuffer buffer;
  uint8_t* data;
  Shifted(const GuardedBuffer& from, int64_t by) : buffer(from.size() + 64, Edge::kStart), data(buffer.data() + by) {
    std::memcpy(data, from.data(), from.size());
  }
};

TEST_CASE("P07: any alignment of any tensor, masks and biases too") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const int64_t element = type_size(storage.type);
  Case c = Case().stored_as(storage).heads(2, 1).len(7, 45).dims(19, 13).causal();
  Array keep({1, 2, 7, 45}, 1);
  for (size_t n = 0; n < keep.values.size(); n += 4) keep.values[n] = 0;
  c.mask(keep).bias(random_array({1, 2, 7, 45}, 4), storage.type);
  c.check();
  for_each_target_of(c, [&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const int64_t size = lw_plan_workspace_size(plan.get(), 1);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    std::vector<uint8_t> plain;
    for (int shifts = 0; shifts < 128; ++shifts) {
      const auto by = [&](int bit, int64_t bytes) { return shifts >> bit & 1 ? bytes : 0; };
      Shifted q(p.q, by(0, element)), k(p.k, by(1, element)), v(p.v, by(2, element)), out(p.out, by(3, element)),
          lse(p.lse, by(4, 4)), mask(p.mask, by(5, 1)), bias(p.bias, by(6, element));
      p.inputs.q.data = q.data;
      p.inputs.k.data = k.data;
      p.inputs.v.data = v.data;
      p.inputs.mask.data = mask.data;
      p.inputs.bias.data = bias.data;
      p.outputs.out.data = out.data;
      p.outputs.lse.data = lse.data;
      REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, nullptr).code == LW_OK);
      std::vector<uint8_t> bytes(out.data, out.data + p.out.size());
      bytes.insert(bytes.end(), lse.data, lse.data + p.lse.size());
      if (shifts == 0) plain = bytes;
      CHECK(bytes == plain);
      count_case(target);
    }
  });
}

TEST_CASE("P09: statistics of one head do not race with its neighbour's") {
  Case c = Case().heads(64, 64).len(17, 17).dims(16);
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result first = plan.run(p, {target});
    CHECK(expected.difference(first) == "");
    for (int n = 0; n < 100; ++n) {
      const Result result = plan.run(p, {target, 16, Runner::kPartsOnThreads});
      if (!bit_difference(first, result).empty()) FAIL(bit_difference(first, result));
    }
  });
}

TEST_CASE("R07: the output does not need lse to be asked for") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  Case c = Case().stored_as(storage).heads(4, 4).len(1, 8192).dims(16);
  const Expectation expected(c);
  for_each_target_of(c, [&](const std::string& target) {
    const Result with_lse = c.run({target, 8});
    CHECK(expected.difference(with_lse) == "");
    CHECK(bit_difference(with_lse.out, Case(c).without_lse().run({target, 8}).out) == "");
  });
}

TEST_CASE("T01: every head size up to four vectors and a bit, on every target") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  for (int64_t dim = 1; dim <= 67; ++dim) {
    for (const int query : {0, 1, 2}) {  // one-hot, ones, random
      Case c = Case().stored_as(storage).len(2, 20).dims(dim);
      if (query == 0) c.q().each([&](int64_t, int64_t, int64_t, int64_t x, float& value) { value = x == dim - 1; });
      if (query == 1) c.q().fill(1);
      const Expectation expected(c);
      Result first;
      for_each_target_of(c, [&](const std::string& target) {
        const Result result = c.run({target});
        INFO("dim " << dim << ", query " << query << " on " << target);
        CHECK(expected.difference(result) == "");
        if (first.target.empty()) first = result;
        if (has_fma(target) && has_fma(first.target)) CHECK(bit_difference(first, result) == "");
        for (size_t n = 0; n < result.out.values.size(); ++n) {
          const double value = static_cast<double>(first.out.values[n]);
          const double off = static_cast<double>(result.out.values[n]) - value;
          if (!(std::fabs(off) <= 1e-6 + 2 * rounding_bound(storage.type, value)))
            FAIL("element " << n << " off " << off);
        }
      });
    }
  }
}

bool keeps_denormals() {
  volatile float tiny = 1e-39f, one = 1.0f;
  return tiny * one != 0;
}

TEST_CASE("U01: the host's threads keep their denormals and their control register") {
  const uint64_t before = float_mode() & ~kFlags;
  CHECK(keeps_denormals());
  Case c = Case().heads(8, 8).len(64, 300).dims(32);
  for_each_target([&](const std::string& target) {
    for (const Runner runner : {Runner::kCaller, Runner::kOpenmp, Runner::kCallback}) {
      CHECK(c.run({target, 3, runner}).status.code == LW_OK);
      CHECK((float_mode() & ~kFlags) == before);
      CHECK(keeps_denormals());
      std::atomic<bool> later{false};
      std::thread([&] { later = keeps_denormals() && (float_mode() & ~kFlags) == before; }).join();
      CHECK(later);
    }
  });
}

// kB of the process, "VmHWM" (peak resident) or "VmRSS".
int64_t memory_of(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kb = 0;
    if (word == std::string(field) + ":" && status >> kb) return kb;
  }
  return -1;
}

// Peak resident memory that a run adds to its own inputs and outputs, in kB: in a process of its own, which does not
// start from the peak of this one.
int64_t extra_memory(int64_t len, int32_t threads) {
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const int64_t heads = 2, dim = 64;
    const size_t count = static_cast<size_t>(heads * len * dim);
    std::vector<float> q(count, 0.5f), k(count, 0.25f), v(count, 1), out(count, 2);
    lw_problem problem = lw_problem_default();
    problem.q_heads = problem.kv_heads = heads;
    problem.q_len = problem.kv_len = len;
    problem.qk_dim = problem.v_dim = dim;
    problem.causal = 1;
    lw_inputs inputs = lw_inputs_default();
    lw_outputs outputs = lw_outputs_default();
    inputs.q = TensorView<const float>::bhld(q.data(), heads, len, dim);
    inputs.k = TensorView<const float>::bhld(k.data(), heads, len, dim);
    inputs.v = TensorView<const float>::bhld(v.data(), heads, len, dim);
    outputs.out = TensorView<float>::bhld(out.data(), heads, len, dim);
    lw_executor executor = lw_executor_default();
    // A forked child runs OpenMP on one thread: the callback uses the test's own.
    executor.kind = LW_EXECUTOR_CALLBACK;
    executor.threads = threads;
    executor.parallel_for = [](void*, int64_t n, lw_share share, void* argument) {
      std::vector<std::thread> team;
      for (int64_t i = 0; i < n; ++i) team.emplace_back(share, argument, i);
      for (std::thread& thread : team) thread.join();
    };
    // Mapped, not from malloc, which may fill what it gives: only what the library touches counts.
    Plan plan;
    bool good = Plan::make(problem, plan).ok();
    const int64_t size = plan.workspace_size(threads);
    void* workspace =
        mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int64_t before = memory_of("VmRSS");
    good = good && plan.run(inputs, outputs, workspace, size, executor).ok() && out[count - 1] != 2;
    const int64_t extra = good ? memory_of("VmHWM") - before : -1;
    const bool told = write(channel[1], &extra, sizeof extra) == sizeof extra;
    _exit(told ? 0 : 1);
  }
  int64_t extra = -1;
  CHECK(read(channel[0], &extra, sizeof extra) == sizeof extra);
  waitpid(child, nullptr, 0);
  close(channel[0]);
  close(channel[1]);
  return extra;
}

TEST_CASE("W01: memory does not grow with the length") {
  for (const int32_t threads : {1, 2}) {
    const int64_t small = extra_memory(1024, threads), large = extra_memory(6144, threads);
    INFO("extra resident memory with " << threads << " threads: " << small << " and " << large << " kB");
    CHECK(small >= 0);
    CHECK(large >= 0);
    CHECK(large <= threads * 8 * 1024);
    // The score matrix of 6144 x 6144 alone would be 144 MB a head.
    CHECK(large <= small + small / 10 + 512);
  }
}

}  // namespace
}  // namespace lanewise::test
