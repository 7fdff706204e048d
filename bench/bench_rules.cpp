// bench_rules: what rules cost, as ratios of calls with and without them measured in turns, and windows as a share of
// the FMA peak over visible scores. bench_main.hpp says what it takes and prints.

#include "bench_main.hpp"
#include "standard_cases.hpp"

int main(int argc, char** argv) {
  using namespace lanewise::bench;
  return bench_main(argc, argv, {"bench_rules", &rule_cases, &rule_promises});
}
