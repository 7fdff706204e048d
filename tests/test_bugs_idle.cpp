// Failures other attention kernels had (docs/RELIABILITY.md), groups R, S and W, that show in who works on what: scratch
// taken back too early, teams that spin, keys read for nothing, threads without work. What is counted here is memory and
// parts, not time, so a loaded machine changes nothing.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// One sequence whose keys are cut among threads.
Case shared_keys() { return Case().heads(3, 1).len(1, 24000).dims(64); }

// Each share on a thread of its own that starts late, every other one much later.
void late_shares(void*, int64_t n, lw_share share, void* argument) {
  std::vector<std::thread> team;
  for (int64_t i = 0; i < n; ++i) {
    team.emplace_back([=] {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 2 ? 300 : 3000 * (i % 3)));
      share(argument, i);
    });
  }
  for (std::thread& thread : team) thread.join();
}

TEST_CASE("R09: scratch and states are no one's before all their readers have finished") {
  Case first = shared_keys(), second = shared_keys().seed(77);
  Case tiles = Case().heads(4, 2).len(70, 400).dims(64).causal();
  for_each_target([&](const std::string& target) {
    for (Case* c : {&first, &tiles}) {
      const Result wanted = c->run({target});
      CHECK(Expectation(*c).difference(wanted) == "");
    }
    // One workspace, never cleaned, for runs that follow at once and have other contents.
    Prepared prepared[] = {first.prepare(), second.prepare()};
    const Result wanted[] = {first.run({target}), second.run({target})};
    const PreparedPlan plan(prepared[0].problem, target);
    const int64_t size = lw_plan_workspace_size(plan.get(), 6);
    GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
    lw_executor executor = lw_executor_default();
    executor.kind = LW_EXECUTOR_CALLBACK;
    executor.threads = 6;
    executor.parallel_for = late_shares;
    for (size_t n = 0; n < 6; ++n) {
      Prepared& p = prepared[n % 2];
      REQUIRE(lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code == LW_OK);
      CHECK(std::memcmp(p.out.data(), wanted[n % 2].out.values.data(), p.out.size()) == 0);
      CHECK(std::memcmp(p.lse.data(), wanted[n % 2].lse.values.data(), p.lse.size()) == 0);
      count_case(target);
    }
  });
}

// Clang's runtime spins for 200 ms by itself (KMP_BLOCKTIME); GNU's for some.
#if defined(_OPENMP) && !defined(__clang__)
double process_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_CASE("S09: a team without work leaves the processor to others") {
  Case c = Case().heads(8, 8).len(200, 400).dims(64);
  for_each_target([&](const std::string& target) {
    for (const int32_t threads : {2, 4}) {
      CHECK(Expectation(c).difference(c.run({target, threads})) == "");
      const double before = process_seconds();
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      CHECK(process_seconds() - before < 0.2);
    }
  });
}
#endif

// Whole pages of a buffer outside the rows that are kept, inaccessible while this lives.
class Fenced {
 public:
  Fenced(const GuardedBuffer& buffer, size_t heads, size_t rows, size_t row_bytes, size_t first_kept) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t head = 0; head < heads; ++head) {
      const uintptr_t begin = reinterpret_cast<uintptr_t>(buffer.data()) + head * rows * row_bytes;
      const uintptr_t from = (begin + page - 1) / page * page, to = (begin + first_kept * row_bytes) / page * page;
      if (from >= to) continue;
      ranges_.push_back({reinterpret_cast<void*>(from), to - from});
      REQUIRE(mprotect(ranges_.back().first, to - from, PROT_NONE) == 0);
    }
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() {
    for (const auto& [at, size] : ranges_) mprotect(at, size, PROT_READ | PROT_WRITE);
  }
  size_t bytes() const {
    size_t sum = 0;
    for (const auto& [at, size] : ranges_) sum += size;
    return sum;
  }

 private:
  std::vector<std::pair<void*, size_t>> ranges_;
};

TEST_CASE("W03: decode with a window reads the keys in the window alone") {
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  constexpr size_t kKeys = 20000, kDim = 64, kHeads = 2;
  const size_t element = storage.type == LW_TYPE_F32 ? 4 : 2;
  for (const int64_t q_len : {1, 7, 40}) {
    const size_t window = 300;
    Case c = Case().stored_as(storage).heads(4, kHeads).len(q_len, kKeys).dims(kDim).causal();
    c.window(static_cast<int64_t>(window) - 1, -1);
    const Expectation expected(c);
    for_each_target_of(c, [&](const std::string& target) {
      Prepared p = c.prepare();
      const size_t first = kKeys - window - static_cast<size_t>(q_len) + 1;
      const Fenced k(p.k, kHeads, kKeys, kDim * element, first), v(p.v, kHeads, kKeys, kDim * element, first);
      CHECK(k.bytes() > kHeads * kKeys * kDim * element * 9 / 10);
      for (const int32_t threads : {1, 3}) {
        const Result result = run_prepared(p, {target, threads, Runner::kPartsReversed});
        CHECK(result.damage == "");
        CHECK(expected.difference(result) == "");
      }
    });
  }
}

TEST_CASE("W05: threads beyond the heads get keys of one sequence: without any of them nothing is done") {
  Case c = Case().heads(1, 1).len(1, 32768).dims(128);
  for_each_target([&](const std::string& target) {
    const Result wanted = c.run({target});
    CHECK(Expectation(c).difference(wanted) == "");
    for (const int32_t parts : {2, 3, 7}) {
      for (int32_t missing = 0; missing < parts; ++missing) {
        Prepared p = c.prepare();
        const PreparedPlan plan(p.problem, target);
        const int64_t size = lw_plan_workspace_size(plan.get(), parts);
        GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
        const auto run_part = [&](int32_t phase, int32_t ith) {
          CHECK(lw_run_part(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, phase, ith, parts).code ==
                LW_OK);
        };
        const auto in_phase = [&](int32_t phase, bool late) {
          for (int32_t ith = 0; ith < parts; ++ith) {
            if ((ith == missing) == late) run_part(phase, ith);
          }
        };
        reset_outputs(p);
        in_phase(0, false);
        INFO("part " << missing << " of " << parts << " has no work");
        CHECK(outputs_untouched(p));
        in_phase(0, true);
        for (int32_t phase = 1; phase < lw_plan_phases(plan.get()); ++phase) {
          in_phase(phase, false);
          in_phase(phase, true);
        }
        CHECK(std::memcmp(p.out.data(), wanted.out.values.data(), p.out.size()) == 0);
        count_case(target);
      }
    }
  });
}

}  // namespace
}  // namespace lanewise::test
