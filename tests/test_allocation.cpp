// A run allocates nothing: every allocation of the process is counted, the C library's and operator new's. The first
// run of a process may start OpenMP's threads; from the second on the count must stand still. Where the library does
// allocate, each allocation fails once.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/statistics.hpp"
#include "support/targets.hpp"

// The sanitizers bring their own malloc; other C libraries have no second name for theirs.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LANEWISE_MALLOC_IS_TAKEN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LANEWISE_MALLOC_IS_TAKEN 1
#endif
#if defined(__GLIBC__) && !defined(LANEWISE_MALLOC_IS_TAKEN)
#define LANEWISE_COUNTS_ALLOCATIONS 1

namespace {
std::atomic<int64_t> allocations{0}, alive{0};
// Allocations until one fails; 0: none does. Of the calling thread: others must not take its failure.
thread_local int64_t until_failure = 0;

bool fails() {
  ++allocations;
  if (until_failure == 0 || --until_failure > 0) return false;
  errno = ENOMEM;
  return true;
}

void* counted(void* memory) {
  alive += memory != nullptr;
  return memory;
}
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

// These take the place of the C library's for the whole process, shared libraries included.
void* malloc(size_t size) { return fails() ? nullptr : counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return fails() ? nullptr : counted(__libc_calloc(count, size)); }
void* realloc(void* old, size_t size) {
  if (fails()) return nullptr;
  void* const moved = __libc_realloc(old, size);
  alive += (moved != nullptr) - (old != nullptr && (moved != nullptr || size == 0));
  return moved;
}
void* memalign(size_t alignment, size_t size) { return fails() ? nullptr : counted(__libc_memalign(alignment, size)); }
void free(void* memory) {
  alive -= memory != nullptr;
  __libc_free(memory);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
}
#endif

namespace lanewise::test {
namespace {

#if defined(LANEWISE_COUNTS_ALLOCATIONS)

TEST_CASE("the counter counts") {
  const int64_t before = allocations;
  // volatile: a compiler may leave out an allocation that nobody looks at.
  int* volatile by_new = new int(1);
  void* volatile by_malloc = std::malloc(1);
  const int64_t after = allocations;
  delete by_new;
  std::free(by_malloc);
  CHECK(after == before + 2);
}

TEST_CASE("from the second call on, a run allocates nothing") {
  const std::vector<Case> cases = {
      Case().heads(8, 2).len(130, 600).dims(64).causal(),
      Case().batch(2).heads(4, 4).len(1, 900).dims(128),
      // Copied K and V, states in and out.
      Case().heads(32, 32).len(40, 64).dims(128).layouts(Layout::kBlhd, Layout::kBlhd, Layout::kTransposed,
                                                         Layout::kBlhd),
      Case().heads(1, 1).len(4, 4).dims(64).with_state(),
  };
  for (Case c : cases) {
    for_each_target([&](const std::string& target) {
      Prepared p = c.prepare();
      const PreparedPlan plan(p.problem, target);
      REQUIRE(plan.status().code == LW_OK);
      const int64_t size = lw_plan_workspace_size(plan.get(), 2);
      GuardedBuffer workspace(static_cast<size_t>(size), Edge::kEnd, 64);
      for (const lw_executor& executor : {Executor::caller(), Executor::openmp(1), Executor::openmp(2)}) {
        const auto run = [&] {
          return lw_run(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, &executor).code;
        };
        const int32_t first = run();
        const int64_t before = allocations;
        const int32_t second = run(), third = run();
        const int64_t after = allocations;
        CHECK((first == LW_OK && second == LW_OK && third == LW_OK));
        INFO(target << ", executor " << executor.kind << ", " << executor.threads << " threads");
        CHECK(after - before == 0);
        count_case(target);
      }
      StatisticsBuffers statistics =
          place_statistics(p, Array({p.problem.batch, p.problem.q_heads, p.problem.q_len, 1}), {});
      for (const lw_executor& executor : {Executor::caller(), Executor::openmp(2)}) {
        const auto run = [&] {
          return lw_run_statistics(plan.get(), &p.inputs, &statistics.lse, &statistics.statistics, workspace.data(),
                                   size, &executor)
              .code;
        };
        const int32_t first = run();
        const int64_t before = allocations;
        const int32_t second = run();
        const int64_t after = allocations;
        CHECK((first == LW_OK && second == LW_OK));
        CHECK(after - before == 0);
      }
      const int64_t before = allocations;
      const int32_t part = lw_run_part(plan.get(), &p.inputs, &p.outputs, workspace.data(), size, 0, 1, 2).code;
      const int64_t after = allocations;
      CHECK(part == LW_OK);
      CHECK(after - before == 0);
    });
  }
}

TEST_CASE("wrong arguments allocate nothing either") {
  Prepared p = Case().len(4, 4).dims(64).prepare();
  const PreparedPlan plan(p.problem, targets().at(0));
  p.inputs.q.data = nullptr;
  const int64_t before = allocations;
  const int32_t code = lw_run(plan.get(), &p.inputs, &p.outputs, nullptr, 0, nullptr).code;
  const int64_t after = allocations;
  CHECK(code == LW_INVALID_ARGUMENT);
  CHECK(after == before);
}

// Calls what(n) with the n-th allocation failing, for n = 1, 2, ... until no allocation is left to fail.
template <class What>
int64_t fail_each(const What& what) {
  for (int64_t n = 1;; ++n) {
    until_failure = n;
    what();
    const bool failed = until_failure == 0;
    until_failure = 0;
    if (!failed) return n - 1;
  }
}

TEST_CASE("each allocation of plan_make and attend that fails is a status, and nothing leaks") {
  Case c = Case().batch(2).heads(8, 2).len(130, 600).dims(64).causal();
  for_each_target([&](const std::string& target) {
    Prepared p = c.prepare();
    lw_options options = lw_options_default();
    options.target = target.c_str();
    lw_status status = {};
    const int64_t before = alive;
    lw_plan* plan = nullptr;
    const int64_t in_make = fail_each([&] {
      lw_plan_free(plan);
      plan = reinterpret_cast<lw_plan*>(&p);
      const int64_t failing = until_failure;
      status = lw_plan_make(&p.problem, &options, &plan);
      const bool clean = until_failure > 0 ? status.code == LW_OK && plan != nullptr
                                           : status.code == LW_OUT_OF_MEMORY && plan == nullptr;
      until_failure = clean ? until_failure : failing + 1000;  // an assertion would allocate
      if (!clean) status.code = -1;
    });
    lw_plan_free(plan);
    CHECK(status.code == LW_OK);
    CHECK(in_make == 1);
    CHECK(alive == before);

    const lw_executor executor = Executor::caller();
    bool clean = true;
    const int64_t before_attend = alive;
    const int64_t in_attend = fail_each([&] {
      status = lw_attend(&p.problem, &p.inputs, &p.outputs, &executor);
      clean = clean && status.code == (until_failure > 0 ? LW_OK : LW_OUT_OF_MEMORY);
      clean = clean && (status.code == LW_OK || (outputs_untouched(p) && status.message[0] != 0));
    });
    CHECK(clean);
    CHECK(status.code == LW_OK);
    CHECK(in_attend == 1);
    CHECK(alive == before_attend);
    count_case(target);
  });
}

#else

TEST_CASE("from the second call on, a run allocates nothing") { SKIP("allocations cannot be counted in this build"); }

#endif

}  // namespace
}  // namespace lanewise::test
