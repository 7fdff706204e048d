// How large scores get, and what that does to the weights: random vectors, layers, and a real model.
#include <algorithm>
#include <cmath>

#include "command.hpp"
#include "lessons/pages.hpp"
#include "lessons/svg.hpp"

namespace lanewise::lessons {
namespace {

using tools::format;

// A range "-2.00 ... 2.00".
std::string range(double half) { return format("+-%.2f", half); }

// The picture of the variance study.
std::string variance_picture(const std::vector<Variance>& rows) {
  std::vector<double> ticks;
  Series theory = {"√d_k", {}, {}, Series::Form::line, 0}, before = {"q·k, measured", {}, {}, Series::Form::marks, 1};
  Series after = {"q·k / √d_k, measured", {}, {}, Series::Form::marks, 2};
  for (const Variance& row : rows) {
    const double dim = static_cast<double>(row.dim);
    ticks.push_back(dim);
    for (Series* series : {&before, &after}) series->x.push_back(dim);
    before.y.push_back(row.raw.deviation);
    after.y.push_back(row.scaled.deviation);
  }
  std::sort(ticks.begin(), ticks.end());
  // A margin on both sides, so that marks are not cut.
  Axis x = doubling_axis("d_k (components of a vector)", ticks);
  x.low /= 1.5;
  x.high *= 1.5;
  for (int i = 0; i <= 48; ++i) {
    theory.x.push_back(x.low * std::pow(x.high / x.low, i / 48.0));
    theory.y.push_back(std::sqrt(theory.x.back()));
  }
  const double highest = std::sqrt(ticks.back());
  const double step = highest > 40 ? 20 : highest > 10 ? 5 : 1;
  const Plot plot = {"Standard normal components",
                     x,
                     linear_axis("standard deviation of scores", 0, std::ceil(highest * 1.23 / step) * step, step, 0),
                     {theory, before, after}};
  return plot_picture("Scores grow with √d_k", {plot});
}

// The histogram of unscaled scores in the terminal.
void print_histogram(Page& page, const std::vector<double>& scores, double deviation) {
  const size_t bins = 17;
  const double half = 4.25 * deviation;
  const std::vector<int64_t> counts = histogram(scores, -half, half, bins);
  const double most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  Table table({"q.k", "scaled", "samples", ""});
  for (size_t b = 0; b < bins; ++b) {
    const double middle = (static_cast<double>(b) - 8) * 0.5;
    std::string drawn = bar(static_cast<double>(counts[b]), most, 40);
    drawn.resize(40, ' ');
    table.add(
        {format("%6.1f", middle * deviation + 0.0), format("%.1f", middle + 0.0), std::to_string(counts[b]), drawn});
  }
  page.table(table);
}

// Scores without and with scaling, on the same axis, as lines of a histogram.
Plot histogram_plot(const Experiment& result, int64_t dim) {
  const double root = std::sqrt(static_cast<double>(dim));
  const double half = std::ceil(3.6 * root / 20) * 20;
  Plot plot = {"Scores of " + std::to_string(result.scores.size()) + " pairs (q, k)",
               linear_axis("score", -half, half, half / 4, half < 20 ? 1 : 0),
               decade_axis("samples in a bin of width 1, %", -2, 2),
               {}};
  const auto add = [&](const char* name, double factor, size_t colour) {
    std::vector<double> scores = result.scores;
    for (double& score : scores) score *= factor;
    Series series = {name, {}, {}, Series::Form::bars, colour, 0.8};
    const size_t bins = static_cast<size_t>(2 * half) + 1;
    const std::vector<int64_t> counts = histogram(scores, -half - 0.5, half + 0.5, bins);
    for (size_t b = 0; b < bins; ++b) {
      series.x.push_back(static_cast<double>(b) - half);
      series.y.push_back(100 * static_cast<double>(counts[b]) / static_cast<double>(scores.size()));
    }
    // Bars half outside the frame.
    series.x.erase(series.x.begin());
    series.y.erase(series.y.begin());
    series.x.pop_back();
    series.y.pop_back();
    plot.series.push_back(series);
  };
  add("q·k", 1, 0);
  add("q·k / √d_k", 1 / root, 1);
  return plot;
}

Plot rank_plot(const Experiment& result, int64_t draws) {
  const size_t keys = result.scalings[0].weights.by_rank.size();
  const double last = std::max(10.0, std::ceil(static_cast<double>(keys) / 10) * 10);
  Plot plot = {"Mean weight by rank, " + std::to_string(draws) + " rows of " + std::to_string(keys) + " keys",
               linear_axis("rank of the key (largest weight first)", 0, last, last / 5, 0),
               decade_axis("weight", -6, 0),
               {}};
  const char* names[] = {"no scaling: one key takes nearly all", "1/√d_k: graded",
                         "1/d_k: washed out, all keys about the same"};
  for (size_t s = 0; s < 3; ++s) {
    Series series = {names[s], {}, {}, Series::Form::line, s};
    for (size_t j = 0; j < keys && result.scalings[s].weights.by_rank[j] > 1e-6; ++j) {
      series.x.push_back(static_cast<double>(j + 1));
      series.y.push_back(result.scalings[s].weights.by_rank[j]);
    }
    plot.series.push_back(series);
  }
  return plot;
}

std::string layer_picture(const std::vector<Layer>& layers) {
  Series plain = {"scaled by 1/√d_k only", {}, {}, Series::Form::line, 1};
  Series normed = {"LayerNorm before Q and K, then scaled", {}, {}, Series::Form::line, 0};
  Plot weights = {"Mean largest weight", {}, linear_axis("weight", 0, 1, 0.2, 1), {}};
  Plot scores = weights;
  scores.title = "Scaled scores";
  double highest = 1;
  Series plain_weight = plain, normed_weight = normed;
  for (const Layer& layer : layers) {
    for (Series* series : {&plain, &normed, &plain_weight, &normed_weight}) {
      series->x.push_back(static_cast<double>(layer.index));
    }
    plain.y.push_back(layer.plain.scores.deviation);
    normed.y.push_back(layer.normed.scores.deviation);
    plain_weight.y.push_back(layer.plain.weights.largest);
    normed_weight.y.push_back(layer.normed.weights.largest);
    highest = std::max({highest, plain.y.back(), normed.y.back()});
  }
  const double last = std::max(1.0, static_cast<double>(layers.back().index));
  scores.x = weights.x = linear_axis("layer", 0, last, last > 20 ? std::ceil(last / 10) : 1, 0);
  const int top = std::max(1, static_cast<int>(std::ceil(std::log10(highest * 1.01))));
  const double smallest = std::min(*std::min_element(plain.y.begin(), plain.y.end()), normed.y[0]);
  const double lowest = std::max(1e-6, smallest);  // below float32's resolution of scores
  scores.y = decade_axis("standard deviation", std::min(-1, static_cast<int>(std::floor(std::log10(lowest)))), top);
  scores.series = {plain, normed};
  weights.series = {plain_weight, normed_weight};
  return plot_picture("Depth: LayerNorm keeps what √d_k assumes", {scores, weights});
}

}  // namespace

void variance_page(Page& page, const StudyOptions& options) {
  const std::vector<Variance> rows = variance_study(options);
  page.heading("Variance: q.k has variance d_k");
  page.paragraph(
      format("%lld pairs of independent vectors with standard normal components. sigma is the standard "
             "deviation; about 95 %% of the scores lie within 2 sigma.",
             static_cast<long long>(options.samples)));
  Table before({"d_k", "sqrt(d_k)", "mean", "variance", "sigma", "(ref.)", "2 sigma"});
  Table after({"d_k", "variance", "sigma", "(ref.)", "2 sigma", "within +-2"});
  for (const Variance& row : rows) {
    const std::string dim = std::to_string(row.dim);
    before.add({dim, format("%.2f", std::sqrt(static_cast<double>(row.dim))), format("%.2f", row.raw.mean + 0.0),
                format("%.1f", row.raw.variance), format("%.3f", row.raw.deviation),
                format("%.3f", row.raw_reference.deviation), range(2 * row.raw.deviation)});
    after.add({dim, format("%.3f", row.scaled.variance), format("%.4f", row.scaled.deviation),
               format("%.4f", row.scaled_reference.deviation), range(2 * row.scaled.deviation),
               format("%.1f %%", 100 * row.inside)});
  }
  page.print("\nq.k:\n");
  page.table(before);
  page.print("q.k / sqrt(d_k):\n");
  page.table(after);
  page.picture("variance.svg", variance_picture(rows));
}

void experiment_page(Page& page, const StudyOptions& options) {
  const Experiment result = experiment(options);
  const double keys = static_cast<double>(options.keys);
  page.heading(
      format("The experiment: components uniform in +-sqrt(3), d_k = %lld", static_cast<long long>(options.dim)));
  page.paragraph(format("Scores of %lld pairs (q, k), unscaled, and what they are after dividing by sqrt(d_k):",
                        static_cast<long long>(options.samples)));
  print_histogram(page, result.scores, std::sqrt(static_cast<double>(options.dim)));
  page.paragraph(
      format("Weights over %lld keys, averages of %lld rows. Entropy is in nats; its exponential is the number "
             "of keys a row spreads over.",
             static_cast<long long>(options.keys), static_cast<long long>(options.draws)));
  Table table({"scale", "sigma", "(ref.)", "largest weight", "(ref.)", "entropy", "(ref.)", "keys"});
  for (const Scaling& s : result.scalings) {
    table.add({s.name, format("%.4f", s.scores.deviation), format("%.4f", s.scores_reference.deviation),
               format("%.4f", s.weights.largest), format("%.4f", s.weights_reference.largest),
               format("%.3f", s.weights.entropy), format("%.3f", s.weights_reference.entropy),
               format("%.1f", std::exp(s.weights.entropy))});
  }
  page.table(table);
  page.paragraph(format("Equal weights would be %.4f each, with an entropy of %.3f.", 1 / keys, std::log(keys)));
  page.picture("experiment.svg", plot_picture("Components uniform in ±√3, d_k = " + std::to_string(options.dim),
                                              {histogram_plot(result, options.dim), rank_plot(result, options.draws)}));
}

void layer_page(Page& page, const StudyOptions& options) {
  const std::vector<Layer> layers = layer_study(options);
  page.heading("Depth: what LayerNorm adds");
  page.paragraph(
      format("sqrt(d_k) assumes components of variance 1. Here the variance of the inputs x grows by a factor "
             "of %g from layer to layer; q = W_Q x and k = W_K x, drawn anew for each layer, 64 tokens, d_k = "
             "64, scores divided by sqrt(d_k). With LayerNorm before W_Q and W_K sigma stays at about 1.",
             options.growth));
  Table table({"layer", "x sigma", "sigma", "(ref.)", "largest", "LayerNorm: sigma", "(ref.)", "largest"});
  for (const Layer& layer : layers) {
    table.add({std::to_string(layer.index), format("%.3g", layer.input_deviation),
               format("%.4g", layer.plain.scores.deviation), format("%.4g", layer.plain.scores_reference.deviation),
               format("%.4f", layer.plain.weights.largest), format("%.4f", layer.normed.scores.deviation),
               format("%.4f", layer.normed.scores_reference.deviation), format("%.4f", layer.normed.weights.largest)});
  }
  page.table(table);
  page.picture("layers.svg", layer_picture(layers));
}

void real_page(Page& page, const std::vector<RealHeads>& models, const StudyOptions& options) {
  std::vector<Plot> plots;
  for (const RealHeads& model : models) {
    const std::vector<RealHead> heads = real_study(model, options.target);
    page.heading("A real model's heads: " + model.name);
    page.paragraph(
        format("d_k = %lld, scores divided by sqrt(d_k). If components were independent with mean 0, sigma "
               "would be rms(q) rms(k). Learned components agree with each other, which makes it larger, or "
               "share an offset that all keys have, which moves the mean instead.",
               static_cast<long long>(model.dim)));
    Table table({"head", "rms(q)", "rms(k)", "independent: sigma", "measured", "(ref.)", "mean"});
    Series expected = {"if components were independent", {}, {}, Series::Form::marks, 0};
    Series measured = {"measured", {}, {}, Series::Form::marks, 1};
    double highest = 2, lowest = 1;
    for (size_t h = 0; h < heads.size(); ++h) {
      const RealHead& head = heads[h];
      table.add({std::to_string(h), format("%.3f", head.q_size), format("%.3f", head.k_size),
                 format("%.3f", head.expected), format("%.3f", head.scores.deviation),
                 format("%.3f", head.scores_reference.deviation), format("%.3f", head.scores.mean)});
      for (Series* series : {&expected, &measured}) series->x.push_back(static_cast<double>(h));
      expected.y.push_back(head.expected);
      measured.y.push_back(head.scores.deviation);
      highest = std::max({highest, head.expected, head.scores.deviation});
      lowest = std::min({lowest, head.expected, head.scores.deviation});
    }
    page.table(table);
    Axis x = linear_axis("head", 0, static_cast<double>(heads.size()) - 1,
                         std::ceil(static_cast<double>(heads.size()) / 20), 0);
    x.low -= 0.5;
    x.high += 0.5;
    const int bottom = std::max(-6, static_cast<int>(std::floor(std::log10(std::max(lowest, 1e-6)))));
    plots.push_back(
        {model.name,
         x,
         decade_axis("standard deviation of scaled scores", bottom, static_cast<int>(std::ceil(std::log10(highest)))),
         {expected, measured}});
  }
  page.picture("real.svg", plot_picture("Real heads against the theory", plots));
}

}  // namespace lanewise::lessons
