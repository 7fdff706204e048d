// `lanewise attend` with statistics of weights: what it writes, for which rows, and that --check looks at it.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "command.hpp"
#include "io/safetensors.hpp"

namespace lanewise::test {
namespace {

using io::Tensor;
using io::Type;

const std::vector<std::string> kAll = {"--weights", "--column-sums", "--row-max", "--row-entropy"};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Outcome attend(const std::string& input, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"attend", input};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return lanewise_command(arguments);
}

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

TEST_CASE("a model's layer: weights sum to 1, columns and rows agree with them", "[command]") {
  TempDir dir;
  const std::string input = data_file("real/smollm2_layer0_len64_causal.safetensors");
  const Outcome outcome = attend(input, with(kAll, {"--causal", "--check", "--pad", "3", "-o", dir / "r.safetensors"}));
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code == 0);
  for (const char* line : {" weights:", "column_sums:", "row_max:", "row_entropy:"}) CHECK(has(outcome.out, line));
  CHECK(has(outcome.out, "column_sums, row_max, row_entropy"));
  const io::SafetensorsFile file(dir / "r.safetensors");
  const Tensor weights = file.read("weights"), columns = file.read("column_sums"), max = file.read("row_max"),
               entropy = file.read("row_entropy");
  const int64_t heads = weights.shape.at(1), queries = weights.shape.at(2), keys = weights.shape.at(3);
  REQUIRE(columns.shape == std::vector<int64_t>{1, heads, keys});
  REQUIRE(max.shape == file.read("lse").shape);
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<double> sums(static_cast<size_t>(keys), 0.0);
    for (int64_t i = 0; i < queries; ++i) {
      double sum = 0, largest = 0, nats = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const double weight = io::element(weights, (h * queries + i) * keys + j);
        if (j > i && weight != 0) FAIL("query " << i << " sees key " << j);
        sum += weight;
        sums[static_cast<size_t>(j)] += weight;
        largest = std::fmax(largest, weight);
        if (weight > 0) nats -= weight * std::log(weight);
      }
      CHECK(std::fabs(sum - 1) < 1e-5);
      CHECK(io::element(max, h * queries + i) == largest);
      CHECK(std::fabs(io::element(entropy, h * queries + i) - nats) < 2e-5);
    }
    for (int64_t j = 0; j < keys; ++j)
      CHECK(std::fabs(io::element(columns, h * keys + j) - sums[static_cast<size_t>(j)]) < 2e-5);
  }
}

TEST_CASE("rows of the range count, the others are zeros", "[command]") {
  TempDir dir;
  const std::string input = data_file("real/smollm2_layer0_len64_causal.safetensors");
  const auto run = [&](const std::string& rows) {
    std::vector<std::string> flags = with(kAll, {"--causal", "--check", "-o", dir / "r.safetensors"});
    if (!rows.empty()) flags = with(flags, {"--statistic-rows", rows});
    const Outcome outcome = attend(input, flags);
    INFO(rows << ": " << outcome.out << outcome.err);
    REQUIRE(outcome.code == 0);
    return io::SafetensorsFile(dir / "r.safetensors").read("row_max");
  };
  const Tensor all = run("");
  const int64_t queries = all.shape.back();
  const struct {
    const char* rows;
    int64_t begin, end;
  } table[] = {{"0:", 0, queries},
               {":", 0, queries},
               {"3:5", 3, 5},
               {"-8:", queries - 8, queries},
               {":-60", 0, queries - 60},
               {"7:2", 0, 0},
               {"-1000:1000", 0, queries}};
  for (const auto& entry : table) {
    const Tensor part = run(entry.rows);
    for (int64_t n = 0; n < part.count(); ++n) {
      const int64_t i = n % queries;
      const double expected = i >= entry.begin && i < entry.end ? io::element(all, n) : 0;
      if (io::element(part, n) != expected) FAIL(entry.rows << ", row " << i);
    }
  }
}

TEST_CASE("one statistic alone is one tensor more", "[command]") {
  TempDir dir;
  const std::string input = data_file("real/smollm2_layer8_decode.safetensors");
  for (const char* flag : {"--weights", "--column-sums", "--row-max", "--row-entropy"}) {
    for (const char* executor : {"openmp", "caller", "callback", "parts"}) {
      const Outcome outcome =
          attend(input, {"--causal", flag, "--check", "--executor", executor, "--quiet", "-o", dir / "r.safetensors"});
      INFO(flag << ": " << outcome.err);
      REQUIRE(outcome.code == 0);
      CHECK(outcome.out.empty());
      CHECK(io::SafetensorsFile(dir / "r.safetensors").entries().size() == 3);
    }
  }
}

}  // namespace lanewise::test
