// The speeds the project promises, measured and printed as a table.
#pragma once

#include <string>
#include <vector>

#include "acceptance_lines.hpp"
#include "team.hpp"

namespace lanewise::bench {

// Prints line, value, limit, share, asked, held for every promise whose line contains `text`. Each number is the median
// of three runs of best-of-20. The exit code is 0 whatever was held (speed is no test), 1 if a case could not run.
int print_acceptance(const std::vector<PromiseGroup>& groups, const std::string& text, Clock clock);

}  // namespace lanewise::bench
