// A run allocates nothing: every allocation of the process is counted, the C library's and operator new's. The first
// run of a process may start OpenMP's threads; from the second on the count must stand still.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "lanewise/lanewise.hpp"
#include "support/case.hpp"
#include "support/targets.hpp"

// The sanitizers bring their own malloc; other C libraries have no second name for theirs.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LANEWISE_COUNTS_ALLOCATIONS 1

namespace {
std::atomic<int64_t> allocations{0};
}

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

// These take the place of the C library's for the whole process, shared libraries included; free stays.
void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
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

#else

TEST_CASE("from the second call on, a run allocates nothing") { SKIP("allocations cannot be counted in this build"); }

#endif

}  // namespace
}  // namespace lanewise::test
