// `lanewise info`: version, machine, and one line a target: name, supported or not, chosen.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "command.hpp"
#include "run_case.hpp"

namespace lanewise::tools {
namespace {

// First line of a small file, or empty.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// "L1d 48K, L2 2048K ...", as Linux lists them for CPU 0.
std::string caches() {
  std::string text;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level"), type = first_line(folder + "type");
    if (level.empty()) break;
    if (type == "Instruction") continue;
    text += (text.empty() ? "L" : ", L") + level + (type == "Data" ? "d " : " ") + first_line(folder + "size");
  }
  return text.empty() ? "unknown" : text;
}

lanewise::Problem smallest_problem() {
  lanewise::Problem problem;
  problem.q_len = problem.kv_len = problem.qk_dim = problem.v_dim = 1;
  return problem;
}

int info() {
  const int32_t version = lw_version();
  // What a plan without a choice uses. A wrong LANEWISE_TARGET is an error here like everywhere.
  const std::string chosen = make_plan(smallest_problem(), "").explain(1).target;
  std::printf("version: %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  std::printf("cpu: %s\n", cpu_name().c_str());
  std::printf("caches: %s\n", caches().c_str());
  std::printf("threads: %d (of %u)\n", default_threads(), std::thread::hardware_concurrency());
  for (int32_t i = 0; i < lw_target_count(); ++i) {
    const std::string name = lw_target_name(i);
    std::printf("target %s: %s%s\n", name.c_str(), lw_target_supported(i) != 0 ? "supported" : "not supported",
                name == chosen ? ", chosen" : "");
  }
  return kSuccess;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("info", "Version, machine and instruction-set targets");
  command->callback([&chosen] { chosen = [] { return info(); }; });
}

}  // namespace lanewise::tools
