// `lanewise merge` and `lanewise append`: partial results combined, rows written into caches.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "command.hpp"
#include "io/safetensors.hpp"
#include "tensors.hpp"

namespace lanewise::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("merge: results over two ranges of keys give the whole", "[command]") {
  TempDir dir;
  const Tensor k = numbers("k", {40, 8}), v = numbers("v", {40, 3});
  const std::pair<int64_t, int64_t> ranges[] = {{0, 40}, {0, 13}, {13, 13}, {13, 40}};
  for (size_t n = 0; n < 4; ++n) {
    std::vector<Tensor> tensors;
    tensors.push_back(numbers("q", {5, 8}));
    tensors.push_back(part(k, ranges[n].first, ranges[n].second));
    tensors.push_back(part(v, ranges[n].first, ranges[n].second));
    write(dir / "in", tensors);
    REQUIRE(lanewise_command({"attend", dir / "in", "-o", dir / (std::to_string(n) + ".safetensors")}).code == 0);
  }
  const Outcome outcome = lanewise_command(
      {"merge", dir / "1.safetensors", dir / "2.safetensors", dir / "3.safetensors", "-o", dir / "merged.safetensors"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  for (const char* name : {"out", "lse"}) {
    const Tensor whole = io::SafetensorsFile(dir / "0.safetensors").read(name);
    const Tensor merged = io::SafetensorsFile(dir / "merged.safetensors").read(name);
    REQUIRE(merged.shape == whole.shape);
    for (int64_t i = 0; i < whole.count(); ++i) CHECK(std::fabs(io::element(whole, i) - io::element(merged, i)) < 2e-6);
  }
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"merge"},
           {"merge", dir / "1.safetensors"},
           {"merge", dir / "in", "-o", dir / "x.safetensors"},
           {"merge", dir / "1.safetensors", data_file("real/smollm2_layer8_decode.safetensors"), "-o",
            dir / "x.safetensors"},
           {"merge", dir / "1.safetensors", "-o", dir / "x.npy"}}) {
    const Outcome refused = lanewise_command(wrong);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(is_one_clear_line(refused.err));
  }
  CHECK(dir.count() == 6);
}

TEST_CASE("append: rows go to their slots, everything else stays", "[command]") {
  TempDir dir;
  std::vector<Tensor> cache, rows;
  cache.push_back(numbers("k", {3, 2, 4, 5}));  // pages, heads, page_size, dim
  cache.push_back(numbers("v", {3, 2, 4, 1}));
  cache.push_back(io::make_tensor("lengths", Type::i32, {1}, std::vector<int32_t>{7}));
  rows.push_back(numbers("k", {3, 2, 5}));
  for (int64_t i = 0; i < 30; ++i) rows[0].as<float>()[i] += 100;
  rows.push_back(io::make_tensor("slot_mapping", Type::i32, {3}, std::vector<int32_t>{9, -1, 2}));
  write(dir / "cache", cache);
  write(dir / "rows", rows);
  const Outcome outcome = lanewise_command({"append", dir / "cache", dir / "rows", "-o", dir / "new.safetensors"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const io::SafetensorsFile file(dir / "new.safetensors");
  CHECK(same_bytes(file.read("v"), cache[1]));
  CHECK(same_bytes(file.read("lengths"), cache[2]));
  const Tensor k = file.read("k");
  for (int64_t page = 0; page < 3; ++page) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t token = 0; token < 4; ++token) {
        const int64_t slot = page * 4 + token, at = ((page * 2 + head) * 4 + token) * 5;
        const float* expected = slot == 9   ? rows[0].as<float>() + head * 5
                                : slot == 2 ? rows[0].as<float>() + (2 * 2 + head) * 5
                                            : cache[0].as<float>() + at;
        CHECK(std::memcmp(k.as<float>() + at, expected, 5 * sizeof(float)) == 0);
      }
    }
  }
  rows[1].as<int32_t>()[1] = 12;
  write(dir / "rows", rows);
  const Outcome beyond = lanewise_command({"append", dir / "cache", dir / "rows", "-o", dir / "x.safetensors"});
  CHECK(beyond.code == 2);
  CHECK(has(beyond.err, "12"));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"append", dir / "cache", "-o", dir / "x.safetensors"},
           {"append", dir / "cache", dir / "cache", "-o", dir / "x.safetensors"},
           {"append", dir / "rows", dir / "rows", "-o", dir / "x.safetensors"},
           {"append", dir / "cache", dir / "rows", "--layout", "blhd", "-o", dir / "x.safetensors"}}) {
    const Outcome refused = lanewise_command(wrong);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(is_one_clear_line(refused.err));
  }
  CHECK(dir.count() == 3);
}

}  // namespace lanewise::test
