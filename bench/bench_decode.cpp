// bench_decode: few query rows against long caches, as a share of the machine's read bandwidth or of its arithmetic,
// measured in the same run. bench_main.hpp says what it takes and prints; and
//
//   bench_decode --curve[=THREADS]      1 to 64 rows a kv head, by either kernel

#include <cstdlib>
#include <cstring>

#include "bench_main.hpp"
#include "curve.hpp"
#include "standard_cases.hpp"

int main(int argc, char** argv) {
  using namespace lanewise::bench;
  constexpr const char* kCurve = "--curve";
  if (argc == 2 && std::strncmp(argv[1], kCurve, std::strlen(kCurve)) == 0) {
    const char* threads = argv[1] + std::strlen(kCurve);
    return print_curve(*threads == '=' ? std::atoi(threads + 1) : all_threads());
  }
  return bench_main(argc, argv, {"bench_decode", &decode_cases, &decode_promises});
}
