// `lanewise` as a user meets it: help, info, explain, selftest, what attend writes, and exit codes.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "command.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace lanewise::test {
namespace {

using io::Tensor;
using io::Type;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Numbers without pattern in -2 ... 2.
Tensor numbers(const std::string& name, std::vector<int64_t> shape) {
  Tensor tensor = io::make_tensor(name, Type::f32, std::move(shape));
  uint32_t state = static_cast<uint32_t>(name[0]);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.as<float>()[i] = static_cast<float>(static_cast<double>(state) * 0x1p-30 - 2);
  }
  return tensor;
}

void write(const std::string& path, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  io::write_safetensors(path, pointers);
}

void write_qkv(const std::string& path, std::vector<int64_t> q, std::vector<int64_t> k, std::vector<int64_t> v) {
  std::vector<Tensor> tensors;
  tensors.push_back(numbers("q", std::move(q)));
  tensors.push_back(numbers("k", std::move(k)));
  tensors.push_back(numbers("v", std::move(v)));
  write(path, tensors);
}

Tensor part(const Tensor& from, int64_t begin, int64_t end) {  // of axis 0
  std::vector<int64_t> shape = from.shape;
  const size_t row = from.bytes.size() / static_cast<size_t>(shape[0]);
  shape[0] = end - begin;
  Tensor result = io::make_tensor(from.name, from.type, shape);
  std::memcpy(result.bytes.data(), from.bytes.data() + static_cast<size_t>(begin) * row, result.bytes.size());
  return result;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

}  // namespace

TEST_CASE("help and version", "[command]") {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"--help"},
                                                                                         {"attend", "--help"},
                                                                                         {"explain", "--help"},
                                                                                         {"merge", "--help"},
                                                                                         {"append", "--help"},
                                                                                         {"info", "--help"},
                                                                                         {"selftest", "--help"}}) {
    const Outcome outcome = lanewise_command(arguments);
    CHECK(outcome.code == 0);
    CHECK(has(outcome.out, "Usage: lanewise"));
    CHECK(outcome.err.empty());
  }
  CHECK(lanewise_command({"--version"}).out.find("0.") == 0);
}

TEST_CASE("info lists every target and chooses one", "[command]") {
  const Outcome outcome = lanewise_command({"info"}, {"LANEWISE_TARGET="});
  for (const char* key : {"version: ", "cpu: ", "caches: ", "threads: ", "target "}) CHECK(has(outcome.out, key));
  CHECK(has(outcome.out, "supported, chosen\n"));
  CHECK(outcome.code == 0);
}

TEST_CASE("explain prints key: value lines", "[command]") {
  const Outcome outcome = lanewise_command({"explain", "--shape", "2,8,2,100,300,64,32", "--causal", "--threads", "3"});
  CHECK(outcome.code == 0);
  for (const char* line : {"shape: 2,8,2,100,300,64,32\n", "types: q f32, k f32, v f32, out f32\n", "scale: 0.125\n",
                           "causal: yes\n", "arithmetic: canonical\n", "threads: 3\n"}) {
    CHECK(has(outcome.out, line));
  }
  const Outcome file = lanewise_command({"explain", data_file("real/smollm2_layer8_decode.safetensors")});
  CHECK(file.code == 0);
  CHECK(has(file.out, "shape: 1,9,3,1,300,64,64\n"));
  for (const char* key : {"why_target: ", "why_kernel: keys-in-lanes", "why_split: ", "faster: "}) {
    CHECK(has(file.out, std::string("\n") + key));
  }
}

TEST_CASE("explain --run prints predicted and measured time and the error", "[command]") {
  const std::vector<std::vector<std::string>> cases = {
      {"explain", "--run", "--shape", "1,2,1,40,300,16,8", "--causal", "--threads", "2"},
      {"explain", "--run", "--shape", "1,2,1,0,0,16,8"},
      {"explain", "--run", data_file("real/smollm2_layer8_decode.safetensors"), "--threads", "1", "--clock", "thread"}};
  for (const std::vector<std::string>& arguments : cases) {
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    for (const char* key :
         {"fma_peak: ", "read_bandwidth: ", "predicted_time: ", "measured_time: ", "prediction_error: "}) {
      CHECK(has(outcome.out, std::string("\n") + key));
    }
    CHECK_FALSE(has(outcome.out, "nan"));
    CHECK_FALSE(has(outcome.out, "inf"));
  }
}

TEST_CASE("selftest passes on every target of this machine", "[command]") {
  const Outcome outcome = lanewise_command({"selftest"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, " 0 failed"));
  CHECK(has(outcome.out, "bits: equal"));
}

TEST_CASE("attend keeps the number of axes of q", "[command]") {
  TempDir dir;
  const struct {
    std::vector<int64_t> q, k, v, out, lse;
    const char* layout;
  } table[] = {
      {{2, 4, 5, 8}, {2, 2, 7, 8}, {2, 2, 7, 3}, {2, 4, 5, 3}, {2, 4, 5}, "bhld"},
      {{4, 5, 8}, {2, 7, 8}, {2, 7, 3}, {4, 5, 3}, {4, 5}, "bhld"},
      {{5, 8}, {7, 8}, {7, 3}, {5, 3}, {5}, "bhld"},
      {{5, 8}, {1, 1, 7, 8}, {1, 7, 3}, {5, 3}, {5}, "bhld"},
      {{2, 5, 4, 8}, {2, 7, 2, 8}, {2, 7, 2, 3}, {2, 5, 4, 3}, {2, 5, 4}, "blhd"},
      {{5, 4, 8}, {7, 2, 8}, {7, 2, 3}, {5, 4, 3}, {5, 4}, "blhd"},
      {{5, 8}, {7, 8}, {7, 3}, {5, 3}, {5}, "blhd"},
      {{2, 4, 0, 8}, {2, 2, 7, 8}, {2, 2, 7, 3}, {2, 4, 0, 3}, {2, 4, 0}, "bhld"},
      {{0, 4, 5, 8}, {0, 2, 7, 8}, {0, 2, 7, 3}, {0, 4, 5, 3}, {0, 4, 5}, "bhld"},
  };
  for (const auto& entry : table) {
    INFO(io::shape_text(entry.q));
    write_qkv(dir / "in", entry.q, entry.k, entry.v);
    const Outcome outcome =
        lanewise_command({"attend", dir / "in", "--layout", entry.layout, "--check", "-o", dir / "r.safetensors"});
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    const io::SafetensorsFile file(dir / "r.safetensors");
    CHECK(file.entries().size() == 2);
    CHECK(file.find("out")->shape == entry.out);
    CHECK(file.find("lse")->shape == entry.lse);
  }
}

TEST_CASE("attend without keys gives zeros and an lse of -inf", "[command]") {
  TempDir dir;
  write_qkv(dir / "in", {3, 8}, {0, 8}, {0, 2});
  REQUIRE(lanewise_command({"attend", dir / "in", "--check", "-o", dir / "r.safetensors"}).code == 0);
  const io::SafetensorsFile file(dir / "r.safetensors");
  for (int64_t i = 0; i < 6; ++i) CHECK(io::element(file.read("out"), i) == 0);
  for (int64_t i = 0; i < 3; ++i) CHECK(io::element(file.read("lse"), i) == -INFINITY);
}

TEST_CASE("attend: rows beyond q_lengths are zeros in the file", "[command]") {
  TempDir dir;
  std::vector<Tensor> tensors;
  tensors.push_back(numbers("q", {2, 2, 4, 8}));
  tensors.push_back(numbers("k", {2, 2, 6, 8}));
  tensors.push_back(numbers("v", {2, 2, 6, 3}));
  tensors.push_back(io::make_tensor("q_lengths", Type::i64, {2}, std::vector<int64_t>{3, 1}));
  tensors.push_back(io::make_tensor("lengths", Type::i32, {2}, std::vector<int32_t>{6, 2}));
  write(dir / "in", tensors);
  const Outcome outcome =
      lanewise_command({"attend", dir / "in", "--causal", "--check", "-o", dir / "r.safetensors", "--pad", "2"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const Tensor out = io::SafetensorsFile(dir / "r.safetensors").read("out");
  const Tensor lse = io::SafetensorsFile(dir / "r.safetensors").read("lse");
  for (int64_t row = 0; row < 16; ++row) {
    const bool used = row % 4 < (row < 8 ? 3 : 1);
    CHECK((io::element(lse, row) != 0) == used);
    for (int64_t x = 0; x < 3; ++x) CHECK((io::element(out, row * 3 + x) != 0) == used);
  }
  tensors[4].as<int32_t>()[0] = 7;
  write(dir / "in", tensors);
  const Outcome wrong = lanewise_command({"attend", dir / "in", "--check"});
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "kv_lengths[0] is 7"));
}

TEST_CASE("attend: a state written and continued from gives the bits of one run", "[command]") {
  TempDir dir;
  const Tensor k = numbers("k", {4200, 8}), v = numbers("v", {4200, 3});
  std::vector<Tensor> whole, first, second;
  for (std::vector<Tensor>* tensors : {&whole, &first, &second}) tensors->push_back(numbers("q", {5, 8}));
  whole.push_back(part(k, 0, 4200));
  whole.push_back(part(v, 0, 4200));
  first.push_back(part(k, 0, 4096));
  first.push_back(part(v, 0, 4096));
  second.push_back(part(k, 4096, 4200));
  second.push_back(part(v, 4096, 4200));
  write(dir / "whole", whole);
  write(dir / "first", first);
  REQUIRE(lanewise_command({"attend", dir / "whole", "-o", dir / "whole.safetensors", "--check"}).code == 0);
  const Outcome state =
      lanewise_command({"attend", dir / "first", "-o", dir / "first.safetensors", "--state-out", "--check"});
  INFO(state.err);
  REQUIRE(state.code == 0);
  const io::SafetensorsFile state_file(dir / "first.safetensors");
  for (const char* name : {"state_max", "state_sum", "state_acc"}) second.push_back(state_file.read(name));
  second.push_back(io::make_tensor("kv_start", Type::i32, {1}, std::vector<int32_t>{4096}));
  write(dir / "second", second);
  const Outcome continued = lanewise_command({"attend", dir / "second", "-o", dir / "second.safetensors", "--check"});
  INFO(continued.out << continued.err);
  REQUIRE(continued.code == 0);
  for (const char* name : {"out", "lse"}) {
    CHECK(same_bytes(io::SafetensorsFile(dir / "whole.safetensors").read(name),
                     io::SafetensorsFile(dir / "second.safetensors").read(name)));
  }
}

TEST_CASE("attend: ragged and paged storage give the bits of each sequence alone", "[command]") {
  TempDir dir;
  constexpr int64_t kHeads = 2, kDim = 8, kPage = 4;
  const std::vector<int32_t> q_at = {0, 3, 3, 8}, kv_at = {0, 6, 10, 21};
  const Tensor q = numbers("q", {8, kHeads, kDim}), k = numbers("k", {21, kHeads, kDim}),
               v = numbers("v", {21, kHeads, kDim});
  std::vector<Tensor> ragged, paged;
  for (std::vector<Tensor>* tensors : {&ragged, &paged}) {
    tensors->push_back(part(q, 0, 8));
    tensors->push_back(io::make_tensor("cu_seqlens_q", Type::i32, {4}, q_at));
  }
  ragged.push_back(part(k, 0, 21));
  ragged.push_back(part(v, 0, 21));
  ragged.push_back(io::make_tensor("cu_seqlens_kv", Type::i32, {4}, kv_at));
  // Sequence b in pages 3b ... 3b + 2, taken in reverse; [pages, page_size, heads, dim].
  std::vector<int32_t> table, lengths;
  for (const Tensor* from : {&k, &v}) {
    Tensor pages = io::make_tensor(from->name, Type::f32, {9, kPage, kHeads, kDim});
    std::memset(pages.bytes.data(), 0xff, pages.bytes.size());  // NaN where no key lies
    for (int32_t b = 0; b < 3; ++b) {
      for (int32_t j = 0; j < kv_at[static_cast<size_t>(b) + 1] - kv_at[static_cast<size_t>(b)]; ++j) {
        const int64_t page = 3 * b + 2 - j / kPage;
        std::memcpy(pages.as<float>() + (page * kPage + j % kPage) * kHeads * kDim,
                    from->as<float>() + (kv_at[static_cast<size_t>(b)] + j) * kHeads * kDim,
                    kHeads * kDim * sizeof(float));
      }
    }
    paged.push_back(std::move(pages));
  }
  for (int32_t b = 0; b < 3; ++b) {
    lengths.push_back(kv_at[static_cast<size_t>(b) + 1] - kv_at[static_cast<size_t>(b)]);
    for (int32_t n = 2; n >= 0; --n) table.push_back(3 * b + n);
  }
  paged.push_back(io::make_tensor("page_table", Type::i32, {3, 3}, table));
  paged.push_back(io::make_tensor("lengths", Type::i32, {3}, lengths));
  write(dir / "ragged", ragged);
  write(dir / "paged", paged);
  for (const char* storage : {"ragged", "paged"}) {
    const Outcome outcome = lanewise_command({"attend", dir / storage, "--causal", "--layout", "blhd", "--check", "-o",
                                              dir / (std::string(storage) + ".safetensors")});
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
  }
  for (size_t b = 0; b < 3; ++b) {
    std::vector<Tensor> alone;
    alone.push_back(part(q, q_at[b], q_at[b + 1]));
    alone.push_back(part(k, kv_at[b], kv_at[b + 1]));
    alone.push_back(part(v, kv_at[b], kv_at[b + 1]));
    write(dir / "alone", alone);
    REQUIRE(lanewise_command({"attend", dir / "alone", "--causal", "--layout", "blhd", "-o", dir / "alone.safetensors"})
                .code == 0);
    for (const char* name : {"out", "lse"}) {
      const Tensor expected = io::SafetensorsFile(dir / "alone.safetensors").read(name);
      for (const char* storage : {"ragged.safetensors", "paged.safetensors"}) {
        CHECK(same_bytes(part(io::SafetensorsFile(dir / storage).read(name), q_at[b], q_at[b + 1]), expected));
      }
    }
  }
  paged[4].as<int32_t>()[8] = 9;  // the last page of the last sequence, in use
  write(dir / "paged", paged);
  const Outcome wrong = lanewise_command({"attend", dir / "paged", "--layout", "blhd", "--check"});
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "page"));
}

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

TEST_CASE("attend: a comparison that fails ends with 1 and says so on stderr", "[command]") {
  TempDir dir;
  const std::string input = data_file("real/minilm_layer5_len61.safetensors");
  const Outcome outcome =
      lanewise_command({"attend", input, "--scale", "0.17", "--verify-against", "out", "-o", dir / "r.safetensors"});
  CHECK(outcome.code == 1);
  CHECK(has(outcome.err, "out against 'out'"));
  CHECK(has(outcome.err, "FAILS"));
  CHECK(dir.count() == 1);  // the result is there to look at
  const Outcome quiet = lanewise_command({"attend", input, "--verify-against", "out", "--tolerance", "0", "--quiet"});
  CHECK(quiet.code == 1);
  CHECK(quiet.out.empty());
  CHECK(has(quiet.err, "FAILS"));
  CHECK(lanewise_command({"attend", input, "--scale", "0.17", "--check", "--quiet"}).code == 0);
}

TEST_CASE("attend: NaN in an input reaches its own rows, and the check knows", "[command]") {
  TempDir dir;
  std::vector<Tensor> tensors;
  tensors.push_back(numbers("q", {3, 8}));
  tensors.push_back(numbers("k", {6, 8}));
  tensors.push_back(numbers("v", {6, 3}));
  tensors[0].as<float>()[8] = NAN;
  write(dir / "in", tensors);
  const Outcome outcome = lanewise_command({"attend", dir / "in", "--check", "-o", dir / "r.safetensors"});
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "1 NaN"));
  const Tensor lse = io::SafetensorsFile(dir / "r.safetensors").read("lse");
  for (int64_t i = 0; i < 3; ++i) CHECK(std::isnan(io::element(lse, i)) == (i == 1));
}

TEST_CASE("attend: --no-lse leaves lse out, --repeat and --target are taken", "[command]") {
  TempDir dir;
  write_qkv(dir / "in", {3, 8}, {6, 8}, {6, 3});
  const Outcome outcome =
      lanewise_command({"attend", dir / "in", "--no-lse", "--repeat", "3", "--check", "-o", dir / "r.safetensors"});
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "best of 3"));
  CHECK(io::SafetensorsFile(dir / "r.safetensors").find("lse") == nullptr);
  const Outcome info = lanewise_command({"info"});
  for (const char* name : {"AVX2", "SSE2", "NEON", "EMU128"}) {
    if (!has(info.out, std::string("target ") + name + ": supported")) continue;
    const Outcome target = lanewise_command({"attend", dir / "in", "--target", name, "--check"});
    CHECK(target.code == 0);
    CHECK(has(target.out, std::string("target   ") + name));
  }
}

}  // namespace lanewise::test
