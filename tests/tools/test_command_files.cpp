// `lanewise attend` on the inputs of real models and on examples to check by hand: the accuracy that is promised.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"

namespace lanewise::test {
namespace {

using Json = nlohmann::json;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// A file of tests/data/real; the last columns are those of its README.
struct RealCase {
  const char* name;
  std::vector<std::string> flags;
  double largest_score;
  double float32_error;
};

const std::vector<RealCase>& real_cases() {
  static const std::vector<RealCase> cases = {
      {"minilm_layer0_len61", {}, 42.3, 7e-7},
      {"minilm_layer0_len256", {}, 68.5, 3e-6},
      {"minilm_layer5_len61", {}, 6.5, 1e-6},
      {"minilm_layer5_len256", {}, 8.0, 2e-6},
      {"minilm_layer3_padded4", {"--ignore", "mask"}, 16.1, 6e-7},  // by its lengths
      {"smollm2_layer0_len64_causal", {"--causal"}, 10.7, 2e-7},
      {"smollm2_layer15_len200_causal", {"--causal"}, 21.0, 3e-6},
      {"smollm2_layer8_decode", {"--causal"}, 13.1, 5e-7},
  };
  return cases;
}

std::vector<std::string> arguments(const RealCase& c) {
  std::vector<std::string> result = {"attend", data_file("real/" + std::string(c.name) + ".safetensors")};
  result.insert(result.end(), c.flags.begin(), c.flags.end());
  return result;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

io::Tensor matrix(const char* name, const Json& rows) {
  std::vector<float> values;
  for (const Json& row : rows) {
    for (const Json& value : row) values.push_back(value.get<float>());
  }
  const int64_t columns = static_cast<int64_t>(rows.at(0).size());
  return io::make_tensor(name, io::Type::f32, {static_cast<int64_t>(rows.size()), columns}, values);
}

io::Tensor expected(const char* name, const Json& rows) {
  std::vector<double> values;
  std::vector<int64_t> shape = {static_cast<int64_t>(rows.size())};
  for (const Json& row : rows) {
    if (row.is_array()) {
      for (const Json& value : row) values.push_back(value.get<double>());
    } else {
      values.push_back(row.is_string() ? -INFINITY : row.get<double>());  // "-inf"
    }
  }
  if (rows.at(0).is_array()) shape.push_back(static_cast<int64_t>(rows.at(0).size()));
  return io::make_tensor(name, io::Type::f64, shape, values);
}

}  // namespace

TEST_CASE("real inputs: within the bound, and near the float64 results in the files", "[command]") {
  for (const RealCase& c : real_cases()) {
    INFO(c.name);
    std::vector<std::string> within_bound = arguments(c);
    for (const char* flag : {"--check", "--verify-against", "out"}) within_bound.push_back(flag);
    const Outcome bound = lanewise_command(within_bound);
    INFO(bound.out << bound.err);
    CHECK(bound.code == 0);
    CHECK(bound.err.empty());
    CHECK(has(bound.out, "out against 'out'"));
    CHECK(has(bound.out, "lse against 'lse'"));

    std::vector<std::string> tight = arguments(c);
    for (const std::string& flag :
         {std::string("--verify-against"), std::string("out"), std::string("--tolerance"), number(3 * c.float32_error),
          std::string("--lse-tolerance"), number(6e-7 * std::max(1.0, c.largest_score)), std::string("--quiet")}) {
      tight.push_back(flag);
    }
    const Outcome near = lanewise_command(tight);
    INFO(near.err);
    CHECK(near.code == 0);
    CHECK(near.out.empty());
  }
}

TEST_CASE("real inputs as npy files give the same bytes", "[command]") {
  TempDir dir;
  for (const char* name : {"minilm_layer0_len61", "minilm_layer5_len61"}) {
    const std::string folder = data_file("real/" + std::string(name)) + "/";
    const Outcome npy =
        lanewise_command({"attend", "--q", folder + "q.npy", "--k", folder + "k.npy", "--v", folder + "v.npy", "-o",
                          dir / "out.npy", "--verify-against", folder + "out.npy"});
    INFO(npy.out << npy.err);
    CHECK(npy.code == 0);
    CHECK(lanewise_command(
              {"attend", data_file("real/" + std::string(name) + ".safetensors"), "-o", dir / "out.safetensors"})
              .code == 0);
    const io::Tensor from_npy = io::read_npy(dir / "out.npy", "out");
    const io::Tensor from_safetensors = io::SafetensorsFile(dir / "out.safetensors").read("out");
    CHECK(from_npy.shape == from_safetensors.shape);
    CHECK(from_npy.shape == std::vector<int64_t>{1, 12, 61, 32});
    REQUIRE(from_npy.bytes.size() == from_safetensors.bytes.size());
    CHECK(std::equal(from_npy.bytes.data(), from_npy.bytes.data() + from_npy.bytes.size(),
                     from_safetensors.bytes.data()));
  }
}

TEST_CASE("worked examples: within 2e-7 of the largest value", "[command]") {
  TempDir dir;
  const Json worked = Json::parse(read_bytes(data_file("worked.json")));
  for (const Json& c : worked.at("attention")) {
    const std::string name = c.at("name");
    INFO(name);
    std::vector<io::Tensor> tensors;
    for (const char* input : {"q", "k", "v"}) tensors.push_back(matrix(input, c.at(input)));
    tensors.push_back(expected("out", c.at("output")));
    tensors.push_back(expected("lse", c.at("lse")));
    double largest = 0;
    for (int64_t i = 0; i < tensors[2].count(); ++i) largest = std::max(largest, std::fabs(io::element(tensors[2], i)));
    std::vector<std::string> command = {"attend",
                                        dir / "in.safetensors",
                                        "--check",
                                        "--verify-against",
                                        "out",
                                        "--tolerance",
                                        number(2e-7 * largest),
                                        "--scale",
                                        number(c.at("scale").get<double>())};
    std::vector<std::string> by_rule = command;
    if (name == "causal") by_rule.push_back("--causal");
    if (name == "causal_window") by_rule.insert(by_rule.end(), {"--causal", "--window", "1,0"});
    if (c.contains("mask")) {
      std::vector<uint8_t> flags;
      for (const Json& row : c.at("mask")) {
        for (const Json& flag : row) flags.push_back(flag.get<bool>() ? 1 : 0);
      }
      tensors.push_back(
          io::make_tensor("mask", io::Type::boolean,
                          {static_cast<int64_t>(c.at("q").size()), static_cast<int64_t>(c.at("k").size())}, flags));
      by_rule.insert(by_rule.end(), {"--ignore", "mask"});
    }
    std::vector<const io::Tensor*> pointers;
    for (const io::Tensor& tensor : tensors) pointers.push_back(&tensor);
    io::write_safetensors(dir / "in.safetensors", pointers);
    if (name != "hidden_row") {  // its mask is no rule
      const Outcome outcome = lanewise_command(by_rule);
      INFO(outcome.out << outcome.err);
      CHECK(outcome.code == 0);
    }
    if (c.contains("mask")) {
      const Outcome outcome = lanewise_command(command);
      INFO(outcome.out << outcome.err);
      CHECK(outcome.code == 0);
    }
  }
}

TEST_CASE("real inputs: executors, threads, layouts and padding write the same bytes", "[command]") {
  TempDir dir;
  const std::string input = data_file("real/smollm2_layer15_len200_causal.safetensors");
  const auto bytes = [&](std::vector<std::string> flags) {
    std::vector<std::string> command = {"attend", input, "--causal", "-o", dir / "r.safetensors"};
    command.insert(command.end(), flags.begin(), flags.end());
    const Outcome outcome = lanewise_command(command);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return read_bytes(dir / "r.safetensors");
  };
  const std::string plain = bytes({});
  CHECK(!plain.empty());
  for (const char* executor : {"openmp", "caller", "callback", "parts"}) {
    for (const char* threads : {"1", "2", "7"}) {
      INFO(executor << " " << threads);
      CHECK(bytes({"--executor", executor, "--threads", threads}) == plain);
    }
  }
  CHECK(bytes({"--pad", "5"}) == plain);
  CHECK(bytes({"--dtype", "f32", "--kv-dtype", "f32", "--out-dtype", "f32"}) == plain);

  // [len, heads, dim] of the same numbers.
  const io::SafetensorsFile file(input);
  std::vector<io::Tensor> tensors;
  for (const char* name : {"q", "k", "v"}) {
    const io::Tensor from = file.read(name);
    const int64_t heads = from.shape[1], len = from.shape[2], dim = from.shape[3];
    tensors.push_back(io::make_tensor(name, io::Type::f32, {1, len, heads, dim}));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < len; ++i) {
        std::copy_n(from.as<float>() + (h * len + i) * dim, dim, tensors.back().as<float>() + (i * heads + h) * dim);
      }
    }
  }
  io::write_safetensors(dir / "blhd.safetensors", {&tensors[0], &tensors[1], &tensors[2]});
  CHECK(lanewise_command(
            {"attend", dir / "blhd.safetensors", "--layout", "blhd", "--causal", "-o", dir / "b.safetensors"})
            .code == 0);
  const io::Tensor out = io::SafetensorsFile(dir / "r.safetensors").read("out");
  const io::Tensor other = io::SafetensorsFile(dir / "b.safetensors").read("out");
  CHECK(other.shape == std::vector<int64_t>{1, 200, 9, 64});
  for (int64_t h = 0; h < 9; ++h) {
    for (int64_t i = 0; i < 200; ++i) {
      const float* row = other.as<float>() + (i * 9 + h) * 64;
      if (!std::equal(row, row + 64, out.as<float>() + (h * 200 + i) * 64)) FAIL("head " << h << ", row " << i);
    }
  }
}

}  // namespace lanewise::test
