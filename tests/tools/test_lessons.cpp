// The numbers of the lessons: DESIGN's values against closed forms and the float64 reference, and the kernels' bits on
// every target.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "lessons/random.hpp"
#include "lessons/steps.hpp"
#include "lessons/studies.hpp"
#include "lessons/svg.hpp"
#include "lessons/terminal_picture.hpp"

namespace lanewise::lessons {
namespace {

bool near(double value, double expected, double tolerance) { return std::fabs(value - expected) <= tolerance; }

// Equal in three digits.
bool near3(double value, double expected) { return near(value, expected, 5e-4 * std::fabs(expected)); }

// Targets this CPU runs; those without FMA keep every promise but equal bits.
std::vector<std::string> targets(bool fma) {
  const std::set<std::string> without = {"SSE2", "SSSE3", "SSE4", "EMU128"};
  std::vector<std::string> names;
  for (int32_t t = 0; t < lw_target_count(); ++t) {
    if (lw_target_supported(t) == 0) continue;
    if (!fma || without.count(lw_target_name(t)) == 0) names.push_back(lw_target_name(t));
  }
  return names;
}

// FNV-1a over the bits.
uint64_t hash_of(const std::vector<double>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const double value : values) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ (bits >> (8 * byte) & 255)) * 0x100000001b3u;
  }
  return hash;
}

// The numbers a study prints, so that they can be compared whole.
std::vector<double> numbers(const Moments& m) { return {m.mean, m.variance, m.deviation}; }

void append(std::vector<double>& to, const std::vector<double>& from) { to.insert(to.end(), from.begin(), from.end()); }

// All kernel numbers of small studies on one target.
std::vector<double> kernel_numbers(const std::string& target) {
  StudyOptions options;
  options.target = target;
  options.samples = 300;
  options.draws = 20;
  options.layers = 3;
  std::vector<double> all;
  for (const Variance& row : variance_study(options)) {
    append(all, numbers(row.raw));
    append(all, numbers(row.scaled));
  }
  const Experiment result = experiment(options);
  append(all, result.scores);
  for (const Scaling& scaling : result.scalings) append(all, scaling.weights.by_rank);
  for (const Layer& layer : layer_study(options)) {
    append(all, numbers(layer.plain.scores));
    append(all, layer.normed.weights.by_rank);
  }
  append(all, softmax_study({20, 10}, target).weights.kernel);
  for (const Angle& angle : angle_study(target).once) all.push_back(angle.weight);
  for (const BlockStep& step : block_study(1, target).steps) {
    all.push_back(static_cast<double>(step.merged.row_max));
    all.push_back(static_cast<double>(step.merged.row_sum));
  }
  return all;
}

}  // namespace

TEST_CASE("the seeded numbers are the same everywhere", "[lessons]") {
  Random random(1);
  float values[4] = {random.normal(), random.normal(), random.uniform_variance_1(), random.uniform_variance_1()};
  uint32_t bits[4];
  std::memcpy(bits, values, sizeof bits);
  CHECK(bits[0] == 0x3edbe129);
  CHECK(bits[1] == 0x3fcafa98);
  CHECK(bits[2] == 0x3fd0d851);
  CHECK(bits[3] == 0xbe455f08);
  for (const double x : {1e-300, 1e-9, 0.1, 0.5, 0.7, 0.71, 0.999999, 1.0, 3.0}) {
    CHECK(near(portable_log(x), std::log(x), 4e-16 * std::fabs(std::log(x)) + 1e-17));
  }
}

TEST_CASE("kernel numbers have the same bits on every target with FMA", "[lessons][hash]") {
  const std::vector<std::string> names = targets(true);
  REQUIRE_FALSE(targets(false).empty());
  if (names.empty()) SKIP("no target with FMA");
  size_t count = 0;
  for (const std::string& name : names) {
    INFO(name);
    const std::vector<double> numbers = kernel_numbers(name);
    count = numbers.size();
    CHECK(hash_of(numbers) == 0x8fe5fdbef8d13816u);  // of every machine and compiler
  }
  std::printf("lessons: %zu numbers, the same bits on %zu targets\n", count, names.size());
}

TEST_CASE("q.k has standard deviation sqrt(d_k), and 1 after scaling", "[lessons]") {
  for (const Variance& row : variance_study({})) {
    INFO(row.dim);
    const double root = std::sqrt(static_cast<double>(row.dim));
    CHECK(near(row.raw.deviation, root, 0.02 * root));
    CHECK(near(row.raw_reference.deviation, root, 0.02 * root));
    CHECK(near(row.scaled.deviation, 1, 0.02));
    CHECK(near(row.scaled_reference.deviation, 1, 0.02));
    CHECK(near(row.raw.deviation, row.raw_reference.deviation, 1e-5 * root));
    CHECK(near(row.inside, 0.9545, 0.01));  // of a normal distribution
  }
}

TEST_CASE("softmax of [2, 1] and [20, 10] with their Jacobians", "[lessons]") {
  for (const std::string& target : targets(false)) {
    INFO(target);
    const struct {
      std::vector<float> scores;
      double p, entry;
    } table[] = {{{2, 1}, 1 / (1 + std::exp(-1.0)), 0.19661193324148185},
                 {{20, 10}, 1 / (1 + std::exp(-10.0)), 4.5395807735951673e-05}};
    for (const auto& [scores, p, entry] : table) {
      const Softmax pair = softmax_study(scores, target);
      for (const Both& weights : {pair.weights}) {
        CHECK(near(weights.kernel[0], p, 2e-7));
        CHECK(near(weights.reference[0], p, 1e-15));
        CHECK(near3(weights.kernel[1], 1 - p));
        CHECK(near3(weights.reference[1], 1 - p));
      }
      for (const std::vector<double>& jacobian : {pair.jacobian, pair.jacobian_reference}) {
        CHECK(near3(jacobian[0], entry));
        CHECK(near3(jacobian[1], -entry));
        CHECK(near3(jacobian[2], -entry));
        CHECK(near3(jacobian[3], entry));
      }
    }
    const Both five = softmax_of({2, 1, 0.1f, -0.5f, -1}, target);
    const double expected[] = {0.606, 0.223, 0.091, 0.050, 0.030};
    for (size_t j = 0; j < 5; ++j) {
      CHECK(near(five.kernel[j], expected[j], 5e-4));
      CHECK(near(five.reference[j], expected[j], 5e-4));
    }
  }
}

TEST_CASE("the Jacobian is the derivative", "[lessons]") {
  const std::vector<double> scores = {0.3, -1.2, 2, 0.5};
  const auto softmax = [](std::vector<double> s) {
    double sum = 0;
    for (double& value : s) sum += value = std::exp(value);
    for (double& value : s) value /= sum;
    return s;
  };
  const std::vector<double> jacobian = softmax_jacobian(softmax(scores));
  for (size_t j = 0; j < 4; ++j) {
    std::vector<double> more = scores, less = scores;
    more[j] += 1e-5;
    less[j] -= 1e-5;
    const std::vector<double> up = softmax(more), down = softmax(less);
    for (size_t i = 0; i < 4; ++i) CHECK(near(jacobian[4 * i + j], (up[i] - down[i]) / 2e-5, 1e-9));
  }
}

TEST_CASE("uniform components: saturated, graded, washed out", "[lessons]") {
  const Experiment result = experiment({});
  const struct {
    double largest, tolerance, deviation;
  } expected[] = {{0.92, 0.02, std::sqrt(512.0)}, {0.080, 0.004, 1}, {0.0112, 0.0002, 1 / std::sqrt(512.0)}};
  for (size_t s = 0; s < 3; ++s) {
    const Scaling& scaling = result.scalings[s];
    INFO(scaling.name);
    CHECK(near(scaling.weights.largest, expected[s].largest, expected[s].tolerance));
    CHECK(near(scaling.weights_reference.largest, expected[s].largest, expected[s].tolerance));
    CHECK(near(scaling.weights.largest, scaling.weights_reference.largest, 1e-6));
    CHECK(near(scaling.scores.deviation, expected[s].deviation, 0.02 * expected[s].deviation));
  }
  CHECK(result.scores.size() == 10000);
  CHECK(result.scalings[0].weights.entropy < result.scalings[1].weights.entropy);
  CHECK(result.scalings[2].weights.entropy < std::log(100.0));
}

TEST_CASE("LayerNorm keeps the scaled scores at about 1", "[lessons]") {
  StudyOptions options;
  options.growth = 2;
  for (const Layer& layer : layer_study(options)) {
    INFO(layer.index);
    const double expected = std::pow(2, static_cast<double>(layer.index));
    CHECK(near(layer.plain.scores.deviation, expected, 0.1 * expected));
    CHECK(near(layer.normed.scores.deviation, 1, 0.1));
    CHECK(near(layer.normed.scores.deviation, layer.normed.scores_reference.deviation, 1e-6));
  }
}

TEST_CASE("parallel, orthogonal and opposite keys", "[lessons]") {
  const Angles angles = angle_study("");
  const double cosine[] = {1, 0.6, 0, -0.6, -1};
  double sum = 0;
  for (const double c : cosine) sum += std::exp(4 * c / std::sqrt(2.0));
  for (size_t j = 0; j < 5; ++j) {
    CHECK(near(angles.once[j].score, 4 * cosine[j] / std::sqrt(2.0), 1e-6));
    CHECK(near(angles.once[j].weight, std::exp(4 * cosine[j] / std::sqrt(2.0)) / sum, 1e-6));
    CHECK(near(angles.doubled[j].score, 2 * angles.once[j].score, 1e-6));
  }
}

TEST_CASE("the online softmax reaches the softmax, and states merge to the bits of one run", "[lessons]") {
  const std::vector<OnlineStep> steps = online_softmax({0.5, 0.5, 1}, {1, 0, 1}, 1);
  CHECK(near(steps[2].rescale, std::exp(-0.5), 1e-15));
  CHECK(near(steps[2].row_max + std::log(steps[2].row_sum), 1.7943767694176431, 1e-14));
  CHECK(near(steps[2].acc[0] / steps[2].row_sum, 0.72593138093880305, 1e-14));
  for (const std::string& target : targets(false)) {
    INFO(target);
    const BlockStudy study = block_study(1, target);
    CHECK(study.same_bits);
    for (const BlockStep& step : study.steps) CHECK(near(step.lse, step.lse_reference, 1e-5));
  }
  for (const Overflow& row : overflow_study({1000, 999, 998}, "")) {
    CHECK(std::isinf(row.naive_double));
    CHECK(std::isnan(row.naive_weight));
    CHECK(near(row.weight, row.weight_reference, 2e-4));
  }
}

TEST_CASE("tables and pictures of characters", "[lessons]") {
  Table table({"a", "bb"});
  table.add({"long", "1"});
  CHECK(table.text() == "a     bb\nlong   1\n");
  CHECK(side_by_side("ab\nc\n", "d\n", 80) == "ab    d\nc\n");
  CHECK(side_by_side("ab\n", "d\n", 6) == "ab\nd\n");
  CHECK(wrapped("one two three", 7) == "one two\nthree\n");
  CHECK(ascii_label("caf\xc3\xa9\x1b[0m", 20) == "caf??[0m");
  CHECK(ascii_label("a long label", 8) == "a long..");
  CHECK(bar(1, 2, 10) == "#####");
  CHECK(bar(NAN, 1, 10).empty());
  const double hidden = std::nan("");
  const CharacterMap map = {2, 2, {1, hidden, 0.4, 0}, false, 1, {}};
  CHECK(character_map(map, {}) == "   0 #\n   1 = .\n");
  Terminal colours;
  colours.colour = true;
  CHECK(character_map(map, colours).find("\033[38;5;") != std::string::npos);
  // Wider and higher than the window.
  const CharacterMap large = {500, 500, std::vector<double>(250000, 0.5), false, 1, {}};
  const std::string text = character_map(large, Terminal{40, 24, false});
  size_t longest = 0, lines = 0;
  for (size_t from = 0; from < text.size(); ++lines) {
    const size_t end = text.find('\n', from);
    longest = std::max(longest, end - from);
    from = end + 1;
  }
  CHECK(longest <= 40);
  CHECK(lines < 24 - 6);
}

TEST_CASE("text in pictures is XML, whatever a label holds", "[lessons]") {
  CHECK(escaped("<a & b>") == "&lt;a &amp; b&gt;");
  CHECK(escaped("é\xff\x01") == "é\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(escaped("\xed\xa0\x80").find("\xed") == std::string::npos);  // a surrogate
  CHECK(coordinate(-0.001) == "0");
  CHECK(coordinate(12.5) == "12.5");
  CHECK(coordinate(100) == "100");
  HeatMap map;
  map.panels.push_back({"one key", 1, 1, {1}});
  CHECK(heat_map_picture(map).find("nan") == std::string::npos);
}

}  // namespace lanewise::lessons
