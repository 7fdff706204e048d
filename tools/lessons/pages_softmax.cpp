// What softmax does to given scores: saturation, competition, and scores as angles.
#include <cmath>

#include "command.hpp"
#include "lessons/pages.hpp"
#include "lessons/svg.hpp"

namespace lanewise::lessons {
namespace {

using tools::format;

void pair_table(Page& page, const Softmax& pair) {
  page.paragraph("softmax of " + list_text(pair.scores) + " and its Jacobian diag(p) - p p^T:");
  Table table({"", "p", "dp / ds1", "dp / ds2", "p", "dp / ds1", "dp / ds2"});
  table.add({"", "kernel", "", "", "reference", "", ""});
  for (size_t i = 0; i < 2; ++i) {
    std::vector<std::string> row = {format("s%zu", i + 1)};
    const auto side = [&](const std::vector<double>& weights, const std::vector<double>& jacobian) {
      row.push_back(format("%.5f", weights[i]));
      for (size_t j = 0; j < 2; ++j) row.push_back(format("%.3g", jacobian[2 * i + j]));
    };
    side(pair.weights.kernel, pair.jacobian);
    side(pair.weights.reference, pair.jacobian_reference);
    table.add(row);
  }
  page.table(table);
}

}  // namespace

void saturation_page(Page& page, const StudyOptions& options) {
  page.heading("Saturation: large scores make softmax deaf");
  page.paragraph(
      "The same order of keys, ten times the size. Near 1 and 0 the derivatives vanish: no error can move such a row.");
  page.print("\n");
  pair_table(page, softmax_study({2, 1}, options.target));
  pair_table(page, softmax_study({20, 10}, options.target));
  page.paragraph("As the scores a * [2, 1] grow, the size of the Jacobian (Frobenius norm) falls to nothing:");
  Table table({"a", "largest p", "(ref.)", "|J| kernel", "(ref.)", "of |J| at a = 1"});
  Plot plot = {"softmax of a · [2, 1]",
               doubling_axis("a (factor on the scores)", {0.25, 0.5, 1, 2, 4, 8, 16, 32}),
               linear_axis("weight; norm (no unit)", 0, 1, 0.2, 1),
               {}};
  Series weight = {"largest weight", {}, {}, Series::Form::line, 0}, norm = weight;
  norm.name = "size of the Jacobian, ‖diag(p) − ppᵀ‖";
  norm.colour = 1;
  const double at_one = frobenius_norm(softmax_study({2, 1}, options.target).jacobian);
  for (int step = -8; step <= 20; ++step) {
    const double a = std::exp2(step / 4.0);
    const float f = static_cast<float>(a);
    const Softmax s = softmax_study({2 * f, f}, options.target);
    const double size = frobenius_norm(s.jacobian), reference = frobenius_norm(s.jacobian_reference);
    weight.x.push_back(a);
    norm.x.push_back(a);
    weight.y.push_back(s.weights.kernel[0]);
    norm.y.push_back(size);
    if (step % 4 != 0) continue;
    table.add({format("%g", a), format("%.6f", s.weights.kernel[0]), format("%.6f", s.weights.reference[0]),
               format("%.3g", size), format("%.3g", reference), format("%.2g", size / at_one)});
  }
  page.table(table);
  plot.series = {weight, norm};
  page.picture("saturation.svg", plot_picture("Large scores saturate softmax", {plot}));
}

void competition_page(Page& page, const StudyOptions& options) {
  page.heading("Competition: softmax of [2, 1, 0.1, -0.5, -1]");
  const std::vector<float> scores = {2, 1, 0.1f, -0.5f, -1};
  std::vector<float> raised = scores, shifted = scores;
  raised[1] += 1;
  for (float& score : shifted) score += 100;
  const Both weights = softmax_of(scores, options.target), after = softmax_of(raised, options.target);
  const Both moved = softmax_of(shifted, options.target);
  page.paragraph(
      "Weights are positive and add up to 1, so keys compete: raising one score takes weight from all others, and in "
      "the same proportion. Adding the same number to every score changes nothing.");
  Table table({"score", "weight", "(ref.)", "", "s2 raised by 1", "ratio", "all + 100"});
  double sums[4] = {0, 0, 0, 0};
  for (size_t j = 0; j < scores.size(); ++j) {
    const double row[] = {weights.kernel[j], weights.reference[j], after.kernel[j], moved.kernel[j]};
    for (size_t s = 0; s < 4; ++s) sums[s] += row[s];
    table.add({format("%g", static_cast<double>(scores[j])), format("%.4f", row[0]), format("%.4f", row[1]),
               bar(row[0], 0.6, 12), format("%.4f", row[2]), format("%.3f", row[2] / row[0]), format("%.4f", row[3])});
  }
  table.add({"sum", format("%.4f", sums[0]), format("%.4f", sums[1]), "", format("%.4f", sums[2]), "",
             format("%.4f", sums[3])});
  page.table(table);
}

void angle_page(Page& page, const StudyOptions& options) {
  const Angles angles = angle_study(options.target);
  page.heading("The dot product: q.k = |q| |k| cos(angle)");
  page.paragraph(
      "A query (2, 0) and keys of length 2 at five angles, scaled by 1/sqrt(2): parallel keys win, orthogonal ones "
      "score 0, opposite ones lose. Keys twice as long say the same things louder.");
  Table table({"angle", "key", "|q||k|cos", "score", "weight", "(ref.)", "2k: score", "weight", "(ref.)"});
  for (size_t j = 0; j < angles.once.size(); ++j) {
    const Angle &once = angles.once[j], &twice = angles.doubled[j];
    const auto number = [](double score) { return format("%.3f", std::fabs(score) < 1e-9 ? 0.0 : score); };
    const double dot = 2 * once.length * std::cos(once.degrees * 3.14159265358979324 / 180);
    table.add({format("%.1f", once.degrees),
               format("%g,%g", static_cast<double>(once.key[0]), static_cast<double>(once.key[1])),
               format("%.2f", std::fabs(dot) < 1e-9 ? 0.0 : dot), number(once.score), format("%.4f", once.weight),
               format("%.4f", once.weight_reference), number(twice.score), format("%.4f", twice.weight),
               format("%.4f", twice.weight_reference)});
  }
  page.table(table);
}

}  // namespace lanewise::lessons
