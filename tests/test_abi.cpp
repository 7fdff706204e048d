// Structs that grow: what a later version of this library does with the shorter struct of an older caller. (A whole
// program of 0.1 is abi/frozen_program.c.)
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>

#include "lanewise/lanewise.h"
#include "src/check.hpp"

namespace lanewise {

// lw_problem as some later version may have it.
struct grown_problem {
  int64_t struct_size;
  int64_t old_fields[3];
  int64_t reserved[2];
  int64_t new_fields[2];
};
template <>
inline constexpr int64_t kOldestSize<grown_problem> = 48;

namespace {

lw_status copied(int64_t size, grown_problem& to, int64_t new_field = 0) {
  // Memory that ends where the caller's struct does, so that a sanitizer sees reads beyond it.
  std::string memory(static_cast<size_t>(size), '\1');
  std::memcpy(memory.data(), &size, sizeof size);
  if (size == sizeof(grown_problem)) std::memcpy(memory.data() + size - 8, &new_field, 8);
  std::memset(static_cast<void*>(&to), 0x5A, sizeof to);
  return copy_struct("problem", reinterpret_cast<const grown_problem*>(memory.data()), to);
}

TEST_CASE("the shorter struct of an older caller is completed with zeros") {
  grown_problem to;
  REQUIRE(copied(48, to).code == LW_OK);
  CHECK(to.struct_size == sizeof to);
  CHECK(to.old_fields[2] == 0x0101010101010101);
  CHECK(to.reserved[1] == 0x0101010101010101);
  CHECK(to.new_fields[0] == 0);
  CHECK(to.new_fields[1] == 0);
  REQUIRE(copied(56, to).code == LW_OK);  // of a version in between
  CHECK(to.new_fields[0] == 0x0101010101010101);
  CHECK(to.new_fields[1] == 0);
  REQUIRE(copied(64, to, 7).code == LW_OK);
  CHECK(to.new_fields[1] == 7);
  CHECK(copied(47, to).code == LW_INVALID_ARGUMENT);
  CHECK(std::string(copied(40, to).message).find("48 ...") != std::string::npos);
}

TEST_CASE("the structs of 0.1 stay the shortest accepted") {
  CHECK(kOldestSize<lw_problem> <= static_cast<int64_t>(sizeof(lw_problem)));
  CHECK(kOldestSize<lw_inputs> <= static_cast<int64_t>(sizeof(lw_inputs)));
  CHECK(kOldestSize<lw_outputs> <= static_cast<int64_t>(sizeof(lw_outputs)));
  CHECK(kOldestSize<lw_statistics> <= static_cast<int64_t>(sizeof(lw_statistics)));
  CHECK(kOldestSize<lw_executor> <= static_cast<int64_t>(sizeof(lw_executor)));
  CHECK(kOldestSize<lw_options> <= static_cast<int64_t>(sizeof(lw_options)));
  CHECK(kOldestSize<lw_explanation> <= static_cast<int64_t>(sizeof(lw_explanation)));
}

TEST_CASE("an explanation is as long as its caller's struct") {
  lw_problem problem = lw_problem_default();
  problem.q_len = problem.kv_len = problem.qk_dim = problem.v_dim = 1;
  lw_plan* plan = nullptr;
  REQUIRE(lw_plan_make(&problem, nullptr, &plan).code == LW_OK);
  struct {
    lw_explanation explanation;
    int64_t more[3];
  } newer;
  std::memset(static_cast<void*>(&newer), 0x5A, sizeof newer);
  newer.explanation.struct_size = sizeof(lw_explanation) + 2 * sizeof(int64_t);
  REQUIRE(lw_plan_explain(plan, 1, &newer.explanation).code == LW_OK);
  CHECK(newer.explanation.lanes > 0);
  CHECK(newer.more[0] == 0);
  CHECK(newer.more[1] == 0);
  CHECK(newer.more[2] == 0x5A5A5A5A5A5A5A5A);
  newer.explanation.struct_size = kOldestSize<lw_explanation> - 1;
  CHECK(lw_plan_explain(plan, 1, &newer.explanation).code == LW_INVALID_ARGUMENT);
  lw_plan_free(plan);
}

}  // namespace
}  // namespace lanewise
