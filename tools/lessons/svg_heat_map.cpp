// Heat maps: the part of svg.hpp that knows weights.
#include <algorithm>
#include <cmath>

#include "command.hpp"
#include "lessons/svg.hpp"

namespace lanewise::lessons {
namespace {

constexpr int kLevels = 64;         // of the colour scale: finer than the eye
constexpr double kPanelGoal = 560;  // pixels of a panel on its own; less in a grid
constexpr double kGridPanelGoal = 200;
constexpr double kLabelCell = 12;  // pixels a cell needs for a label beside it
constexpr size_t kLabelLetters = 12;
constexpr double kBand = 40;           // pixels a panel is wide and high at least
constexpr double kSmallestCell = 1.5;  // pixels of a square that can be seen
constexpr double kLongName = 110;      // pixels of an axis that has room for "query (position)"
constexpr double kMargin = 16, kTitle = 40, kPanelTitle = 24, kBelow = 44, kScale = 110;

// viridis (matplotlib, CC0) at 0, 1/8 ... 1.
constexpr int kViridis[][3] = {{68, 1, 84},    {71, 44, 122}, {59, 81, 139},  {44, 113, 142}, {33, 144, 141},
                               {39, 173, 129}, {92, 200, 99}, {170, 220, 50}, {253, 231, 37}};

std::string colour_of(int level) {
  const double at = 8.0 * level / (kLevels - 1);
  const int low = std::min(7, static_cast<int>(at));
  int rgb[3];
  for (int c = 0; c < 3; ++c) {
    rgb[c] = static_cast<int>(std::lround(kViridis[low][c] + (at - low) * (kViridis[low + 1][c] - kViridis[low][c])));
  }
  return tools::format("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

int level_of(const HeatMap& map, double weight) {
  double share = map.largest > 0 ? weight / map.largest : 0;
  if (map.log) share = share > 1e-3 ? 1 + std::log10(share) / 3 : 0;
  return std::clamp(static_cast<int>(share * kLevels), 0, kLevels - 1);
}

// The first letters of a label, by characters of UTF-8.
std::string cut(const std::string& label) {
  size_t letters = 0;
  for (size_t i = 0; i < label.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(label[i]) & 0xc0) != 0x80;
    if (begins && letters++ == kLabelLetters) return label.substr(0, i) + "…";
  }
  return label;
}

// Positions worth a number on an axis: every 1, 2, 5, 10 ..., at most `most`.
size_t tick_step(size_t count, size_t most) {
  size_t step = 1;
  for (size_t k = 0; (count + step - 1) / step > most; ++k) step = k % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

class Drawer {
 public:
  explicit Drawer(HeatMap& map) : map_(map) {
    size_t longest = 1;
    for (const HeatPanel& panel : map.panels) longest = std::max({longest, panel.rows, panel.columns});
    const bool alone = map.panels.size() == 1;
    const double goal = alone ? kPanelGoal : map.panels.size() == 2 ? 400 : kGridPanelGoal;
    const bool labels = !map.row_labels.empty() || !map.column_labels.empty();
    const HeatPanel& first = map.panels.front();
    const double square =
        std::clamp(goal / static_cast<double>(longest), alone && labels && longest <= 100 ? kLabelCell : 0.0, 40.0);
    // A single query or key is a band that can be seen.
    cell_x_ = std::max(square, kBand / static_cast<double>(first.columns));
    cell_y_ = std::max(square, kBand / static_cast<double>(first.rows));
    while (cell_x_ * static_cast<double>(pool_x_) < kSmallestCell) ++pool_x_;
    while (cell_y_ * static_cast<double>(pool_y_) < kSmallestCell) ++pool_y_;
    row_labels_ = !map.row_labels.empty() && cell_y_ >= kLabelCell;
    column_labels_ = !map.column_labels.empty() && cell_x_ >= kLabelCell;
    map.labels_fit = !labels || row_labels_ || column_labels_;
    left_ = row_labels_ ? 116 : 58;
    below_ = column_labels_ ? 122 : kBelow;
    width_ = left_ + cell_x_ * static_cast<double>(first.columns) + kMargin;
    height_ = kPanelTitle + cell_y_ * static_cast<double>(first.rows) + below_;
    across_ = std::min<size_t>(map.panels.size(), map.panels.size() <= 4 ? map.panels.size() : 4);
    down_ = (map.panels.size() + across_ - 1) / across_;
  }

  std::string draw() {
    const double note_width = 7.2 * static_cast<double>(map_.title.size()) + 2 * kMargin;
    const double body = width_ * static_cast<double>(across_) + kScale;
    const double tall = std::max(height_ * static_cast<double>(down_), 260.0);
    Svg svg(std::max(body, note_width), kTitle + tall + 22, map_.title);
    svg.text(kMargin, 26, map_.title, Svg::Anchor::start, "title");
    svg.raw(
        "<defs><pattern id=\"hidden\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
        "<rect class=\"hidden\" width=\"6\" height=\"6\"/><path class=\"cross\" d=\"M0 6L6 0\"/></pattern></defs>");
    for (size_t n = 0; n < map_.panels.size(); ++n) {
      panel(svg, map_.panels[n], width_ * static_cast<double>(n % across_),
            kTitle + height_ * static_cast<double>(n / across_));
    }
    scale(svg, body - kScale + 14, kTitle + kPanelTitle);
    if (pool_x_ * pool_y_ > 1) {
      svg.text(kMargin, kTitle + tall + 10,
               "A square is the largest of " + std::to_string(pool_y_) + " × " + std::to_string(pool_x_) +
                   " weights (queries × keys).",
               Svg::Anchor::start, "small");
    }
    return svg.finish();
  }

 private:
  double pooled(const HeatPanel& panel, size_t row, size_t column) const {
    double result = std::nan("");
    for (size_t i = row; i < std::min(panel.rows, row + pool_y_); ++i) {
      for (size_t j = column; j < std::min(panel.columns, column + pool_x_); ++j) {
        result = std::fmax(result, panel.values[i * panel.columns + j]);
      }
    }
    return result;
  }

  // One path a colour, equal neighbours joined, in units of weights: a tenth of a rectangle each.
  void cells(Svg& svg, const HeatPanel& panel, double x, double y) const {
    std::vector<std::string> paths(kLevels);
    for (size_t i = 0; i < panel.rows; i += pool_y_) {
      const std::string top = std::to_string(i), high = std::to_string(std::min(panel.rows - i, pool_y_));
      int level = -1;
      size_t from = 0;
      for (size_t j = 0; j <= panel.columns + pool_x_ - 1; j += pool_x_) {
        int next = -1;
        if (j < panel.columns) {
          const double weight = pooled(panel, i, j);
          if (!std::isnan(weight)) next = level_of(map_, weight);
        }
        if (next == level) continue;
        if (level >= 0) {
          const std::string wide = std::to_string(std::min(j, panel.columns) - from);
          paths[static_cast<size_t>(level)] +=
              "M" + std::to_string(from) + " " + top + "h" + wide + "v" + high + "h-" + wide + "z";
        }
        level = next;
        from = j;
      }
    }
    svg.raw("<g shape-rendering=\"crispEdges\" transform=\"translate(" + coordinate(x) + " " + coordinate(y) +
            ") scale(" + tools::format("%.6g %.6g", cell_x_, cell_y_) + ")\">");
    for (int level = 0; level < kLevels; ++level) {
      const std::string& d = paths[static_cast<size_t>(level)];
      if (!d.empty()) svg.raw("<path fill=\"" + colour_of(level) + "\" d=\"" + d + "\"/>");
    }
    svg.raw("</g>");
  }

  void panel(Svg& svg, const HeatPanel& panel, double x, double y) const {
    const double left = x + left_, top = y + kPanelTitle;
    const double width = cell_x_ * static_cast<double>(panel.columns),
                 height = cell_y_ * static_cast<double>(panel.rows);
    svg.text(left, y + 16, panel.title, Svg::Anchor::start, "head");
    svg.raw("<rect fill=\"url(#hidden)\" x=\"" + coordinate(left) + "\" y=\"" + coordinate(top) + "\" width=\"" +
            coordinate(width) + "\" height=\"" + coordinate(height) + "\"/>");
    cells(svg, panel, left, top);
    svg.rect(left, top, width, height, "frame");
    const auto middle = [](double from, double cell, size_t i) { return from + cell * (static_cast<double>(i) + 0.5); };
    const size_t row_step = row_labels_ ? 1 : tick_step(panel.rows, static_cast<size_t>(height / 22) + 1);
    for (size_t i = 0; i < panel.rows; i += row_step) {
      svg.text(left - 5, middle(top, cell_y_, i) + 4, row_labels_ ? cut(map_.row_labels[i]) : std::to_string(i),
               Svg::Anchor::end, "small");
    }
    const size_t column_step = column_labels_ ? 1 : tick_step(panel.columns, static_cast<size_t>(width / 34) + 1);
    for (size_t j = 0; j < panel.columns; j += column_step) {
      if (column_labels_) {
        svg.text(middle(left, cell_x_, j) + 4, top + height + 6, cut(map_.column_labels[j]), Svg::Anchor::end, "small",
                 -90);
      } else {
        svg.text(middle(left, cell_x_, j), top + height + 15, std::to_string(j), Svg::Anchor::middle, "small");
      }
    }
    const double below = top + height + below_ - 12;
    svg.text(left + width / 2, below, column_labels_ || width < kLongName ? "key" : "key (position)",
             Svg::Anchor::middle);
    svg.text(x + 16, top + height / 2, row_labels_ || height < kLongName ? "query" : "query (position)",
             Svg::Anchor::middle, "ink", -90);
  }

  // The colours with their numbers, and what is hidden.
  void scale(Svg& svg, double x, double y) const {
    const double height = 150;
    svg.text(x, y - 13, "weight");
    for (int level = kLevels - 1; level >= 0; --level) {  // each covers the seam of the one above
      const double top = y + height * (1 - (level + 1.0) / kLevels);
      svg.raw("<rect fill=\"" + colour_of(level) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(top) +
              "\" width=\"18\" height=\"" + coordinate(height / kLevels + 0.9) + "\"/>");
    }
    svg.rect(x, y, 18, height, "frame");
    const int ticks = map_.log ? 3 : 4;
    for (int t = 0; t <= ticks; ++t) {
      const double share = static_cast<double>(t) / ticks;
      const double weight = map_.largest * (map_.log ? std::pow(10, 3 * (share - 1)) : share);
      svg.text(x + 24, y + height * (1 - share) + 4, (map_.log && t == 0 ? "≤ " : "") + tools::format("%.2g", weight),
               Svg::Anchor::start, "small");
    }
    svg.raw("<rect fill=\"url(#hidden)\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y + height + 16) +
            "\" width=\"18\" height=\"14\"/>");
    svg.text(x + 24, y + height + 27, "hidden", Svg::Anchor::start, "small");
  }

  HeatMap& map_;
  double cell_x_, cell_y_, left_, below_, width_, height_;
  size_t pool_x_ = 1, pool_y_ = 1, across_, down_;  // weights a square stands for
  bool row_labels_, column_labels_;
};

}  // namespace

std::string heat_map_picture(HeatMap& map) { return Drawer(map).draw(); }

}  // namespace lanewise::lessons
