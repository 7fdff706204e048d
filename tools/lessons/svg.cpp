#include "lessons/svg.hpp"

#include <cmath>

#include "command.hpp"

namespace lanewise::lessons {
namespace {

// Blue, vermilion, green and purple of Okabe and Ito (https://jfly.uni-koeln.de/color/); on dark, lighter ones.
const char* kStyle = R"(<style>
text{font:13px sans-serif}
.paper{fill:#fff}.ink{fill:#1c1c1c}.small{fill:#1c1c1c;font-size:11px}.title{fill:#1c1c1c;font-size:16px;font-weight:bold}
.head{fill:#1c1c1c;font-weight:bold}
.frame{stroke:#555;fill:none}.grid{stroke:#ddd;fill:none}.hidden{fill:#e4e4e4}.cross{stroke:#bbb;fill:none}
.line0,.line1,.line2,.line3{fill:none;stroke-width:2.2}
.line1{stroke-dasharray:8 4}.line2{stroke-dasharray:2 4}.line3{stroke-dasharray:10 3 2 3}
.line0{stroke:#0072b2}.line1{stroke:#d55e00}.line2{stroke:#00795a}.line3{stroke:#a3467e}
.fill0{fill:#0072b2}.fill1{fill:#d55e00}.fill2{fill:#00795a}.fill3{fill:#a3467e}
@media (prefers-color-scheme:dark){
.paper{fill:#16191d}.ink,.small,.title,.head{fill:#ececec}
.frame{stroke:#aaa}.grid{stroke:#3a3f45}.hidden{fill:#2c3137}.cross{stroke:#565d66}
.line0{stroke:#56b4e9}.line1{stroke:#f0a030}.line2{stroke:#2fc49a}.line3{stroke:#e39bc4}
.fill0{fill:#56b4e9}.fill1{fill:#f0a030}.fill2{fill:#2fc49a}.fill3{fill:#e39bc4}
}
</style>
)";

// Length of the valid UTF-8 character at `at` that XML 1.0 allows, or 0.
size_t character_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const uint32_t first = byte(at);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first >= 0xf5) return 0;
  uint32_t code = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  const bool short_form = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool no_character = (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff || code > 0x10ffff;
  return short_form || no_character || (code >= 0x80 && code < 0xa0) ? 0 : length;
}

}  // namespace

std::string coordinate(double value) {
  std::string text = tools::format("%.2f", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_length(text, i);
    if (length == 0) {
      result += "\xef\xbf\xbd";
      ++i;
      continue;
    }
    const std::string character = text.substr(i, length);
    result += character == "&" ? "&amp;" : character == "<" ? "&lt;" : character == ">" ? "&gt;" : character;
    i += length;
  }
  return result;
}

Svg::Svg(double width, double height, std::string title) : width_(width), height_(height), title_(std::move(title)) {}

void Svg::text(double x, double y, const std::string& words, Anchor anchor, const char* style, double turned) {
  const char* anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  const std::string place = coordinate(x) + " " + coordinate(y);
  body_ += "<text class=\"" + std::string(style) + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\"" +
           anchors[static_cast<size_t>(anchor)];
  if (turned != 0) body_ += " transform=\"rotate(" + coordinate(turned) + " " + place + ")\"";
  body_ += ">" + escaped(words) + "</text>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, const char* style) {
  path("M" + coordinate(x1) + " " + coordinate(y1) + "L" + coordinate(x2) + " " + coordinate(y2), style);
}

void Svg::rect(double x, double y, double width, double height, const std::string& style) {
  body_ += "<rect class=\"" + style + "\" x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" +
           coordinate(width) + "\" height=\"" + coordinate(height) + "\"/>\n";
}

void Svg::path(const std::string& d, const std::string& style) {
  body_ += "<path class=\"" + style + "\" d=\"" + d + "\"/>\n";
}

std::string Svg::finish() const {
  const std::string w = coordinate(width_), h = coordinate(height_);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " + w + " " +
         h + "\" role=\"img\">\n<title>" + escaped(title_) + "</title>\n" + kStyle + "<rect class=\"paper\" width=\"" +
         w + "\" height=\"" + h + "\"/>\n" + body_ + "</svg>\n";
}

}  // namespace lanewise::lessons
