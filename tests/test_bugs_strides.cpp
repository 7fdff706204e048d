// Failures other attention kernels had (docs/RELIABILITY.md), group Q: offsets that do not fit 32 bits, in every argument
// that has a stride. Mappings of many gigabytes, of which a few pages are touched.
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/rnd.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

class Addresses {
 public:
  explicit Addresses(int64_t bytes)
      : size_(static_cast<size_t>(bytes)),
        map_(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (map_ == MAP_FAILED) SKIP("no address space for " << bytes << " bytes");
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() { munmap(map_, size_); }
  uint8_t* data() const { return static_cast<uint8_t*>(map_); }

 private:
  size_t size_;
  void* map_;
};

// Copies `count` runs of `bytes` bytes, which lie together, to places `stride` bytes apart.
void spread(const void* from, int64_t count, int64_t bytes, int64_t stride, uint8_t* to) {
  for (int64_t n = 0; n < count; ++n) {
    std::memcpy(to + n * stride, static_cast<const uint8_t*>(from) + n * bytes, static_cast<size_t>(bytes));
  }
}

TEST_CASE("Q03: row strides of 2^26 elements of q, k and v") {
  constexpr int64_t kRow = int64_t{1} << 26, kLen = 40, kDim = 16;
  const Storage storage = any_storage();
  CAPTURE(storage.name);
  const int64_t size = type_size(storage.type), bytes = size * kRow * (kLen - 1) + 4096;
  Case c = Case().stored_as(storage).heads(1, 1).len(kLen, kLen).dims(kDim).causal();
  const Expectation expected(c);
  Prepared p = c.prepare();
  const Addresses q(bytes), k(bytes), v(bytes);
  spread(p.inputs.q.data, kLen, kDim * size, kRow * size, q.data());
  spread(p.inputs.k.data, kLen, kDim * size, kRow * size, k.data());
  spread(p.inputs.v.data, kLen, kDim * size, kRow * size, v.data());
  p.inputs.q.data = q.data();
  p.inputs.k.data = k.data();
  p.inputs.v.data = v.data();
  p.inputs.q.stride[2] = p.inputs.k.stride[2] = p.inputs.v.stride[2] = kRow;
  for_each_target_of(c, [&](const std::string& target) {
    CHECK(expected.difference(run_prepared(p, {target, 2})) == "");
  });
}

// Masks and biases of each type with one axis far apart: rows 2^27 bytes, batches and heads 2^31 elements.
TEST_CASE("Q01, Q05: masks and biases whose rows, heads or batches lie beyond 32 bits") {
  struct Form {
    const char* name;
    int32_t type;
    int64_t row_stride;
  };
  const Form forms[] = {{"bool", LW_TYPE_BOOL, int64_t{1} << 27},
                        {"bits", LW_TYPE_BITS, int64_t{1} << 27},
                        {"f32", LW_TYPE_F32, int64_t{1} << 26},
                        {"bf16", LW_TYPE_BF16, int64_t{1} << 26},
                        {"f16", LW_TYPE_F16, int64_t{1} << 26}};
  for (const Form& form : forms) {
    const bool is_mask = form.type == LW_TYPE_BOOL || form.type == LW_TYPE_BITS;
    for (const size_t axis : {0, 1, 2}) {
      INFO(form.name << ", axis " << axis);
      Shape shape = {1, 1, 1, 64};
      shape[axis] = axis == 2 ? 40 : 2;
      Case c = Case().batch(2).heads(2, 1).len(40, 64).dims(16);
      Array values = random_array(shape, 31, 4);
      if (is_mask) {
        for (float& value : values.values) value = value > 0;
        c.mask(values, form.type);
      } else {
        c.bias(values, form.type);
      }
      const Expectation expected(c);
      Prepared p = c.prepare();
      lw_const_tensor& tensor = is_mask ? p.inputs.mask : p.inputs.bias;
      const int64_t size = is_mask ? 1 : type_size(form.type);
      const int64_t row = tensor.stride[axis] * size;  // rows of bits have a gap behind them
      const int64_t used = form.type == LW_TYPE_BITS ? 8 : row;
      const int64_t stride = axis == 2 ? form.row_stride : int64_t{1} << 31;  // elements, which are bytes in masks
      const Addresses far((shape[axis] - 1) * stride * size + 4096);
      for (int64_t n = 0; n < shape[axis]; ++n)
        std::memcpy(far.data() + n * stride * size, static_cast<const uint8_t*>(tensor.data) + n * row, size_t(used));
      tensor.data = far.data();
      tensor.stride[axis] = stride;
      for_each_target([&](const std::string& target) {
        CHECK(expected.difference(run_prepared(p, {target, 2})) == "");
      });
    }
  }
}

TEST_CASE("Q05: slopes, positions, page tables and block masks whose batches lie beyond 32 bits") {
  constexpr int64_t kFar = int64_t{1} << 31;  // elements of four bytes
  const auto check = [](Case c, auto place) {
    const Expectation expected(c);
    Prepared p = c.prepare();
    const Addresses far(kFar * 4 + 4096);
    place(p, far);
    for_each_target([&](const std::string& target) { CHECK(expected.difference(run_prepared(p, {target, 2})) == ""); });
  };
  const Case plain = Case().batch(2).heads(2, 1).len(9, 64).dims(16).causal();
  check(Case(plain).alibi({0.5f, 0.25f, 1, 2}), [&](Prepared& p, const Addresses& far) {
    spread(p.inputs.alibi_slopes, 2, 8, kFar * 4, far.data());
    p.inputs.alibi_slopes = reinterpret_cast<const float*>(far.data());
    p.inputs.alibi_batch_stride = kFar;
  });
  std::vector<int32_t> positions;
  for (int32_t n = 0; n < 18; ++n) positions.push_back(n * 17 % 64);
  check(Case(plain).q_positions(positions), [&](Prepared& p, const Addresses& far) {
    spread(p.inputs.q_positions, 2, 36, kFar * 4, far.data());
    p.inputs.q_positions = reinterpret_cast<const int32_t*>(far.data());
    p.inputs.q_positions_stride[0] = kFar;
  });
  check(Case(plain).paged(16), [&](Prepared& p, const Addresses& far) {
    spread(p.inputs.page_table, 2, p.inputs.page_table_stride[0] * 4, kFar * 4, far.data());
    p.inputs.page_table = reinterpret_cast<const int32_t*>(far.data());
    p.inputs.page_table_stride[0] = kFar;
  });
  Array tiles({2, 1, 3, 4}, 1);
  for (size_t n = 0; n < tiles.values.size(); n += 3) tiles.values[n] = 0;
  check(Case(plain).block_mask(4, 16, tiles), [&](Prepared& p, const Addresses& far) {
    spread(p.inputs.block_indptr, 1, 16, kFar * 4, far.data());
    std::memcpy(far.data() + kFar * 4, p.inputs.block_indptr + p.inputs.block_indptr_stride[0], 16);
    p.inputs.block_indptr = reinterpret_cast<const int32_t*>(far.data());
    p.inputs.block_indptr_stride[0] = kFar;
  });
}

}  // namespace
}  // namespace lanewise::test
