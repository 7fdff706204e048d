// `lanewise` as a user meets it: help, info, selftest, what attend writes, and exit codes.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "command.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "tensors.hpp"

namespace lanewise::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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

TEST_CASE("selftest passes on every target of this machine", "[command]") {
  const Outcome outcome = lanewise_command({"selftest"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, " 0 failed"));
  CHECK(has(outcome.out, " % in statistics of weights\n"));
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
  CHECK(has(wrong.err, "attend: lengths[0] is 7"));
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
    const Outcome outcome = lanewise_command(
        {"attend", dir / storage, "--causal", "--layout", "blhd", "--check", "--weights", "--column-sums", "--row-max",
         "--row-entropy", "--statistic-rows", "-4:", "-o", dir / (std::string(storage) + ".safetensors")});
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

// A tree of three drafts behind four keys that all of them see.
TEST_CASE("attend: --mask-tail masks the last keys alone, as bools and as bits", "[command]") {
  TempDir dir;
  const std::vector<uint8_t> tail = {1, 0, 0, 1, 1, 0, 1, 0, 1}, bits = {0b001, 0b011, 0b101};
  std::vector<uint8_t> whole;
  for (size_t i = 0; i < 3; ++i) {
    whole.insert(whole.end(), 4, 1);
    whole.insert(whole.end(), tail.begin() + static_cast<int64_t>(3 * i),
                 tail.begin() + static_cast<int64_t>(3 * i + 3));
  }
  const struct {
    const char* tensor;
    int64_t width;
    std::vector<uint8_t> values;
    std::vector<std::string> flags;
  } cases[] = {{"mask", 7, whole, {}},
               {"mask", 3, tail, {"--mask-tail", "3"}},
               {"mask_bits", 1, bits, {"--mask-tail", "3"}},
               {"mask", 7, std::vector<uint8_t>(21, 1), {}}};
  std::vector<Tensor> out, lse;
  for (const auto& c : cases) {
    const Type type = std::string(c.tensor) == "mask" ? Type::boolean : Type::u8;
    std::vector<Tensor> tensors;
    tensors.push_back(io::make_tensor(c.tensor, type, {1, 1, 3, c.width}, c.values));
    tensors.push_back(numbers("q", {1, 2, 3, 8}));
    tensors.push_back(numbers("k", {1, 2, 7, 8}));
    tensors.push_back(numbers("v", {1, 2, 7, 5}));
    write(dir / "in", tensors);
    std::vector<std::string> command = {"attend", dir / "in", "--check", "-o", dir / "r.safetensors"};
    command.insert(command.end(), c.flags.begin(), c.flags.end());
    const Outcome outcome = lanewise_command(command);
    INFO(c.tensor << ", " << c.width << " wide: " << outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    out.push_back(io::SafetensorsFile(dir / "r.safetensors").read("out"));
    lse.push_back(io::SafetensorsFile(dir / "r.safetensors").read("lse"));
  }
  for (size_t n = 1; n <= 2; ++n) {
    CHECK(same_bytes(out[n], out[0]));
    CHECK(same_bytes(lse[n], lse[0]));
  }
  CHECK_FALSE(same_bytes(lse[3], lse[0]));
}

TEST_CASE("attend without a place for the result prints it and says that nothing was written", "[command]") {
  TempDir dir;
  for (const auto& [name, shape] :
       {std::pair<const char*, std::vector<int64_t>>{"q", {3, 8}}, {"k", {6, 8}}, {"v", {6, 2}}})
    io::write_npy(dir / name, numbers(name, shape));
  const size_t files = dir.count();
  const std::vector<std::string> arguments = {"attend", "--q", dir / "q", "--k", dir / "k", "--v", dir / "v"};
  const Outcome outcome = lanewise_command(arguments);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "[3, 2], its first head begins\n"));
  CHECK(has(outcome.out, "wrote    nothing: -o FILE.safetensors writes the result\n"));
  CHECK(has(outcome.out, "(one cold run; --repeat N gives the best)\n"));
  CHECK(dir.count() == files);
}

TEST_CASE("attend: the place of the largest error is an index of the expected tensor", "[command]") {
  TempDir dir;
  const struct {
    std::vector<int64_t> q, kv, at;
    const char* layout;
    bool ragged;
  } table[] = {
      {{3, 8}, {6, 8}, {2, 1}, "bhld", false},          {{2, 3, 8}, {2, 6, 8}, {1, 2, 5}, "bhld", false},
      {{3, 2, 8}, {6, 2, 8}, {2, 1, 5}, "blhd", false}, {{2, 3, 4, 8}, {2, 6, 4, 8}, {1, 2, 3, 7}, "blhd", false},
      {{5, 2, 8}, {6, 2, 8}, {4, 1, 7}, "bhld", true},
  };
  for (const auto& entry : table) {
    std::vector<Tensor> tensors;
    tensors.push_back(numbers("q", entry.q));
    tensors.push_back(numbers("k", entry.kv));
    tensors.push_back(numbers("v", entry.kv));
    if (entry.ragged) {
      tensors.push_back(io::make_tensor("cu_seqlens_q", Type::i32, {3}, std::vector<int32_t>{0, 2, 5}));
      tensors.push_back(io::make_tensor("cu_seqlens_kv", Type::i32, {3}, std::vector<int32_t>{0, 2, 6}));
    }
    write(dir / "in", tensors);
    std::vector<std::string> arguments = {"attend", dir / "in", "--layout", entry.layout, "-o", dir / "r.npy"};
    REQUIRE(lanewise_command(arguments).code == 0);
    Tensor expected = io::read_npy(dir / "r.npy", "out");
    int64_t index = 0;
    for (size_t a = 0; a < entry.at.size(); ++a) index = index * entry.q[a] + entry.at[a];
    expected.as<float>()[index] += 1000;
    io::write_npy(dir / "expected.npy", expected);
    arguments.insert(arguments.end(), {"--verify-against", dir / "expected.npy"});
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(has(outcome.err, " at " + io::shape_text(entry.at) + "; "));
    CHECK(has(outcome.err, " times the bound ("));
  }
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

TEST_CASE("attend: NaN and inf in an input reach their own rows, and the check knows", "[command]") {
  TempDir dir;
  std::vector<Tensor> tensors;
  tensors.push_back(numbers("q", {3, 8}));
  tensors.push_back(numbers("k", {6, 8}));
  tensors.push_back(numbers("v", {6, 3}));
  for (const float odd : {NAN, INFINITY, -INFINITY}) {  // of either sign: a score of +inf, and a bound that is NaN
    tensors[0].as<float>()[8] = odd;
    write(dir / "in", tensors);
    const Outcome outcome =
        lanewise_command({"attend", dir / "in", "--check", "--weights", "--row-entropy", "-o", dir / "r.safetensors"});
    INFO(odd << ": " << outcome.err);
    CHECK(outcome.code == 0);
    CHECK(has(outcome.out, "1 NaN"));
    const Tensor lse = io::SafetensorsFile(dir / "r.safetensors").read("lse");
    for (int64_t i = 0; i < 3; ++i) CHECK(std::isnan(io::element(lse, i)) == (i == 1));
  }
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
