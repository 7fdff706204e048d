// Wrong input of every kind to `lanewise`: one clear line on stderr, exit code 2, nothing on stdout, no output file.
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "command.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace lanewise::test {
namespace {

using io::Type;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

io::Tensor zeros(const std::string& name, Type type, std::vector<int64_t> shape) {
  io::Tensor tensor = io::make_tensor(name, type, std::move(shape));
  std::fill_n(tensor.bytes.data(), tensor.bytes.size(), uint8_t{0});
  return tensor;
}

struct Spec {
  Type type;
  std::vector<int64_t> shape;
};
using Specs = std::map<std::string, Spec>;

// Two query heads on one kv head, 5 queries, 7 keys, dims 8 and 4.
Specs good_specs() {
  return {{"q", {Type::f32, {1, 2, 5, 8}}}, {"k", {Type::f32, {1, 1, 7, 8}}}, {"v", {Type::f32, {1, 1, 7, 4}}}};
}

void write_specs(const std::string& path, const Specs& specs) {
  std::vector<io::Tensor> tensors;
  for (const auto& [name, spec] : specs) tensors.push_back(zeros(name, spec.type, spec.shape));
  std::vector<const io::Tensor*> pointers;
  for (const io::Tensor& tensor : tensors) pointers.push_back(&tensor);
  io::write_safetensors(path, pointers);
}

void check_refused(const TempDir& dir, const std::vector<std::string>& arguments, const std::string& message) {
  const size_t files = dir.count();
  const Outcome outcome = lanewise_command(arguments);
  INFO("stderr: " << outcome.err << "stdout: " << outcome.out);
  CHECK(outcome.code == 2);
  CHECK(is_one_clear_line(outcome.err));
  CHECK(has(outcome.err, message));
  CHECK(outcome.out.empty());
  CHECK(dir.count() == files);
}

}  // namespace

TEST_CASE("wrong tensors are refused", "[command][errors]") {
  // Tensors put in place of, or beside, those of good_specs.
  const struct {
    const char* name;
    Specs changes;
    std::vector<std::string> flags;
    const char* message;
  } table[] = {
      {"unknown tensor", {{"queries", {Type::f32, {1}}}}, {}, "'queries' is not one this command knows"},
      {"q of five axes", {{"q", {Type::f32, {1, 1, 2, 5, 8}}}}, {}, "'q' F32 [1, 1, 2, 5, 8]"},
      {"q of one axis", {{"q", {Type::f32, {8}}}}, {}, "[len, dim] is needed"},
      {"q without axes", {{"q", {Type::f32, {}}}}, {}, "[len, dim] is needed"},
      {"q of integers", {{"q", {Type::i32, {1, 2, 5, 8}}}}, {}, "types F32, BF16 and F16 are allowed"},
      {"q of doubles", {{"q", {Type::f64, {1, 2, 5, 8}}}}, {}, "--dtype f32 converts"},
      {"integers to convert", {{"q", {Type::i32, {1, 2, 5, 8}}}}, {"--dtype", "f32"}, "can be converted"},
      {"k of other dims", {{"k", {Type::f32, {1, 1, 7, 9}}}}, {}, "dim 9 differs from q's, 8"},
      {"v of other length", {{"v", {Type::f32, {1, 1, 6, 4}}}}, {}, "len 6 differs from k's, 7"},
      {"v of other heads", {{"v", {Type::f32, {1, 2, 7, 4}}}}, {}, "heads 2 differs from k's, 1"},
      {"v of other batch", {{"v", {Type::f32, {3, 1, 7, 4}}}}, {}, "batch 3 differs from k's, 1"},
      {"k of other batch",
       {{"k", {Type::f32, {2, 1, 7, 8}}}, {"v", {Type::f32, {2, 1, 7, 4}}}},
       {},
       "batch 2 differs from q's, 1"},
      {"heads that do not divide",
       {{"k", {Type::f32, {1, 3, 7, 8}}}, {"v", {Type::f32, {1, 3, 7, 4}}}},
       {},
       "q_heads is 2"},
      {"no heads", {{"q", {Type::f32, {1, 0, 5, 8}}}}, {}, "q_heads is 0"},
      {"no kv heads", {{"k", {Type::f32, {1, 0, 7, 8}}}, {"v", {Type::f32, {1, 0, 7, 4}}}}, {}, "kv_heads is 0"},
      {"no dims", {{"q", {Type::f32, {1, 2, 5, 0}}}, {"k", {Type::f32, {1, 1, 7, 0}}}}, {}, "qk_dim is 0"},
      {"no value dims", {{"v", {Type::f32, {1, 1, 7, 0}}}}, {}, "v_dim is 0"},
      {"too many dims",
       {{"q", {Type::f32, {1, 2, 0, 70000}}}, {"k", {Type::f32, {1, 1, 0, 70000}}}, {"v", {Type::f32, {1, 1, 0, 4}}}},
       {},
       "qk_dim is 70000"},
      {"lengths of floats", {{"lengths", {Type::f32, {1}}}}, {}, "'lengths' has type F32; I32 is needed"},
      {"lengths of another batch", {{"lengths", {Type::i32, {2}}}}, {}, "shape [1] is needed"},
      {"lengths of two axes", {{"lengths", {Type::i32, {1, 1}}}}, {}, "shape [1] is needed"},
      {"q_lengths of another batch", {{"q_lengths", {Type::i32, {3}}}}, {}, "'q_lengths'"},
      {"kv_start of another batch", {{"kv_start", {Type::i32, {3}}}}, {}, "'kv_start'"},
      {"q_offset twice", {{"q_offset", {Type::i32, {1}}}}, {"--q-offset", "3"}, "q_offset is given twice"},
      {"slopes twice", {{"alibi_slopes", {Type::f32, {2}}}}, {"--alibi"}, "given twice"},
      {"slopes of too many heads", {{"alibi_slopes", {Type::f32, {3}}}}, {}, "[2] or [1, 2]"},
      {"sinks of too many heads", {{"sinks", {Type::f32, {3}}}}, {}, "[2] is needed"},
      {"sinks in bf16", {{"sinks", {Type::bf16, {2}}}}, {}, "type F32 is needed"},
      {"mask of floats",
       {{"mask", {Type::f32, {1, 2, 5, 7}}}},
       {},
       "type BOOL is needed; a mask to be added is --bias"},
      {"mask of bytes", {{"mask", {Type::u8, {1, 2, 5, 7}}}}, {}, "type BOOL is needed; in numpy mask.astype(bool)"},
      {"mask of other keys", {{"mask", {Type::boolean, {1, 2, 5, 8}}}}, {}, "[1, 2, 5, 7] is needed"},
      {"mask of queries and keys alone", {{"mask", {Type::boolean, {5, 7}}}}, {}, "[1, 7] over keys"},
      {"mask and bits",
       {{"mask", {Type::boolean, {1, 1, 5, 7}}}, {"mask_bits", {Type::u8, {1, 1, 5, 1}}}},
       {},
       "excludes tensor 'mask'"},
      {"bits too short", {{"mask_bits", {Type::u8, {1, 1, 5, 2}}}}, {}, "[1, 2, 5, 1] is needed"},
      {"bias of booleans", {{"bias", {Type::boolean, {1, 2, 5, 7}}}}, {}, "types F32, BF16 and F16 are allowed"},
      {"half a block mask", {{"block_indptr", {Type::i32, {2}}}}, {}, "--block-mask ROWS,KEYS"},
      {"block mask of other rows",
       {{"block_indptr", {Type::i32, {3}}}, {"block_indices", {Type::i32, {1}}}},
       {"--block-mask", "8,8"},
       "[2] or [2, 2] or [1, 2, 2] is needed"},
      {"mask of another tail",
       {{"mask", {Type::boolean, {1, 2, 5, 7}}}},
       {"--mask-tail", "3"},
       "[1, 2, 5, 3] is needed"},
      {"half a state", {{"state_max", {Type::f32, {1, 2, 5}}}}, {}, "'state_sum' is missing"},
      {"state of another shape",
       {{"state_max", {Type::f32, {1, 2, 5}}},
        {"state_sum", {Type::f32, {1, 2, 5}}},
        {"state_acc", {Type::f32, {1, 2, 5, 8}}}},
       {},
       "F32 [1, 2, 5, 4] is needed"},
      {"ragged q of four axes", {{"cu_seqlens_q", {Type::i32, {2}}}}, {}, "three axes are needed"},
      {"offsets of no sequence",
       {{"cu_seqlens_q", {Type::i32, {0}}}, {"q", {Type::f32, {5, 2, 8}}}},
       {},
       "shape [batch + 1] is needed"},
      {"pages without lengths", {{"page_table", {Type::i32, {1, 2}}}}, {}, "needs 'lengths'"},
      {"pages and offsets",
       {{"page_table", {Type::i32, {1, 2}}}, {"cu_seqlens_kv", {Type::i32, {2}}}},
       {},
       "exclude each other"},
      {"page table of another batch",
       {{"page_table", {Type::i32, {2, 2}}}, {"lengths", {Type::i32, {1}}}},
       {},
       "[1, most pages] is needed"},
      {"q_positions of other length", {{"q_positions", {Type::i32, {1, 4}}}}, {}, "[1, 5] is needed"},
      {"expected out of other shape",
       {{"out", {Type::f32, {1, 2, 5, 8}}}},
       {"--verify-against", "out"},
       "out is [1, 2, 5, 4]"},
      {"expected out of integers",
       {{"out", {Type::i32, {1, 2, 5, 4}}}},
       {"--verify-against", "out"},
       "of a float type"},
      {"expected lse of other shape",
       {{"out", {Type::f32, {1, 2, 5, 4}}}, {"lse", {Type::f32, {1, 2, 4}}}},
       {"--verify-against", "out"},
       "lse is [1, 2, 5]"},
  };
  const TempDir dir;
  for (const auto& entry : table) {
    INFO(entry.name);
    Specs specs = good_specs();
    for (const auto& [name, spec] : entry.changes) specs[name] = spec;
    write_specs(dir / "in.safetensors", specs);
    std::vector<std::string> arguments = {"attend", dir / "in.safetensors", "-o", dir / "out.safetensors"};
    arguments.insert(arguments.end(), entry.flags.begin(), entry.flags.end());
    check_refused(dir, arguments, entry.message);
  }
}

TEST_CASE("wrong flags are refused", "[command][errors]") {
  const TempDir dir;
  write_specs(dir / "in.safetensors", good_specs());
  const struct {
    std::vector<std::string> flags;
    const char* message;
  } table[] = {
      {{"--frobnicate"}, "--frobnicate"},
      {{"--windo", "3,0"}, "not expected: --windo 3,0"},
      {{"--causal=maybe"}, "causal"},
      {{"--scale", "nan"}, "--scale"},
      {{"--scale", "inf"}, "--scale"},
      {{"--scale", "-inf"}, "--scale"},
      {{"--scale", "2e38"}, "scale is 2e+38"},
      {{"--scale", "1e39"}, "--scale"},
      {{"--scale", "half"}, "--scale"},
      {{"--scale", ""}, "--scale"},
      {{"--scale", "1", "--scale", "2"}, "--scale"},
      {{"--softcap", "-1"}, "softcap is -1"},
      {{"--softcap", "1e-7"}, "softcap is 1e-07"},
      {{"--softcap", "1e-60"}, "--softcap"},
      {{"--softcap", "nan"}, "--softcap"},
      {{"--q-offset", "1.5"}, "--q-offset"},
      {{"--q-offset", "99999999999999999999"}, "--q-offset"},
      {{"--q-offset", "9223372036854775807"}, "q_offset is 9223372036854775807"},
      {{"--window", "3"}, "--window '3': 2 integers"},
      {{"--window", "3,4,5"}, "2 integers"},
      {{"--window", "3;4"}, "2 integers"},
      {{"--window", "a,b"}, "2 integers"},
      {{"--window", "-2,0"}, "window_left is -2"},
      {{"--prefix", "-1"}, "prefix_len is -1"},
      {{"--layout", "lbhd"}, "bhld and blhd are allowed"},
      {{"--dtype", "f64"}, "--dtype 'f64'"},
      {{"--kv-dtype", "int8"}, "--kv-dtype 'int8'"},
      {{"--out-dtype", "double"}, "--out-dtype 'double'"},
      {{"--arithmetic", "fast"}, "canonical, native_bf16 and best are allowed"},
      {{"--arithmetic", "native_bf16"}, "bf16"},
      {{"--threads", "-1"}, "--threads -1"},
      {{"--threads", "1000000"}, "--threads 1000000"},
      {{"--threads", "two"}, "--threads"},
      {{"--target", "AVX1024"}, "'AVX1024'"},
      {{"--executor", "cuda"}, "openmp, caller, callback and parts are allowed"},
      {{"--pad", "-3"}, "--pad -3"},
      {{"--pad", "9223372036854775807"}, "--pad"},
      {{"--pad", "4611686018427387904"}, "not a possible size"},
      {{"--repeat", "0"}, "--repeat"},
      {{"--block-mask", "64,64"}, "tensors 'block_indptr' and 'block_indices'"},
      {{"--mask-tail", "3"}, "mask_tail is 3"},
      {{"--column-sums", "--no-lse"}, "--no-lse"},
      {{"--statistic-rows", "0:4"}, "--statistic-rows goes with"},
      {{"--weights", "--statistic-rows", "4"}, "--statistic-rows '4'"},
      {{"--weights", "--statistic-rows", "a:4"}, "--statistic-rows 'a:4'"},
      {{"--row-max", "--statistic-rows", "0:99999999999999999999"}, "two integers"},
      {{"--row-entropy", "--statistic-rows", "1:2:3"}, "two integers"},
      {{"--ignore", "masks"}, "has no tensor 'masks' to ignore"},
      {{"--ignore", "q"}, "tensor 'q' is missing"},
      {{"--tolerance", "1e-6"}, "--verify-against"},
      {{"--verify-against", "out"}, "has no tensor 'out'"},
      {{"--verify-against", "q", "--tolerance", "-1"}, "0 or more"},
      {{"--verify-against", "q", "--tolerance", "nan"}, "finite"},
      {{"--verify-against", "none.npy"}, "none.npy: cannot be opened"},
      {{"--verify-lse", "q", "--no-lse"}, "--no-lse"},
      {{"--mask", "none.npy"}, "none.npy"},
      {{"--q", "none.npy"}, "given twice"},
      {{"second.safetensors"}, "second.safetensors"},
  };
  for (const auto& entry : table) {
    INFO(entry.flags[0] << " " << entry.flags.back());
    std::vector<std::string> arguments = {"attend", dir / "in.safetensors", "-o", dir / "out.safetensors"};
    arguments.insert(arguments.end(), entry.flags.begin(), entry.flags.end());
    check_refused(dir, arguments, entry.message);
  }
}

TEST_CASE("wrong command lines and files are refused", "[command][errors]") {
  const TempDir dir;
  const std::string good = dir / "in.safetensors";
  write_specs(good, good_specs());
  const std::string whole = read_bytes(good);
  write_bytes(dir / "cut.safetensors", whole.substr(0, whole.size() - 1));
  write_bytes(dir / "text.safetensors", "just some text that is no tensor file");
  write_bytes(dir / "huge.safetensors", little_endian(uint64_t{1} << 62, 8) + "{}");
  write_bytes(dir / "empty.safetensors", "");
  write_bytes(dir / "none.safetensors", safetensors_bytes("{}", ""));
  write_bytes(dir / "q.safetensors", "\x93NUMPY and more");
  write_bytes(dir / "q.npy", npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", "short"));
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } table[] = {
      {{}, "a command is needed"},
      {{"atend"}, "there is no command 'atend'"},
      {{"--frobnicate"}, "'--frobnicate'"},
      {{"info", "x"}, "x"},
      {{"attend"}, "tensor 'q' is missing (IN.safetensors, or --q, --k and --v)"},
      {{"attend", good, "--quiet"}, "nothing to do"},
      {{"attend", "--check"}, "tensor 'q' is missing"},
      {{"attend", dir / "absent.safetensors", "--check"}, "cannot be opened"},
      {{"attend", dir / ".", "--check"}, "is a directory"},
      {{"attend", dir / "cut.safetensors", "--check"}, "truncated?"},
      {{"attend", dir / "text.safetensors", "--check"}, "not a safetensors file"},
      {{"attend", dir / "huge.safetensors", "--check"}, "over the limit"},
      {{"attend", dir / "empty.safetensors", "--check"}, "too short"},
      {{"attend", dir / "q.safetensors", "--check"}, "is an npy file, not a safetensors file (attend"},
      {{"attend", dir / "none.safetensors", "--check"}, "tensor 'q' is missing"},
      {{"attend", "--q", dir / "q.npy", "--k", dir / "q.npy", "--v", dir / "q.npy", "--check"}, "truncated"},
      {{"attend", "--q", dir / "in.safetensors", "--check"}, "is not an npy file"},
      {{"attend", good, "-o", dir / "out.txt"}, "must end in .safetensors or .npy"},
      {{"attend", good, "-o", dir / "no/out.npy"}, "cannot be written"},
      {{"attend", good, "-o", ""}, "a file name is needed"},
      {{"attend", good, "-o", dir / "out.npy", "--state-out"}, "--state-out"},
      {{"attend", good, "--check", "--state-out"}, "--state-out"},
      {{"attend", good, "--check", "--q"}, "--q"},
      {{"explain"}, "tensor 'q' is missing"},
      {{"explain", "--shape", "1,2,3"}, "7 integers"},
      {{"explain", "--shape", "1,2,3,4,5,6,7x"}, "7 integers"},
      {{"explain", "--shape", "1,3,2,4,5,6,7"}, "q_heads is 3"},
      {{"explain", "--shape", "-1,1,1,4,5,6,7"}, "batch is -1"},
      {{"explain", "--shape", "1,1,1,4,5,0,7"}, "qk_dim is 0"},
      {{"explain", "--shape", "1,1,1,4294967296,5,6,7"}, "q_len is 4294967296"},
      {{"explain", "--shape", "1,1,1,99999999999999999999,5,6,7"}, "7 integers"},
      {{"explain", good, "--shape", "1,1,1,4,5,6,7"}, "exclude each other"},
      {{"explain", "--shape", "1,1,1,4,5,6,7", "--target", "x"}, "'x'"},
  };
  for (const auto& entry : table) {
    std::string line;
    for (const std::string& argument : entry.arguments) line += argument + " ";
    INFO(line);
    const size_t files = dir.count();
    const Outcome outcome = lanewise_command(entry.arguments);
    INFO("stderr: " << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(is_one_clear_line(outcome.err));
    CHECK(has(outcome.err, entry.message));
    CHECK(dir.count() == files);
  }
  const Outcome variable = lanewise_command({"info"}, {"LANEWISE_TARGET=AVX1024"});
  CHECK(variable.code == 2);
  CHECK(has(variable.err, "AVX1024"));
}

}  // namespace lanewise::test
