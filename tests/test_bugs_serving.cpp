// Failures other attention kernels had (docs/RELIABILITY.md), groups P, Q, R and S, where one sequence's keys are shared
// by threads: work buffers, capacity, alignment, huge strides, order of arrival, hosts with threads of their own.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// One sequence, one kv head, and enough work that every thread gets pieces of it.
Case shared_by_threads() { return Case().heads(2, 1).len(1, 20000).dims(96); }

TEST_CASE("P01: the work size for 1 to 96 threads is enough where they share one sequence") {
  std::vector<Case> cases = {shared_by_threads(), Case().heads(1, 1).len(20, 9000).dims(64).causal(),
                             Case().batch(3).heads(2, 2).len(1, 9000).dims(64).kv_lengths({9000, 5, 2000}).paged(16)};
  for (Case& c : cases) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      const Result alone = plan.run(p, {target});
      CHECK(expected.difference(alone) == "");
      for (int32_t threads = 2; threads <= 96; threads += threads < 9 ? 1 : 11) {
        const Result result = plan.run(p, {target, threads, Runner::kPartsReversed});
        INFO(threads << " threads on " << target);
        CHECK(result.damage == "");
        CHECK(bit_difference(alone, result) == "");
      }
    });
  }
}

TEST_CASE("P05: a context at the capacity of pages and of ragged room, and past it") {
  for (const bool paged : {false, true}) {
    for (const int32_t context : {63, 64, 65}) {
      Case c = Case().heads(4, 2).len(1, context).dims(32);
      c = paged ? c.paged(16) : c.ragged_kv();
      const Expectation expected(c);
      for_each_target([&](const std::string& target) {
        Prepared p = c.prepare();
        p.problem.kv_len = 64;
        p.inputs.kv_len = paged ? -1 : std::min(context, 64);
        p.problem.total_kv = 64;
        const Result result = run_prepared(p, {target, 2});
        CHECK(result.damage == "");
        if (context <= 64) {
          CHECK(expected.difference(result) == "");
        } else {
          CHECK(result.status.code == LW_INVALID_ARGUMENT);
        }
      });
    }
  }
}

// A copy of a buffer that starts one element after a 64-byte boundary, or at one.
struct Shifted {
  GuardedBuffer buffer;
  uint8_t* data;
  Shifted(const GuardedBuffer& from, bool shift)
      : buffer(from.size() + 64, Edge::kStart), data(buffer.data() + (shift ? 4 : 0)) {
    std::memcpy(data, from.data(), from.size());
  }
};

TEST_CASE("P07: any alignment of any tensor in decode, dense and paged") {
  for (const int64_t page_size : {0, 8}) {
    Case c = Case().heads(3, 1).len(1, 45).dims(67, 33);
    if (page_size) c.paged(page_size);
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result plain = c.run({target});
      CHECK(expected.difference(plain) == "");
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      const int64_t size = lw_plan_workspace_size(plan.get(), 1);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      for (int shifts = 0; shifts < 32; ++shifts) {
        Shifted q(p.q, shifts & 1), k(p.k, shifts & 2), v(p.v, shifts & 4), out(p.out, shifts & 8),
            lse(p.lse, shifts & 16);
        lw_inputs in = p.inputs;
        lw_outputs to = p.outputs;
        in.q.data = q.data;
        in.k.data = k.data;
        in.v.data = v.data;
        to.out.data = out.data;
        to.lse.data = lse.data;
        REQUIRE(lw_run(plan.get(), &in, &to, workspace.data(), size, nullptr).code == LW_OK);
        CHECK(std::memcmp(out.data, plain.out.values.data(), p.out.size()) == 0);
        CHECK(std::memcmp(lse.data, plain.lse.values.data(), p.lse.size()) == 0);
        count_case(target);
      }
    });
  }
}

// Element x of token t of page n at (n * 2^29 + t * 2^26 + x) elements: tens of GB of addresses, of which a few pages of
// memory are touched.
TEST_CASE("Q03: strides of pages and tokens past 2^31 elements") {
  constexpr int64_t kPage = int64_t{1} << 29, kToken = int64_t{1} << 26, kDim = 16;
  Case c = Case().heads(2, 1).len(1, 33).dims(kDim).paged(7);
  const Expectation expected(c);
  const int64_t pages = c.prepare().problem.page_count;
  const size_t bytes = sizeof(float) * static_cast<size_t>(pages * kPage);
  std::vector<float*> maps;
  for (int n = 0; n < 2; ++n) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) SKIP("no address space for " << bytes << " bytes");
    maps.push_back(static_cast<float*>(map));
  }
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    size_t n = 0;
    for (lw_const_tensor* tensor : {&p.inputs.k, &p.inputs.v}) {
      const float* from = static_cast<const float*>(tensor->data);
      for (int64_t row = 0; row < pages * 7; ++row) {
        std::copy_n(from + row * kDim, kDim, maps[n] + row / 7 * kPage + row % 7 * kToken);
      }
      tensor->data = maps[n++];
      tensor->stride[0] = kPage;
      tensor->stride[2] = kToken;
    }
    for (const int32_t threads : {1, 7}) {
      CHECK(expected.difference(run_prepared(p, {target, threads, Runner::kPartsReversed})) == "");
    }
  });
  for (float* map : maps) munmap(map, bytes);
}

TEST_CASE("R03: pieces arrive in another order on a loaded machine, with the same bits") {
  Case c = shared_by_threads();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    const PreparedPlan plan(p.problem, target);
    const Result wanted = plan.run(p, {target});
    CHECK(expected.difference(wanted) == "");
    std::atomic<bool> done{false};
    std::thread load([&] {
      while (!done) continue;
    });
    for (int n = 0; n < 40; ++n) {
      const Result result = plan.run(p, {target, 8, n % 4 == 3 ? Runner::kCallback : Runner::kOpenmp});
      if (!bit_difference(wanted, result).empty()) FAIL("run " << n << ": " << bit_difference(wanted, result));
    }
    done = true;
    load.join();
  });
}

TEST_CASE("R07: pieces merge without lse being asked for") {
  for (Case& c : std::vector<Case>{shared_by_threads(), Case().heads(1, 1).len(1, 8192).dims(128)}) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      for (const Runner runner : {Runner::kOpenmp, Runner::kPartsReversed}) {
        const Result with_lse = c.run({target, 8, runner});
        CHECK(expected.difference(with_lse) == "");
        CHECK(bit_difference(with_lse.out, Case(c).without_lse().run({target, 8, runner}).out) == "");
      }
    });
  }
}

TEST_CASE("S07, S11: eight host threads share one plan for batches, pages and long sequences that change") {
  const std::vector<Case> shapes = {
      Case().heads(4, 2).len(1, 9000).dims(48), Case().heads(4, 2).len(1, 700).dims(48).paged(16),
      Case().batch(3).heads(4, 2).len(20, 90).dims(48).causal().q_lengths({20, 1, 0}).kv_lengths({90, 33, 5}).paged(8),
      Case().batch(2).heads(4, 2).len(2, 3000).dims(48).causal().ragged_q().ragged_kv()};
  for_each_target([&](const std::string& target) {
    std::vector<Result> wanted;
    std::vector<std::vector<Prepared>> prepared(8);
    std::vector<std::unique_ptr<PreparedPlan>> plans;
    for (const Case& shape : shapes) {
      Case c = shape;
      for (std::vector<Prepared>& own : prepared) own.push_back(c.prepare());
      plans.push_back(std::make_unique<PreparedPlan>(prepared[0].back().problem, target));
      wanted.push_back(plans.back()->run(prepared[0].back(), {target}));
      CHECK(Expectation(c).difference(wanted.back()) == "");
    }
    std::vector<std::vector<uint8_t>> right;
    for (size_t n = 0; n < shapes.size(); ++n) {
      Prepared& p = prepared[0][n];
      const int64_t size = lw_plan_workspace_size(plans[n]->get(), 1);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      const lw_executor executor = Executor::caller();
      REQUIRE(lw_run(plans[n]->get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
      right.emplace_back(p.out.data(), p.out.data() + p.out.size());
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> hosts;
    for (size_t host = 0; host < 8; ++host) {
      hosts.emplace_back([&, host] {
        for (size_t n = 0; n < 16; ++n) {
          const size_t shape = (n * 3 + host) % shapes.size();
          Prepared& p = prepared[host][shape];
          const lw_plan* plan = plans[shape]->get();
          const lw_executor executor = Executor::openmp(n % 2 ? 4 : 1);
          const int64_t size = lw_plan_workspace_size(plan, 4);
          GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
          reset_outputs(p);
          bool good = lw_run(plan, &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK;
          good = good && std::memcmp(p.out.data(), right[shape].data(), p.out.size()) == 0;
          wrong += !good || !workspace.canaries_intact();
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    CHECK(wrong == 0);
  });
}

}  // namespace
}  // namespace lanewise::test
