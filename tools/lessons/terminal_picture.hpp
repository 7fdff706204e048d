// Tables and pictures of characters for the terminal. ASCII alone, so that a character is a column; colour only where
// the terminal wants it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lanewise::lessons {

// What standard output is.
struct Terminal {
  size_t columns = 80;  // of the window; 80 where there is none
  size_t rows = 0;      // 0: no window, any number will do
  bool colour = false;  // a terminal that shows colours, and NO_COLOR (no-color.org) is not set
};
Terminal terminal();

// Columns as wide as their widest cell, right-aligned but for the first, two spaces between.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text(const std::string& indent = "") const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Texts beside one another where they fit the width, else one below the other. Lines of each are as they are.
std::string side_by_side(const std::string& left, const std::string& right, size_t columns);

// Breaks text at spaces into lines of at most `columns`.
std::string wrapped(const std::string& text, size_t columns);

// A heat map of weights [rows, columns]. A character is the largest of the weights it stands for. Values: NaN where
// hidden, else 0 ... 1.
struct CharacterMap {
  size_t rows, columns;
  std::vector<double> values;
  bool log = false;  // brightness by the logarithm, 1/1000 ... largest; else by the value, 0 ... largest
  double largest = 1;
  std::vector<std::string> row_labels;  // may be empty
};
std::string character_map(const CharacterMap& map, const Terminal& terminal);
std::string character_legend(const CharacterMap& map, const Terminal& terminal);

// Horizontal bars of '#', one a row, the longest `columns` wide.
std::string bar(double value, double largest, size_t columns);

// Printable ASCII for a label: other characters as '?' (one each, not one a byte), cut to `columns`.
std::string ascii_label(const std::string& utf8, size_t columns);

}  // namespace lanewise::lessons
