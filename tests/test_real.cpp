// Inputs of real models and hand-checked examples through the library, against their stored float64 answers.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/case.hpp"
#include "support/data.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

// Largest difference, infinity where a value is not finite and differs.
double largest_difference(const std::vector<float>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (size_t n = 0; n < found.size(); ++n) {
    const double value = static_cast<double>(found[n]);
    if (!agrees(value, expected[n], std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    if (std::isfinite(value)) worst = std::max(worst, std::fabs(value - expected[n]));
  }
  return worst;
}

struct RealFile {
  const char* name;
  double float32_error;  // what plain float32 attention was off by when the file was made: tests/data/real/README.md
  double largest_score;
};

TEST_CASE("real model inputs: within three times plain float32's error") {
  const RealFile files[] = {
      {"minilm_layer0_len61", 7e-7, 42.3},
      {"minilm_layer0_len256", 3e-6, 68.5},
      {"minilm_layer5_len61", 1e-6, 6.5},
      {"minilm_layer5_len256", 2e-6, 8.0},
      {"minilm_layer3_padded4", 6e-7, 16.1},
      {"smollm2_layer0_len64_causal", 2e-7, 10.7},
      {"smollm2_layer15_len200_causal", 3e-6, 21.0},
      {"smollm2_layer8_decode", 5e-7, 13.1},
  };
  for (const RealFile& file : files) {
    std::map<std::string, StoredTensor> tensors =
        read_safetensors(data_path(std::string("real/") + file.name + ".safetensors"));
    const Shape q = tensors["q"].shape, k = tensors["k"].shape;
    Case c = Case().batch(q[0]).heads(q[1], k[1]).len(q[2], k[2]).dims(q[3]);
    c.q() = tensors["q"].as_array();
    c.k() = tensors["k"].as_array();
    c.v() = tensors["v"].as_array();
    c.causal(std::string(file.name).find("smollm2") == 0);
    if (tensors.count("lengths")) {
      c.kv_lengths(std::vector<int32_t>(tensors["lengths"].values.begin(), tensors["lengths"].values.end()));
    }
    for (const Result& result : c.check()) {
      INFO(file.name << " on " << result.target);
      CHECK(largest_difference(result.out.values, tensors["out"].values) <= 3 * file.float32_error);
      CHECK(largest_difference(result.lse.values, tensors["lse"].values) <= 6e-7 * std::max(1.0, file.largest_score));
    }
  }
}

TEST_CASE("hand-checked examples: within 2e-7 of the largest value") {
  const nlohmann::json worked = nlohmann::json::parse(read_text(data_path("worked.json")));
  int examples = 0;
  for (const nlohmann::json& example : worked.at("attention")) {
    const std::string name = example.at("name");
    const std::vector<std::vector<float>> q = example.at("q"), k = example.at("k"), v = example.at("v");
    const int64_t len = static_cast<int64_t>(q.size());
    Case c = Case().heads(1, 1).len(len, len).dims(4).scale(example.at("scale")).causal(name.find("causal") == 0);
    if (name == "causal_window") c.window(1, -1);
    c.q().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = q[size_t(i)][size_t(x)]; });
    c.k().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = k[size_t(i)][size_t(x)]; });
    c.v().each([&](int64_t, int64_t, int64_t i, int64_t x, float& e) { e = v[size_t(i)][size_t(x)]; });
    if (name == "hidden_row") {
      Array flags({1, 1, len, len});
      flags.each([&](int64_t, int64_t, int64_t i, int64_t j, float& e) {
        e = example.at("mask")[size_t(i)][size_t(j)].get<bool>();
      });
      c.mask(flags);
    }
    std::vector<double> out, lse;
    for (const nlohmann::json& e : example.at("lse")) {
      lse.push_back(e.is_string() ? -std::numeric_limits<double>::infinity() : e.get<double>());
    }
    for (const std::vector<double> row : example.at("output")) out.insert(out.end(), row.begin(), row.end());
    double largest = 0;
    for (const float value : c.v().values) largest = std::max(largest, std::fabs(static_cast<double>(value)));
    for (const Result& result : c.check()) {
      INFO(name << " on " << result.target);
      CHECK(largest_difference(result.out.values, out) <= 2e-7 * largest);
      CHECK(largest_difference(result.lse.values, lse) <= 1e-6);
    }
    ++examples;
  }
  CHECK(examples == 4);
}

}  // namespace
}  // namespace lanewise::test
