// SVG pictures: plots with axes and heat maps. Every picture brings its own background and follows the reader's light
// or dark setting (prefers-color-scheme). Colours are those of Okabe and Ito and of viridis, which colour-blind readers
// tell apart; lines also differ in their dashes and marks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lanewise::lessons {

class Svg {
 public:
  Svg(double width, double height, std::string title);

  enum class Anchor { start, middle, end };
  // `style`: class names of the style sheet in svg.cpp.
  void text(double x, double y, const std::string& words, Anchor anchor = Anchor::start, const char* style = "ink",
            double turned = 0);
  void line(double x1, double y1, double x2, double y2, const char* style);
  void rect(double x, double y, double width, double height, const std::string& style);
  void path(const std::string& d, const std::string& style);
  void raw(const std::string& element) { body_ += element + "\n"; }
  std::string finish() const;

 private:
  double width_, height_;
  std::string title_, body_;
};

// "12.5", "3", "-0.25": at most two decimals, no trailing zeros.
std::string coordinate(double value);
std::string escaped(const std::string& text);  // for XML; what is no character of UTF-8 or XML becomes U+FFFD

struct Tick {
  double at;
  std::string text;
};
struct Axis {
  std::string label;  // with its unit
  double low, high;
  std::vector<Tick> ticks;
  bool log = false;
};
Axis linear_axis(std::string label, double low, double high, double step, int decimals);
Axis decade_axis(std::string label, int lowest, int highest);             // 10^lowest ... 10^highest
Axis doubling_axis(std::string label, const std::vector<double>& ticks);  // a logarithmic axis with these ticks

struct Series {
  std::string name;
  std::vector<double> x, y;
  enum class Form { line, marks, bars } form = Form::line;
  size_t colour = 0;     // 0 ... 3
  double bar_width = 0;  // in units of x
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};
// Plots beside one another, each in a cell of 440 x 340.
std::string plot_picture(const std::string& title, const std::vector<Plot>& plots);

// Weights of one head, [rows, columns]; NaN: hidden.
struct HeatPanel {
  std::string title;
  size_t rows, columns;
  std::vector<double> values;
};
struct HeatMap {
  std::string title;
  std::vector<HeatPanel> panels;
  std::vector<std::string> row_labels, column_labels;  // UTF-8; empty: positions
  bool log = false;                                    // 1/1000 of the largest ... largest
  double largest = 1;                                  // end of the colour scale
  bool labels_fit = true;  // set by heat_map_picture: false where cells were too small for labels
};
std::string heat_map_picture(HeatMap& map);

}  // namespace lanewise::lessons
