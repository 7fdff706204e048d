// lw_append: exactly the slots asked for take the rows' bits, in dense and paged caches of any strides and type.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

struct Cache {
  int64_t pages, heads, page_size, dim;
};

// A tensor of raw bytes: place() of a storage type, whatever the bits mean.
template <class Tensor>
uint8_t* element(const Tensor& tensor, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t offset =
      (a ? a * tensor.stride[0] : 0) + b * tensor.stride[1] + c * tensor.stride[2] + d * tensor.stride[3];
  using Bytes = uint8_t*;
  return static_cast<Bytes>(const_cast<void*>(static_cast<const void*>(tensor.data))) + offset * type_size(tensor.type);
}

lw_const_tensor as_input(const lw_tensor& tensor) {
  lw_const_tensor input = {};
  input.data = tensor.data;
  input.type = tensor.type;
  std::copy(tensor.stride, tensor.stride + 4, input.stride);
  return input;
}

// Every bit pattern there is, denormals and NaN with payloads among them.
void fill_with_patterns(GuardedBuffer& buffer, int64_t type) {
  for (size_t n = 0; n < buffer.size(); ++n) {
    const uint64_t mixed = n * 0x9E3779B97F4A7C15u;
    buffer.data()[n] = static_cast<uint8_t>(mixed >> 40);
  }
  // Signalling and quiet NaN with payloads at the front.
  const uint32_t wide[] = {0x7f800001u, 0xffc12345u, 0x00000001u, 0x80000000u};
  const uint16_t narrow[] = {0x7c01, 0xff81, 0x0001, 0x8000};
  for (size_t n = 0; n < 4; ++n) {
    const size_t size = static_cast<size_t>(type_size(static_cast<int32_t>(type)));
    if (buffer.size() < (n + 1) * size) return;
    const void* from = size == 4 ? static_cast<const void*>(&wide[n]) : static_cast<const void*>(&narrow[n]);
    std::memcpy(buffer.data() + n * size, from, size);
  }
}

// Appends, and compares every byte of the cache with what it was or with the last row written there.
void check_append(const Cache& c, Layout cache_layout, Layout row_layout, int32_t type, Edge edge,
                  const std::vector<int32_t>& slots) {
  const int64_t tokens = static_cast<int64_t>(slots.size());
  lw_tensor cache, rows;
  GuardedBuffer cache_buffer, row_buffer, slot_buffer;
  place_output(cache, cache_buffer, {c.pages, c.heads, c.page_size, c.dim}, cache_layout, type, edge);
  place_output(rows, row_buffer, {1, c.heads, tokens, c.dim}, row_layout, type, edge);
  fill_with_patterns(row_buffer, type);
  const lw_const_tensor from = as_input(rows);
  const int32_t* slot_list = place_ints(slot_buffer, slots, edge);
  const lw_status status = lw_append(&cache, c.pages, c.page_size, c.heads, c.dim, &from, tokens, slot_list);
  REQUIRE(std::string(status.message) == "");
  const size_t size = static_cast<size_t>(type_size(type));
  std::vector<int64_t> source(static_cast<size_t>(c.pages * c.page_size), -1);
  for (int64_t t = 0; t < tokens; ++t) {
    if (slots[static_cast<size_t>(t)] >= 0) source[static_cast<size_t>(slots[static_cast<size_t>(t)])] = t;
  }
  // Written elements must be right; then they become canaries again, and nothing else may differ from those.
  for (int64_t slot = 0; slot < c.pages * c.page_size; ++slot) {
    const int64_t t = source[static_cast<size_t>(slot)];
    if (t < 0) continue;
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t x = 0; x < c.dim; ++x) {
        uint8_t* found = element(cache, slot / c.page_size, h, slot % c.page_size, x);
        if (std::memcmp(found, element(from, 0, h, t, x), size) != 0) FAIL("slot " << slot << ", dim " << x);
        std::memset(found, GuardedBuffer::kCanary, size);
      }
    }
  }
  CHECK(cache_buffer.untouched());
  CHECK(row_buffer.canaries_intact());
}

const Layout kLayouts[] = {Layout::kBhld,       Layout::kBlhd,   Layout::kLbhd,       Layout::kTransposed,
                           Layout::kPaddedRows, Layout::kSpread, Layout::kReversedLen};
const int32_t kTypes[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};

TEST_CASE("N03: slot -1 is skipped, in caches of any strides and type") {
  const Cache caches[] = {{3, 2, 8, 5}, {1, 3, 40, 17}, {18, 1, 1, 64}, {2, 2, 17, 128}};
  for (const Cache& cache : caches) {
    for (const int32_t type : kTypes) {
      for (const Layout cache_layout : kLayouts) {
        for (const Layout row_layout : kLayouts) {
          INFO("type " << type << ", layouts " << static_cast<int>(cache_layout) << ", "
                       << static_cast<int>(row_layout));
          const Edge edge = type == LW_TYPE_BF16 ? Edge::kStart : Edge::kEnd;
          check_append(cache, cache_layout, row_layout, type, edge, {3, -1, 0, -1, 17});
        }
      }
    }
  }
}

TEST_CASE("every slot, in any order, and slots repeated: the last row wins") {
  const Cache cache = {4, 2, 16, 24};
  std::vector<int32_t> all, repeated;
  for (int32_t n = 0; n < 64; ++n) all.push_back((n * 37 + 5) % 64);
  for (int32_t n = 0; n < 200; ++n) repeated.push_back((n * n) % 64 - (n % 7 == 0));
  for (const int32_t type : kTypes) {
    check_append(cache, Layout::kBlhd, Layout::kBlhd, type, Edge::kEnd, all);
    check_append(cache, Layout::kBhld, Layout::kBlhd, type, Edge::kStart, repeated);
    check_append(cache, Layout::kBhld, Layout::kBhld, type, Edge::kEnd, {9, 9, 9, 9});
    check_append(cache, Layout::kBhld, Layout::kBhld, type, Edge::kEnd, {-1, -1, -1});
  }
}

TEST_CASE("one row for all heads or tokens: strides of 0") {
  std::vector<uint16_t> cache(2 * 8 * 4, 0xA5A5), row = {1, 2, 3, 4};
  lw_tensor to = {};
  to.data = cache.data();
  to.type = LW_TYPE_F16;
  const int64_t strides[] = {2 * 8 * 4, 8 * 4, 4, 1};
  std::copy(strides, strides + 4, to.stride);
  lw_const_tensor from = {};
  from.data = row.data();
  from.type = LW_TYPE_F16;
  from.stride[3] = 1;
  const int32_t slots[] = {7, 2};
  REQUIRE(lw_append(&to, 1, 8, 2, 4, &from, 2, slots).code == LW_OK);
  for (size_t n = 0; n < cache.size(); ++n) {
    const size_t slot = n / 4 % 8;
    CHECK(cache[n] == (slot == 7 || slot == 2 ? row[n % 4] : 0xA5A5));
  }
}

TEST_CASE("nothing to append") {
  lw_tensor to = {};
  to.type = LW_TYPE_F32;
  lw_const_tensor from = {};
  from.type = LW_TYPE_F32;
  float cache[4] = {1, 2, 3, 4};
  CHECK(std::string(lw_append(&to, 0, 8, 2, 4, &from, 0, nullptr).message) == "");
  to.data = cache;
  to.stride[2] = 4;
  to.stride[3] = 1;
  CHECK(std::string(lw_append(&to, 1, 1, 1, 4, &from, 0, nullptr).message) == "");
  CHECK(cache[3] == 4);
}

// A generation of 40 tokens, its cache grown step by step: the steps are rows of one prefill.
TEST_CASE("a cache grown by append, dense and paged, decodes as a prefill") {
  constexpr int64_t kTokens = 40, kHeads = 2, kDim = 24, kPage = 8, kPages = 7;
  Case prefill = Case().heads(4, kHeads).len(kTokens, kTokens).dims(kDim).causal();
  const Expectation expected(prefill);
  for (const bool paged : {false, true}) {
    for_each_target([&](const std::string& target) {
      const Result whole = prefill.run({target});
      CHECK(expected.difference(whole) == "");
      const int64_t pages = paged ? kPages : 1, page_size = paged ? kPage : kTokens;
      const int32_t table[] = {4, 1, 6, 0, 3};
      const float nan = std::numeric_limits<float>::quiet_NaN();
      Array cache[] = {Array({pages, page_size, kHeads, kDim}, nan), Array({pages, page_size, kHeads, kDim}, nan)};
      lw_tensor views[2] = {};
      for (size_t n = 0; n < 2; ++n) {
        views[n].data = cache[n].values.data();
        views[n].type = LW_TYPE_F32;
        const int64_t stride[] = {page_size * kHeads * kDim, kDim, kHeads * kDim, 1};
        std::copy(stride, stride + 4, views[n].stride);
      }
      for (int64_t i = 0; i < kTokens; ++i) {
        const int32_t slot = static_cast<int32_t>(paged ? table[i / kPage] * kPage + i % kPage : i);
        for (size_t n = 0; n < 2; ++n) {
          const Array row = (n ? prefill.v() : prefill.k()).slice(2, i, i + 1);
          lw_const_tensor from = {};
          from.data = row.values.data();
          from.type = LW_TYPE_F32;
          from.stride[1] = kDim;
          from.stride[3] = 1;
          REQUIRE(lw_append(&views[n], pages, page_size, kHeads, kDim, &from, 1, &slot).code == LW_OK);
        }
        Prepared p = prefill.query_part(i, i + 1).key_part(0, i + 1).prepare();
        const int32_t length = static_cast<int32_t>(i + 1);
        p.inputs.k = as_input(views[0]);
        p.inputs.v = as_input(views[1]);
        p.inputs.kv_lengths = &length;
        if (paged) {
          p.problem.kv_layout = LW_LAYOUT_PAGED;
          p.problem.page_size = kPage;
          p.problem.page_count = kPages;
          p.inputs.page_table = table;
          p.inputs.page_table_stride[1] = 1;
        }
        const Result step = run_prepared(p, {target});
        INFO("step " << i << " on " << target);
        CHECK(bit_difference(step.out, whole.out.slice(2, i, i + 1)) == "");
        CHECK(bit_difference(step.lse, whole.lse.slice(2, i, i + 1)) == "");
      }
    });
  }
}

}  // namespace
}  // namespace lanewise::test
