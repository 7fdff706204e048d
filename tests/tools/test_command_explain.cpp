// `lanewise explain` as a user meets it: what it prints of a problem, with and without a run of it.
#include <catch2/catch_test_macros.hpp>

#include "command.hpp"
#include "tensors.hpp"

namespace lanewise::test {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// How far apart the rows are that explain says are badly placed; empty: it does not say so.
std::string bad_distance(const std::string& out, const std::string& tensor) {
  const std::string begin = "\nfaster: " + tensor + " with rows not ";
  const size_t at = out.find(begin);
  return at == std::string::npos ? ""
                                 : out.substr(at + begin.size(), out.find(' ', at + begin.size()) - at - begin.size());
}

}  // namespace

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
      {"explain", "--run", "--shape", "1,2,1,40,300,16,8", "--dtype", "bf16", "--arithmetic", "best"},
      {"explain", "--run", data_file("real/smollm2_layer8_decode.safetensors"), "--threads", "1", "--clock", "thread"}};
  for (const std::vector<std::string>& arguments : cases) {
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    const char* peak = has(outcome.out, "\narithmetic: native_bf16\n") ? "bf16_dot_peak: " : "fma_peak: ";
    for (const char* key : {peak, "read_bandwidth: ", "predicted_time: ", "measured_time: ", "prediction_error: "}) {
      CHECK(has(outcome.out, std::string("\n") + key));
    }
    CHECK_FALSE(has(outcome.out, "nan"));
    CHECK_FALSE(has(outcome.out, "inf"));
  }
}

// Rows a multiple of 4096 bytes apart are named, with the distance, which tells one layout from another.
TEST_CASE("explain --shape is of the layout asked for, with and without a run", "[command]") {
  const struct {
    const char* shape;
    std::vector<std::string> flags;
    const char *k, *v;
  } table[] = {
      {"1,16,16,40,48,64,64", {}, "", ""},
      {"1,16,16,40,48,64,64", {"--layout", "bhld"}, "", ""},
      {"1,16,16,40,48,64,64", {"--layout", "blhd"}, "4096", "4096"},
      {"1,16,16,40,1,64,64", {"--layout", "blhd"}, "", ""},  // one row is not apart from another
      {"2,32,32,40,48,64,32", {"--layout", "blhd"}, "8192", "4096"},
      // As [batch, heads, len, dim] these would be 64 query heads on 256 kv heads.
      {"1,32,8,64,256,128,128", {"--layout", "blhd"}, "4096", "4096"},
      {"1,16,16,40,48,64,64", {"--layout", "blhd", "--pad", "16"}, "", ""},
      {"1,4,2,40,48,1008,64", {"--layout", "bhld", "--pad", "16"}, "4096", ""},
      {"1,16,16,40,48,64,64", {"--layout", "blhd", "--kv-dtype", "bf16"}, "", ""},
      {"1,16,16,40,48,64,64", {"--layout", "blhd", "--dtype", "f16"}, "", ""},
  };
  for (const auto& entry : table) {
    std::vector<std::string> arguments = {"explain", "--threads", "1", "--shape", entry.shape};
    arguments.insert(arguments.end(), entry.flags.begin(), entry.flags.end());
    const Outcome plan = lanewise_command(arguments);
    INFO(entry.shape << ": " << plan.out << plan.err);
    CHECK(plan.code == 0);
    CHECK(plan.out.find(std::string("shape: ") + entry.shape + "\n") == 0);
    CHECK(bad_distance(plan.out, "k") == entry.k);
    CHECK(bad_distance(plan.out, "v") == entry.v);
    arguments.push_back("--run");
    const Outcome run = lanewise_command(arguments);
    INFO(run.out << run.err);
    CHECK(run.code == 0);
    CHECK(run.out.find(plan.out) == 0);  // then the times
    CHECK(has(run.out, "\nmeasured_time: "));
  }
}

TEST_CASE("explain of a file is of its layout, with and without a run", "[command]") {
  TempDir dir;
  write_qkv(dir / "blhd", {1, 40, 16, 64}, {1, 48, 16, 64}, {1, 48, 16, 64});
  for (const bool run : {false, true}) {
    std::vector<std::string> arguments = {"explain", dir / "blhd", "--layout", "blhd"};
    if (run) arguments.push_back("--run");
    const Outcome outcome = lanewise_command(arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find("shape: 1,16,16,40,48,64,64\n") == 0);
    CHECK(bad_distance(outcome.out, "k") == "4096");
  }
}

TEST_CASE("explain refuses values it does not know before it prints, with and without a run", "[command][errors]") {
  const struct {
    std::vector<std::string> flags;
    const char* message;
  } table[] = {
      {{"--layout", "lbhd"}, "bhld and blhd are allowed"},
      {{"--layout", ""}, "bhld and blhd are allowed"},
      {{"--layout", "BLHD"}, "bhld and blhd are allowed"},
      {{"--pad", "-3"}, "--pad -3"},
      {{"--pad", "9223372036854775807"}, "--pad"},
      {{"--pad", "4611686018427387904"}, "not a possible size"},
      {{"--dtype", "f64"}, "--dtype 'f64'"},
      {{"--kv-dtype", "int8"}, "--kv-dtype 'int8'"},
      {{"--out-dtype", "double"}, "--out-dtype 'double'"},
      {{"--arithmetic", "fast"}, "canonical, native_bf16 and best are allowed"},
      {{"--executor", "cuda"}, "openmp, caller, callback and parts are allowed"},
      {{"--target", "AVX1024"}, "'AVX1024'"},
      {{"--threads", "-1"}, "--threads -1"},
      {{"--clock", "cpu"}, "wall and thread are allowed"},
      {{"--clock", "thread", "--threads", "2"}, "--threads 1 is needed"},
      {{"--block-mask", "8,8"}, "tensors 'block_indptr' and 'block_indices'"},
      {{"--mask-tail", "3"}, "mask_tail is 3"},
      {{"--ignore", "v"}, "exclude each other"},
      {{"--q", "q.npy"}, "exclude each other"},
  };
  const std::string clock_alone = "--clock goes with --run";
  for (const auto& entry : table) {
    for (const bool run : {false, true}) {
      std::vector<std::string> arguments = {"explain", "--shape", "1,2,2,5,7,8,8"};
      arguments.insert(arguments.end(), entry.flags.begin(), entry.flags.end());
      if (run) arguments.push_back("--run");
      const Outcome outcome = lanewise_command(arguments);
      INFO(entry.flags[0] << " " << entry.flags[1] << (run ? " --run: " : ": ") << outcome.out << outcome.err);
      CHECK(outcome.code == 2);
      CHECK(outcome.out.empty());
      CHECK(is_one_clear_line(outcome.err));
      CHECK((has(outcome.err, entry.message) || (!run && has(outcome.err, clock_alone))));
    }
  }
}

}  // namespace lanewise::test
