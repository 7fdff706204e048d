#include <algorithm>
#include <cstdio>

#include "command.hpp"
#include "io/file.hpp"
#include "lessons/pages.hpp"

namespace lanewise::lessons {

Page::Page(std::string picture_folder) : terminal_(terminal()), folder_(std::move(picture_folder)) {}

void Page::heading(const std::string& text) {
  print((begun_ && !gap_ ? "\n" : "") + wrapped(text, columns()) + std::string(std::min(text.size(), columns()), '-') +
        "\n");
}

void Page::paragraph(const std::string& text) { print(wrapped(text, std::min<size_t>(columns(), 100))); }

void Page::table(const Table& table) { print("\n" + table.text("  ") + "\n"); }

void Page::print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  begun_ = true;
  gap_ = text.size() >= 2 && text.compare(text.size() - 2, 2, "\n\n") == 0;
}

void Page::picture(const std::string& name, const std::string& svg) {
  if (folder_.empty()) return;
  io::OutputFile file(folder_ + "/" + name);
  file.write(svg.data(), svg.size());
  file.commit();
}

std::string list_text(const std::vector<float>& values) {
  std::string text = "[";
  for (const float value : values)
    text += (text.size() > 1 ? ", " : "") + tools::format("%g", static_cast<double>(value));
  return text + "]";
}

}  // namespace lanewise::lessons
