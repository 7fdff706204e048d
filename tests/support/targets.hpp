// Which instruction sets a test runs on: every one this machine has. Each run is counted, and the binary prints
// target x cases at its end.
#pragma once

#include <string>
#include <vector>

namespace lanewise::test {

// Names of the library's targets that this CPU runs. LANEWISE_TEST_TARGETS (comma-separated) narrows them, for an
// emulator without the wider sets.
const std::vector<std::string>& targets();

// Targets whose arithmetic fuses multiply and add give the same bits as one another.
bool has_fma(const std::string& target);
// Targets with the bf16 pair dot.
bool has_native_bf16(const std::string& target);

void count_case(const std::string& target);
int64_t cases_of(const std::string& target);

// Runs body(target) on every target. No target, or a target on which body runs no case, is a failure.
template <class Body>
void for_each_target(Body body);

void require_target_ran(const std::string& target, int64_t cases_before);
void require_some_target();

template <class Body>
void for_each_target(Body body) {
  require_some_target();
  for (const std::string& target : targets()) {
    const int64_t before = cases_of(target);
    body(target);
    require_target_ran(target, before);
  }
}

}  // namespace lanewise::test
