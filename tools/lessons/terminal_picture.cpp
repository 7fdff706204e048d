#include "lessons/terminal_picture.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "command.hpp"

namespace lanewise::lessons {
namespace {

// Rising in ink. Visible keys always leave a mark: a blank is a hidden one.
const std::string kRamp = ".:-=+*%@#";

// Like viridis, in the colours of xterm's 256 that both dark and light windows show.
constexpr int kColours[] = {97, 62, 68, 37, 36, 71, 112, 148, 178};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// 0 ... 8
size_t shade(const CharacterMap& map, double value) {
  double level = map.largest > 0 ? value / map.largest : 0;
  if (map.log) level = level > 1e-3 ? 1 + std::log10(level) / 3 : 0;
  const double step = std::floor(level * static_cast<double>(kRamp.size()));
  return static_cast<size_t>(std::clamp(step, 0.0, static_cast<double>(kRamp.size() - 1)));
}

// The character for one place, with its colour before it where that changes.
std::string mark(size_t shade, bool colour) {
  const std::string character(1, kRamp[shade]);
  return colour ? tools::format("\033[38;5;%dm", kColours[shade]) + character : character;
}

// Largest of a pool of values; NaN where all are hidden.
double pooled(const CharacterMap& map, size_t row, size_t column, size_t pool) {
  double result = std::nan("");
  for (size_t i = row * pool; i < std::min(map.rows, (row + 1) * pool); ++i) {
    for (size_t j = column * pool; j < std::min(map.columns, (column + 1) * pool); ++j) {
      result = std::fmax(result, map.values[i * map.columns + j]);
    }
  }
  return result;
}

}  // namespace

Terminal terminal() {
  Terminal result;
  if (::isatty(STDOUT_FILENO) != 1) return result;
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    result.columns = size.ws_col;
    result.rows = size.ws_row;
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || *kind == '\0' || std::string(kind) == "dumb";
  result.colour = !dumb && (no_colour == nullptr || *no_colour == '\0');
  return result;
}

std::string Table::text(const std::string& indent) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      line += c == 0 ? row[c] + pad : "  " + pad + row[c];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string side_by_side(const std::string& left, const std::string& right, size_t columns) {
  const std::vector<std::string> a = lines_of(left), b = lines_of(right);
  size_t width = 0, right_width = 0;
  for (const std::string& line : a) width = std::max(width, line.size());
  for (const std::string& line : b) right_width = std::max(right_width, line.size());
  width += 4;
  if (width + right_width > columns) return left + right;
  std::string text;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    std::string line = i < a.size() ? a[i] : "";
    if (i < b.size()) line += std::string(width - line.size(), ' ') + b[i];
    text += line + "\n";
  }
  return text;
}

std::string wrapped(const std::string& text, size_t columns) {
  std::istringstream words(text);
  std::string result, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > columns) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + line + "\n";
}

std::string character_map(const CharacterMap& map, const Terminal& terminal) {
  const size_t label_width = map.row_labels.empty() ? 5 : 12;
  const size_t room = terminal.columns - label_width - 1;
  size_t pool = 1;
  const size_t high = terminal.rows > 16 ? terminal.rows - 9 : map.rows;  // what is printed around it
  while ((map.columns + pool - 1) / pool > room || (map.rows + pool - 1) / pool > high) ++pool;
  const size_t rows = (map.rows + pool - 1) / pool, columns = (map.columns + pool - 1) / pool;
  // A character is about twice as high as it is wide.
  const size_t width = 2 * columns <= room ? 2 : 1;
  std::string text;
  for (size_t i = 0; i < rows; ++i) {
    const bool named = !map.row_labels.empty() && pool == 1;
    const std::string label = named ? ascii_label(map.row_labels[i], label_width - 1) : std::to_string(i * pool);
    std::string line = std::string(label_width - 1 - std::min(label.size(), label_width - 1), ' ') + label + " ";
    for (size_t j = 0; j < columns; ++j) {
      const double value = pooled(map, i, j, pool);
      line += std::isnan(value) ? " " : mark(shade(map, value), terminal.colour);
      if (width == 2 && j + 1 < columns) line += " ";
    }
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    text += line + (terminal.colour ? "\033[0m\n" : "\n");
  }
  if (pool > 1) {
    const std::string size = std::to_string(pool);
    text += wrapped("(a character is the largest of " + size + " x " + size + " weights)", terminal.columns);
  }
  return text;
}

std::string character_legend(const CharacterMap& map, const Terminal& terminal) {
  std::string text = "weight:";
  size_t column = text.size();  // escape codes take none
  const auto add = [&](const std::string& shown, const std::string& written) {
    const bool breaks = column + 2 + shown.size() > terminal.columns;
    text += (breaks ? "\n" : column > 7 ? "  " : " ") + written;
    column = (breaks ? 0 : column + 2) + shown.size();
  };
  const size_t steps = kRamp.size();
  for (size_t s = 0; s < steps; s += 2) {
    const double level = static_cast<double>(s) / static_cast<double>(steps);
    const double from = map.log ? (s == 0 ? 0 : std::pow(10, 3 * (level - 1))) : level;
    const std::string words = tools::format(" from %.2g", from * map.largest);
    add(kRamp.substr(s, 1) + words, mark(s, terminal.colour) + (terminal.colour ? "\033[0m" : "") + words);
  }
  add("blank: hidden", "blank: hidden");
  return text + "\n";
}

std::string bar(double value, double largest, size_t columns) {
  const double length = value > 0 && largest > 0 ? std::round(value / largest * static_cast<double>(columns)) : 0;
  return std::string(static_cast<size_t>(std::clamp(length, 0.0, static_cast<double>(columns))), '#');
}

std::string ascii_label(const std::string& utf8, size_t columns) {
  std::string label;
  for (const char c : utf8) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) continue;  // goes with the character before it
    label += byte >= 0x20 && byte < 0x7f ? c : '?';
  }
  if (label.size() > columns) label = label.substr(0, columns - 2) + "..";
  return label;
}

}  // namespace lanewise::lessons
