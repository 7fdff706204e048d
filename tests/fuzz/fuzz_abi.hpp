// Wrong calls through the C interface: random fields, null and misaligned pointers, lengths that do not fit, against
// buffers between guard pages. A wrong call is a status with a message, and writes nothing.
#pragma once

#include <string>

#include "draw.hpp"

namespace lanewise::test {

// A problem struct with random fields, alone: a plan or a status, whatever the numbers. Empty, or what is wrong.
std::string check_wrong_problem(Draw& draw);
// A random valid problem with one thing wrong in its run. Empty, or what is wrong.
std::string check_wrong_run(Draw& draw);

}  // namespace lanewise::test
