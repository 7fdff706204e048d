// bench_attention: speed of whole calls, each as a share of what this machine can do, measured in the same run.
// bench_main.hpp says what it takes and prints.

#include "bench_main.hpp"
#include "standard_cases.hpp"

int main(int argc, char** argv) {
  using namespace lanewise::bench;
  return bench_main(argc, argv, {"bench_attention", &attention_cases, &attention_promises});
}
