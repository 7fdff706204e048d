// Failures other attention kernels had (docs/RELIABILITY.md), groups R and S: thread runtimes when embedded. Run a
// second time under OMP_THREAD_LIMIT=2.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "src/schedule.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lanewise::test {
namespace {

// Enough work that every thread asked for is used.
Case busy() { return Case().heads(5, 5).len(129, 300).dims(48).causal(); }
// The same where threads share one kv head's keys.
Case pieces() { return Case().heads(2, 1).len(1, 20000).dims(96); }

TEST_CASE("S01: a forked child answers after the parent has used its threads") {
  for (Case c : {busy(), pieces()}) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result wanted = c.run({target, 4});
      CHECK(expected.difference(wanted) == "");
      const pid_t child = fork();
      if (child == 0) {  // no assertion here: the report is the parent's
        bool same = true;
        for (const int32_t threads : {4, 1}) same = same && bit_difference(wanted, c.run({target, threads})).empty();
        _exit(same ? 0 : 1);
      }
      REQUIRE(child > 0);
      int status = -1;
      pid_t ended = 0;
      for (int tenths = 0; tenths < 600 && ended == 0; ++tenths) {  // 60 s: sanitizers and emulators are slow
        ended = waitpid(child, &status, WNOHANG);
        if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      if (ended == 0) kill(child, SIGKILL);
      REQUIRE(ended == child);
      CHECK(status == 0);
    });
  }
}

#if defined(_OPENMP)
TEST_CASE("S03: the runtime gives fewer threads than asked for") {
  const int dynamic = omp_get_dynamic();
  for (Case c : {busy(), pieces()}) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result wanted = c.run({target, 4});
      for (const int on : {0, 1}) {
        omp_set_dynamic(on);
        for (const int32_t threads : {2, 8, 40}) {
          const Result result = c.run({target, threads});
          CHECK(result.damage == "");
          CHECK(expected.difference(result) == "");
          CHECK(bit_difference(wanted, result) == "");
        }
      }
      omp_set_dynamic(dynamic);
    });
  }
}

TEST_CASE("S05: calls from inside the host's own parallel region") {
  for (Case c : {busy(), pieces()}) {
    const Expectation expected(c);
    for_each_target([&](const std::string& target) {
      const Result wanted = c.run({target});
      CHECK(expected.difference(wanted) == "");
      std::vector<Prepared> prepared;
      for (int n = 0; n < 4; ++n) prepared.push_back(c.prepare());
      const PreparedPlan plan(prepared[0].problem, target);
      const int64_t size = lw_plan_workspace_size(plan.get(), 16);
      std::vector<GuardedBuffer> workspaces;
      for (int n = 0; n < 4; ++n) workspaces.emplace_back(static_cast<size_t>(size), Edge::kEnd, 64);
      std::atomic<int> succeeded{0};
#pragma omp parallel for num_threads(4)
      for (int n = 0; n < 4; ++n) {
        const lw_executor executor = Executor::openmp(16);
        const Prepared& p = prepared[static_cast<size_t>(n)];
        void* workspace = workspaces[static_cast<size_t>(n)].data();
        succeeded += lw_run(plan.get(), &p.inputs, &p.outputs, workspace, size, &executor).code == LW_OK;
      }
      CHECK(succeeded == 4);
      for (const Prepared& p : prepared) {
        CHECK(std::memcmp(p.out.data(), wanted.out.values.data(), p.out.size()) == 0);
      }
    });
  }
}
#endif

TEST_CASE("S07, S11: eight host threads with shapes, pointers and contents that change") {
  const std::vector<Case> shapes = {Case().heads(4, 2).len(1, 200).dims(64),
                                    Case().heads(2, 2).len(40, 40).dims(17, 9).causal(),
                                    Case().batch(2).heads(5, 1).len(33, 130).dims(32).causal(),
                                    Case().heads(1, 1).len(4, 4).dims(64), Case().heads(8, 8).len(64, 100).dims(48)};
  for_each_target([&](const std::string& target) {
    std::vector<Case> cases = shapes;
    std::vector<Result> wanted;
    for (Case& c : cases) {
      wanted.push_back(c.run({target}));
      CHECK(Expectation(c).difference(wanted.back()) == "");
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> hosts;
    for (int host = 0; host < 8; ++host) {
      hosts.emplace_back([&, host] {
        std::vector<Case> own = cases;
        for (size_t n = 0; n < 25; ++n) {
          const size_t shape = (n * 3 + static_cast<size_t>(host)) % own.size();
          // Buffers come and go: the same addresses with other contents.
          Prepared p = own[shape].prepare();
          lw_options options = lw_options_default();
          options.target = target.c_str();
          lw_plan* plan = nullptr;
          const lw_executor executor = Executor::openmp(n % 2 ? 4 : 1);
          bool good = lw_plan_make(&p.problem, &options, &plan).code == LW_OK;
          const int64_t size = lw_plan_workspace_size(plan, 4);
          GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
          good = good && lw_run(plan, &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK;
          good = good && std::memcmp(p.out.data(), wanted[shape].out.values.data(), p.out.size()) == 0;
          wrong += !good;
          lw_plan_free(plan);
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    CHECK(wrong == 0);
  });
}

TEST_CASE("R03: a loaded machine hands out work in another order, with the same bits") {
  Case c = busy();
  const Expectation expected(c);
  for_each_target([&](const std::string& target) {
    const Result wanted = c.run({target});
    CHECK(expected.difference(wanted) == "");
    std::atomic<bool> done{false};
    std::thread load([&] {
      while (!done) continue;
    });
    for (int n = 0; n < 20; ++n) CHECK(bit_difference(wanted, c.run({target, 8})) == "");
    done = true;
    load.join();
  });
}

// As a host says "all there are". Threads beyond the work, or beyond the workspace, are not asked for and cost nothing.
TEST_CASE("INT32_MAX threads") {
  for (Case c : {busy(), pieces()}) {
    const Expectation expected(c);
    Prepared p = c.prepare();
    const auto attend = [&](const lw_executor& executor) {
      reset_outputs(p);
      CHECK(std::string(lw_attend(&p.problem, &p.inputs, &p.outputs, &executor).message) == "");
    };
    for_each_target([&](const std::string& target) {
      const Result wanted = c.run({target});
      CHECK(expected.difference(wanted) == "");
      const PreparedPlan plan(p.problem, target);
      const int64_t size = lw_plan_workspace_size(plan.get(), 3);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      for (lw_executor executor : {Executor::openmp(INT32_MAX), Executor::caller()}) {
        executor.threads = INT32_MAX;
        reset_outputs(p);
        const auto start = std::chrono::steady_clock::now();
        CHECK(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
        CHECK(std::memcmp(p.out.data(), wanted.out.values.data(), p.out.size()) == 0);
        if (has_fma(target) && has_fma(targets().front())) attend(executor);
        CHECK(std::memcmp(p.out.data(), wanted.out.values.data(), p.out.size()) == 0);
      }
      CHECK(workspace.canaries_intact());
    });
  }
#if defined(_OPENMP)
  // libgomp ends the process where it cannot start a thread.
  CHECK(threads_for(Executor::openmp(INT32_MAX)) <= std::max(1024, omp_get_num_procs()));
#endif
}

}  // namespace
}  // namespace lanewise::test
