// Runs the built `lanewise` as a process of its own and keeps what it printed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "temp_dir.hpp"

namespace lanewise::test {

struct Outcome {
  int code;  // exit code, or -signal
  std::string out, err;
};

// Without a shell. `environment`: NAME=VALUE, added to the process's own. `meanwhile` is called while it runs.
Outcome lanewise_command(
    const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
    const std::function<void(pid_t)>& meanwhile = [](pid_t) {});

// One non-empty line that names the command.
bool is_one_clear_line(const std::string& err);

std::string data_file(const std::string& name);  // of tests/data

}  // namespace lanewise::test
