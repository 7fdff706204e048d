// What bench_attention, bench_decode and bench_rules share.
//
//   PROGRAM                               its standard cases
//   PROGRAM --benchmark_filter=NAME       any case: attention_case.hpp says how names are made
//   PROGRAM --acceptance[=TEXT]           every speed the project promises (those whose line contains TEXT);
//                                         with --clock=thread, one-thread cases leave out the time that others had the
//                                         core
//
// Counters: pct_of_limit; limit (GFLOP/s, or GB/s where memory is the limit); gflops over visible scores; gbps over
// keys and values. They are of the fastest iteration, Time is the mean of all: on a shared machine the two differ.
#pragma once

#include <vector>

#include "acceptance_lines.hpp"
#include "attention_case.hpp"

namespace lanewise::bench {

struct BenchProgram {
  const char* name;
  std::vector<AttentionCase> (*cases)();
  std::vector<PromiseGroup> (*promises)();
};

int bench_main(int argc, char** argv, const BenchProgram& program);

}  // namespace lanewise::bench
