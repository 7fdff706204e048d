// Files and command lines that are almost right, from a fuzzer's choices, and what must hold of how they are taken.
#pragma once

#include <string>
#include <vector>

#include "../fuzz/draw.hpp"

namespace lanewise::test {

std::string odd_safetensors(Draw& draw);
std::string odd_npy(Draw& draw);

// Reads a file: a tensor, or an io::Error of one line. Empty, or what is wrong.
std::string check_safetensors(const std::string& path);
std::string check_npy(const std::string& path);

// What follows the command's name. `inputs`: files it may read; `output`: the one it may write.
std::vector<std::string> odd_command_line(Draw& draw, const std::vector<std::string>& inputs,
                                          const std::string& output);

}  // namespace lanewise::test
