// Plots with axes: the part of svg.hpp that knows data.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "command.hpp"
#include "lessons/svg.hpp"

namespace lanewise::lessons {
namespace {

constexpr double kCellWidth = 440, kCellHeight = 340;
constexpr double kLeft = 70, kRight = 20, kBottom = 52;
constexpr double kTitleHeight = 40, kLegendLine = 20;

class Drawer {
 public:
  Drawer(Svg& svg, const Plot& plot, double x, double y) : svg_(svg), plot_(plot), x_(x) {
    top_ = y + 26 + kLegendLine * static_cast<double>(plot.series.size());
    left_ = x + kLeft;
    right_ = x + kCellWidth - kRight;
    bottom_ = y + kCellHeight - kBottom;
    svg_.text(left_, y + 14, plot.title, Svg::Anchor::start, "head");
    legend(y + 34);
  }

  void draw() {
    for (const Tick& tick : plot_.x.ticks) {
      svg_.line(x_of(tick.at), top_, x_of(tick.at), bottom_, "grid");
      svg_.text(x_of(tick.at), bottom_ + 17, tick.text, Svg::Anchor::middle, "small");
    }
    for (const Tick& tick : plot_.y.ticks) {
      svg_.line(left_, y_of(tick.at), right_, y_of(tick.at), "grid");
      svg_.text(left_ - 7, y_of(tick.at) + 4, tick.text, Svg::Anchor::end, "small");
    }
    for (const Series& series : plot_.series) draw(series);
    svg_.rect(left_, top_, right_ - left_, bottom_ - top_, "frame");
    svg_.text((left_ + right_) / 2, bottom_ + 38, plot_.x.label, Svg::Anchor::middle);
    svg_.text(x_ + 18, (top_ + bottom_) / 2, plot_.y.label, Svg::Anchor::middle, "ink", -90);
  }

 private:
  static double share(const Axis& axis, double value) {
    if (!axis.log) return (value - axis.low) / (axis.high - axis.low);
    return std::log(std::max(value, axis.low) / axis.low) / std::log(axis.high / axis.low);
  }
  double x_of(double value) const { return left_ + share(plot_.x, value) * (right_ - left_); }
  double y_of(double value) const { return bottom_ - std::clamp(share(plot_.y, value), 0.0, 1.0) * (bottom_ - top_); }

  void legend(double y) {
    for (const Series& series : plot_.series) {
      const std::string colour = std::to_string(series.colour);
      if (series.form == Series::Form::bars) svg_.rect(left_, y - 9, 26, 9, "fill" + colour);
      if (series.form == Series::Form::line)
        svg_.path(step("M", left_, y - 4) + step("L", left_ + 26, y - 4), "line" + colour);
      if (series.form == Series::Form::marks) mark(left_ + 13, y - 4, series.colour);
      svg_.text(left_ + 34, y, series.name);
      y += kLegendLine;
    }
  }

  static std::string step(const char* command, double x, double y) {
    return command + coordinate(x) + " " + coordinate(y);
  }

  // A circle, a square, a triangle, a diamond: told apart without colour.
  void mark(double x, double y, size_t colour) {
    const double r = 4.5;
    const std::string circle = step("M", x - r, y) + "a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z";
    const std::string square = step("M", x - 4, y - 4) + "h8v8h-8z";
    const std::string triangle = step("M", x, y - r) + step("L", x + r, y + 4) + step("L", x - r, y + 4) + "z";
    const std::string diamond =
        step("M", x, y - 5) + step("L", x + 5, y) + step("L", x, y + 5) + step("L", x - 5, y) + "z";
    const std::string* forms[] = {&circle, &square, &triangle, &diamond};
    svg_.path(*forms[colour % 4], "fill" + std::to_string(colour));
  }

  void draw(const Series& series) {
    std::string d;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double x = x_of(series.x[i]), y = y_of(series.y[i]);
      if (series.form == Series::Form::marks) mark(x, y, series.colour);
      if (series.form == Series::Form::line) d += step(i == 0 ? "M" : "L", x, y);
      if (series.form == Series::Form::bars && series.y[i] > plot_.y.low) {
        const double half = series.bar_width / 2, to = x_of(series.x[i] + half);
        const double from = x_of(series.x[i] - half);
        d += step("M", from, bottom_) + "V" + coordinate(y) + "H" + coordinate(to) + "V" + coordinate(bottom_) + "z";
      }
    }
    const std::string colour = std::to_string(series.colour);
    if (!d.empty()) svg_.path(d, (series.form == Series::Form::bars ? "fill" : "line") + colour);
  }

  Svg& svg_;
  const Plot& plot_;
  double x_, left_, right_, top_, bottom_;
};

}  // namespace

Axis linear_axis(std::string label, double low, double high, double step, int decimals) {
  Axis axis = {std::move(label), low, high, {}, false};
  for (int i = 0; low + i * step <= high + step / 1000; ++i) {
    axis.ticks.push_back({low + i * step, tools::format("%.*f", decimals, low + i * step)});
  }
  return axis;
}

Axis decade_axis(std::string label, int lowest, int highest) {
  Axis axis = {std::move(label), std::pow(10, lowest), std::pow(10, highest), {}, true};
  const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  const auto power = [&](int e) {
    if (e >= -3 && e <= 4) return tools::format("%g", std::pow(10, e));
    std::string text = e < 0 ? "10⁻" : "10";
    for (const char digit : std::to_string(std::abs(e))) text += digits[digit - '0'];
    return text;
  };
  for (int e = lowest; e <= highest; ++e) axis.ticks.push_back({std::pow(10, e), power(e)});
  return axis;
}

Axis doubling_axis(std::string label, const std::vector<double>& ticks) {
  Axis axis = {std::move(label), ticks.front(), ticks.back(), {}, true};
  for (const double tick : ticks) axis.ticks.push_back({tick, tools::format("%g", tick)});
  return axis;
}

std::string plot_picture(const std::string& title, const std::vector<Plot>& plots) {
  Svg svg(kCellWidth * static_cast<double>(plots.size()), kTitleHeight + kCellHeight, title);
  svg.text(kLeft, 26, title, Svg::Anchor::start, "title");
  for (size_t i = 0; i < plots.size(); ++i) {
    Drawer(svg, plots[i], kCellWidth * static_cast<double>(i), kTitleHeight).draw();
  }
  return svg.finish();
}

}  // namespace lanewise::lessons
