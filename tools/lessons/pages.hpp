// The parts of `lanewise scale-study` as a reader sees them: text for the terminal and SVG pictures.
#pragma once

#include <string>
#include <vector>

#include "lessons/studies.hpp"
#include "lessons/terminal_picture.hpp"

namespace lanewise::lessons {

// Where a part goes: standard output, and pictures into a folder (empty: no pictures).
class Page {
 public:
  explicit Page(std::string picture_folder);
  void heading(const std::string& text);
  void paragraph(const std::string& text);  // broken into lines of the window's width
  void table(const Table& table);
  void print(const std::string& text);  // as it is
  void picture(const std::string& name, const std::string& svg);
  size_t columns() const { return terminal_.columns; }

 private:
  Terminal terminal_;
  std::string folder_;
  bool begun_ = false;
  bool gap_ = false;  // ends with an empty line
};

void variance_page(Page& page, const StudyOptions& options);
void saturation_page(Page& page, const StudyOptions& options);
void competition_page(Page& page, const StudyOptions& options);
void experiment_page(Page& page, const StudyOptions& options);
void layer_page(Page& page, const StudyOptions& options);
void angle_page(Page& page, const StudyOptions& options);
void real_page(Page& page, const std::vector<RealHeads>& models, const StudyOptions& options);

// "[2, 1, 0.1]"
std::string list_text(const std::vector<float>& values);

}  // namespace lanewise::lessons
