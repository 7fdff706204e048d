// The tests' own tools, on answers known beforehand: a harness that cannot fail proves nothing.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <limits>

#include "support/array.hpp"
#include "support/case.hpp"
#include "support/compare.hpp"
#include "support/guarded_buffer.hpp"
#include "support/rnd.hpp"

namespace lanewise::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

sigjmp_buf after_fault;
void on_fault(int) { siglongjmp(after_fault, 1); }

bool faults(volatile uint8_t* byte) {
  struct sigaction action = {}, before = {};
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, &before);
  const bool faulted = sigsetjmp(after_fault, 1) != 0;
  if (!faulted) (void)*byte;
  sigaction(SIGSEGV, &before, nullptr);
  return faulted;
}

TEST_CASE("the generator gives its check values") {
  CHECK(rnd(1, 0) == 0.5326035022735596f);
  CHECK(rnd(1, 1) == -0.7479380369186401f);
  CHECK(rnd(1, 2) == 0.40186238288879395f);
  CHECK(rnd(1, 3) == 0.2657524347305298f);
  CHECK(rnd(2, 0) == 0.8101303577423096f);
  CHECK(rnd(3, 7) == 0.1644909381866455f);
}

TEST_CASE("A12: the comparator does not take NaN for a number") {
  CHECK_FALSE(agrees(0.0, kNan, 1e-6));
  CHECK_FALSE(agrees(kNan, 0.0, 1e-6));
  CHECK(agrees(kNan, kNan, 1e-6));
  CHECK_FALSE(agrees(kInfinity, -kInfinity, 1e-6));
  CHECK(agrees(-0.0, 0.0, 1e-6));
  // And with bounds that are themselves not finite.
  CHECK_FALSE(agrees(1.0, 0.0, kNan));
  CHECK_FALSE(agrees(1.0, kInfinity, kInfinity));
}

TEST_CASE("a comparison with the reference finds one wrong element, and a NaN") {
  Case c = Case().batch(2).heads(2, 1).len(3, 5).dims(4, 2);
  const Prepared p = c.prepare();
  const ReferenceResult expected = reference(p.problem, p.inputs);
  Array out({2, 2, 3, 2}), lse({2, 2, 3, 1});
  for (size_t n = 0; n < out.values.size(); ++n) out.values[n] = static_cast<float>(expected.out[n]);
  for (size_t n = 0; n < lse.values.size(); ++n) lse.values[n] = static_cast<float>(expected.lse[n]);
  REQUIRE(agreement(p.problem, expected, out, lse, {}).difference == "");
  for (const float wrong : {1e-5f, std::numeric_limits<float>::quiet_NaN()}) {
    Array off = out;
    off.values[7] += wrong;
    CHECK(agreement(p.problem, expected, off, lse, {}).difference != "");
    off = lse;
    off.values[11] += wrong;
    CHECK(agreement(p.problem, expected, out, off, {}).difference != "");
    // Row 2 of a sequence with two queries is nobody's.
    CHECK(agreement(p.problem, expected, out, off, {3, 2}).difference == "");
  }
}

TEST_CASE("a guarded buffer faults on its edge and notices writes around it") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4000}, size_t{4096}, size_t{10000}}) {
    const GuardedBuffer at_end(bytes, Edge::kEnd), at_start(bytes, Edge::kStart);
    CHECK(faults(at_end.data() + bytes));
    CHECK(faults(at_start.data() - 1));
    CHECK_FALSE(faults(at_end.data() - 1));
    CHECK_FALSE(faults(at_start.data() + bytes));
    CHECK(at_end.untouched());
    at_end.data()[-1] = 0;
    at_start.data()[bytes] = 0;
    CHECK_FALSE(at_end.canaries_intact());
    CHECK_FALSE(at_start.canaries_intact());
    const GuardedBuffer aligned(bytes, Edge::kEnd, 64);
    CHECK(reinterpret_cast<uintptr_t>(aligned.data()) % 64 == 0);
  }
}

TEST_CASE("storage types are written to nearest even and read back") {
  uint16_t bits = 0;
  const auto bf16 = [&](float x) { return store(LW_TYPE_BF16, &bits, 0, x), bits; };
  const auto f16 = [&](float x) { return store(LW_TYPE_F16, &bits, 0, x), bits; };
  CHECK(bf16(1.0f) == 0x3f80);
  CHECK(bf16(1.00390625f) == 0x3f80);  // half way, to even
  CHECK(bf16(1.01171875f) == 0x3f82);
  CHECK(bf16(-3.4028235e38f) == 0xff80);
  CHECK(f16(1.0f) == 0x3c00);
  CHECK(f16(65504.0f) == 0x7bff);
  CHECK(f16(65519.0f) == 0x7bff);
  CHECK(f16(65520.0f) == 0x7c00);
  CHECK(f16(6.103515625e-05f) == 0x0400);
  CHECK(f16(5.9604645e-08f) == 0x0001);
  CHECK(f16(2.9802322e-08f) == 0x0000);  // half way, to even
  CHECK(f16(-0.0f) == 0x8000);
  CHECK(f16(2049.0f) == 0x6800);
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint16_t original = static_cast<uint16_t>(code);
    for (const int32_t type : {LW_TYPE_BF16, LW_TYPE_F16}) {
      const float value = load(type, &original, 0);
      store(type, &bits, 0, value);
      if (!std::isnan(value) && bits != original) FAIL("type " << type << ", code " << code);
    }
  }
}

TEST_CASE("layouts put the same values elsewhere, and parts of a case keep theirs") {
  const Layout layouts[] = {Layout::kBhld,       Layout::kBlhd,   Layout::kLbhd,       Layout::kTransposed,
                            Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
  Case c = Case().batch(2).heads(4, 2).len(5, 9).dims(6, 3).causal();
  const Prepared plain = c.prepare();
  const ReferenceResult expected = reference(plain.problem, plain.inputs);
  for (const Layout layout : layouts) {
    const Prepared moved = Case(c).layouts(layout, layout, layout, Layout::kBhld).prepare(Edge::kStart, 1e38f);
    CHECK(reference(moved.problem, moved.inputs).out == expected.out);
  }
  const auto rows_of = [&](Case part) {
    const Prepared p = part.prepare();
    return reference(p.problem, p.inputs).lse;
  };
  const auto rows = [&](size_t begin, size_t end) {
    return std::vector<double>(expected.lse.begin() + static_cast<int64_t>(begin),
                               expected.lse.begin() + static_cast<int64_t>(end));
  };
  CHECK(rows_of(c.batch_part(1)) == rows(20, 40));
  CHECK(rows_of(c.batch_part(0).head_part(1)) == rows(10, 20));
  CHECK(rows_of(c.query_part(2, 4).batch_part(0).head_part(0)) ==
        std::vector<double>{expected.lse[2], expected.lse[3], expected.lse[7], expected.lse[8]});
  CHECK(rows_of(Case(c).key_part(0, 9)) == expected.lse);
}

TEST_CASE("storage moves a case's keys and nothing else") {
  Case c = Case().batch(3).heads(4, 2).len(3, 21).dims(6, 3).causal().kv_lengths({21, 0, 10});
  const Prepared plain = c.prepare();
  const ReferenceResult expected = reference(plain.problem, plain.inputs);
  for (const float poison : {1e38f, 0.0f, std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t page_size : {1, 4, 21, 50}) {
      const Prepared paged = Case(c).paged(page_size).prepare(Edge::kStart, poison);
      CHECK(reference(paged.problem, paged.inputs).out == expected.out);
    }
    const Prepared keys = Case(c).ragged_kv().prepare(Edge::kEnd, poison);
    CHECK(reference(keys.problem, keys.inputs).lse == expected.lse);
    const Prepared queries = Case(c).ragged_q().paged(3).prepare(Edge::kEnd, poison);
    const ReferenceResult found = reference(queries.problem, queries.inputs);  // [token, head]
    REQUIRE(found.lse.size() == expected.lse.size());
    for (size_t row = 0; row < found.lse.size(); ++row) {
      const size_t token = row / 4, head = row % 4;
      CHECK(found.lse[row] == expected.lse[(token / 3 * 4 + head) * 3 + token % 3]);
    }
  }
}

}  // namespace
}  // namespace lanewise::test
