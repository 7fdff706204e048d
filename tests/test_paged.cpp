// Paged caches: pages of any size, in any order and of any strides hold the bits of a dense cache. Pages that nobody
// sees are never touched, whatever the table says of them; a hole among visible keys is a clear error.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

std::vector<Subject> subjects() {
  return {
      {"decode", Case().heads(4, 2).len(1, 300).dims(64)},
      {"decode, grouped", Case().batch(3).heads(8, 1).len(1, 700).dims(32).kv_lengths({700, 0, 257})},
      {"prefill", Case().heads(4, 2).len(60, 300).dims(40, 24).causal()},
      {"a chunk", Case().batch(2).heads(2, 1).len(19, 600).dims(16).causal().kv_lengths({600, 30})},
      {"window", Case().heads(2, 1).len(3, 900).dims(24).causal().window(100, -1)},
      {"prefill with a window", Case().heads(2, 2).len(70, 500).dims(8).causal().window(40, 3)},
      {"kv_start", Case().heads(2, 1).len(5, 400).dims(16).causal().kv_starts({1001})},
  };
}

TEST_CASE("N05: paged is dense, for any page size and order of pages") {
  for (Subject& subject : subjects()) {
    const Expectation expected(subject.c);
    for_each_target([&](const std::string& target) {
      const Result dense = subject.c.run({target});
      CHECK(expected.difference(dense) == "");
      for (const int64_t page_size : {1, 2, 8, 16, 17, 32, 128, 256, 1024}) {
        for (const uint64_t seed : {11, 12, 13}) {
          Prepared p = Case(subject.c).paged(page_size, seed).prepare(seed % 2 ? Edge::kStart : Edge::kEnd);
          const int32_t threads = seed == 11 ? 1 : seed == 12 ? 2 : 7;
          const Result paged =
              run_prepared(p, {target, threads, threads == 7 ? Runner::kPartsReversed : Runner::kOpenmp});
          INFO(subject.name << " on " << target << ", pages of " << page_size << ", permutation " << seed);
          CHECK(paged.damage == "");
          CHECK(bit_difference(dense, paged) == "");
        }
      }
    });
  }
}

TEST_CASE("paged caches among poison, within the bounds of the reference, on every thread count") {
  for (Subject& subject : subjects()) {
    INFO(subject.name);
    Case(subject.c).paged(17).check();
  }
}

// [pages, kv_heads, page_size, dim], [pages, page_size, kv_heads, dim] and others; K and V each its own.
TEST_CASE("pages of any strides") {
  const Layout layouts[] = {Layout::kBlhd,       Layout::kLbhd,   Layout::kTransposed,
                            Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  for (const size_t n : {1, 2, 4}) {
    Subject subject = subjects()[n];
    for_each_target([&](const std::string& target) {
      const Result dense = subject.c.run({target});
      for (const Layout layout : layouts) {
        for (const int64_t page_size : {1, 16, 256}) {
          for (const int which : {0, 1, 2}) {
            const Layout k = which == 1 ? Layout::kBhld : layout, v = which == 2 ? Layout::kBhld : layout;
            Case c = Case(subject.c).layouts(Layout::kBhld, k, v, Layout::kBhld).paged(page_size);
            const Result paged = c.run({target, 2});
            INFO(subject.name << " on " << target << ", layout " << static_cast<int>(layout) << " of "
                              << (which == 0   ? "both"
                                  : which == 1 ? "v"
                                               : "k")
                              << ", pages of " << page_size);
            CHECK(bit_difference(dense, paged) == "");
          }
        }
      }
    });
  }
}

TEST_CASE("a page table of any strides") {
  Case c = subjects()[1].c;
  for_each_target([&](const std::string& target) {
    const Result dense = c.run({target});
    Prepared p = Case(c).paged(16).prepare();
    const int64_t width = p.inputs.page_table_stride[0];
    const int32_t* table = p.inputs.page_table;
    const std::vector<std::vector<int64_t>> strides = {{1, 3}, {-width, -1}, {2 * width, 2}, {1, -7}};
    for (const std::vector<int64_t>& stride : strides) {
      // Entry [b, n] at origin + b * stride[0] + n * stride[1]; anything else holds no page.
      int64_t low = 0, high = 0;
      for (const int64_t reach : {2 * stride[0], (width - 1) * stride[1]}) (reach < 0 ? low : high) += reach;
      std::vector<int32_t> entries(static_cast<size_t>(high - low + 1), -1);
      for (int64_t b = 0; b < 3; ++b) {
        for (int64_t n = 0; n < width; ++n) {
          entries[static_cast<size_t>(b * stride[0] + n * stride[1] - low)] = table[b * width + n];
        }
      }
      GuardedBuffer buffer;
      p.inputs.page_table = place_ints(buffer, entries, Edge::kEnd) - low;
      p.inputs.page_table_stride[0] = stride[0];
      p.inputs.page_table_stride[1] = stride[1];
      INFO("strides " << stride[0] << ", " << stride[1] << " on " << target);
      CHECK(bit_difference(dense, run_prepared(p, {target, 2})) == "");
    }
  });
}

// The table ends with the last page that somebody sees, at a guard page.
TEST_CASE("a page table just wide enough") {
  for (const int64_t kv_len : {1, 15, 16, 17, 256, 300}) {
    for (const int64_t q_len : {1, 20}) {
      Case c = Case().heads(2, 1).len(q_len, kv_len).dims(16).causal();
      for_each_target([&](const std::string& target) {
        Prepared p = Case(c).paged(16).prepare();
        const std::vector<int32_t> needed(p.inputs.page_table, p.inputs.page_table + (kv_len + 15) / 16);
        GuardedBuffer buffer;
        p.inputs.page_table = place_ints(buffer, needed, Edge::kEnd);
        INFO(q_len << " queries, " << kv_len << " keys on " << target);
        CHECK(bit_difference(c.run({target}), run_prepared(p, {target, 2})) == "");
      });
    }
  }
}

TEST_CASE("N01: table entries of pages that nobody sees are never used") {
  // By length, causal and window: 33 keys of a table for 128, 20 of 100 queries' reach, a window's tail.
  struct Unseen {
    const char* name;
    Case c;
    int64_t first, last;  // pages that are seen
  };
  std::vector<Unseen> cases = {
      {"length", Case().heads(2, 1).len(1, 128).dims(64).kv_lengths({33}), 0, 2},
      {"length, prefill", Case().heads(2, 1).len(20, 128).dims(16).causal().kv_lengths({33}), 0, 2},
      {"causal", Case().heads(2, 1).len(20, 128).dims(16).causal().q_offset(20), 0, 2},
      {"window", Case().heads(2, 1).len(1, 128).dims(16).window(40, -1), 5, 7},
      {"window, prefill", Case().heads(2, 2).len(30, 128).dims(16).causal().window(10, 0), 5, 7},
      {"nothing", Case().heads(2, 1).len(4, 128).dims(16).causal().q_offset(-10), 0, -1},
  };
  for (Unseen& unseen : cases) {
    const Expectation expected(unseen.c);
    for_each_target([&](const std::string& target) {
      const Result dense = unseen.c.run({target});
      CHECK(expected.difference(dense) == "");
      Prepared p = Case(unseen.c).paged(16).prepare();
      const int64_t width = 8;
      // The pool's last two pages hold nothing but NaN: one of them is in no table.
      int32_t nan_page = 0;
      const auto used = [&](int32_t id) {
        for (int64_t n = unseen.first; n <= unseen.last; ++n) {
          if (p.inputs.page_table[n] == id) return true;
        }
        return false;
      };
      while (used(nan_page)) ++nan_page;
      REQUIRE(nan_page < p.problem.page_count);
      for (const int32_t entry : {-1, INT32_MAX, INT32_MIN, nan_page, static_cast<int32_t>(p.problem.page_count)}) {
        std::vector<int32_t> table(p.inputs.page_table, p.inputs.page_table + width);
        for (int64_t n = 0; n < width; ++n) {
          if (n < unseen.first || n > unseen.last) table[static_cast<size_t>(n)] = entry;
        }
        Prepared changed = Case(unseen.c).paged(16).prepare();
        changed.inputs.page_table = table.data();
        for (const int32_t threads : {1, 2, 7}) {
          const Result result = run_prepared(changed, {target, threads, Runner::kPartsReversed});
          INFO(unseen.name << ", entry " << entry << " on " << target);
          CHECK(result.damage == "");
          CHECK(bit_difference(dense, result) == "");
        }
      }
    });
  }
}

TEST_CASE("N01: a hole among visible keys is refused, and no output byte is written") {
  struct Hole {
    Case c;
    int64_t b, page;
  };
  const Case two = Case().batch(2).heads(2, 1).dims(8).kv_lengths({100, 33});
  std::vector<Hole> holes = {{Case(two).len(1, 100), 0, 0},
                             {Case(two).len(1, 100), 0, 6},
                             {Case(two).len(1, 100), 1, 2},
                             {Case(two).len(20, 100).causal(), 1, 2},
                             {Case(two).len(1, 100).window(5, -1), 0, 5},
                             {Case(two).len(1, 100).window(5, -1), 1, 1}};
  for (Hole& hole : holes) {
    for_each_target([&](const std::string& target) {
      Prepared p = Case(hole.c).paged(16).prepare();
      REQUIRE(run_prepared(p, {target}).status.code == LW_OK);
      const int64_t width = p.inputs.page_table_stride[0];
      const int32_t too_large = static_cast<int32_t>(p.problem.page_count);
      for (const int32_t entry : {-1, -7, INT32_MIN, INT32_MAX, too_large}) {
        std::vector<int32_t> table(p.inputs.page_table, p.inputs.page_table + 2 * width);
        table[static_cast<size_t>(hole.b * width + hole.page)] = entry;
        Prepared changed = Case(hole.c).paged(16).prepare();
        changed.inputs.page_table = table.data();
        for (const Runner runner : {Runner::kOpenmp, Runner::kPartsReversed}) {
          const Result result = run_prepared(changed, {target, 2, runner});
          const std::string message = result.status.message;
          INFO(message << " on " << target);
          CHECK(result.status.code == LW_INVALID_ARGUMENT);
          const std::string named = "page_table[" + std::to_string(hole.b) + "][" + std::to_string(hole.page) + "] is ";
          CHECK(message.find(named + std::to_string(entry)) == 0);
          CHECK(result.damage == "");
        }
      }
    });
  }
}

// The last page's tail, and pages' gaps, hold what they hold.
TEST_CASE("tails of pages never reach a result") {
  for (const int64_t kv_len : {1, 17, 250, 257}) {
    Case c = Case().heads(4, 1).len(1, kv_len).dims(40);
    Case(c).paged(32).check();
    Case(c).paged(300).check();
  }
}

}  // namespace
}  // namespace lanewise::test
