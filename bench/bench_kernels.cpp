// bench_kernels: speed of the parts of rows-in-lanes on every target, over one block of 256 keys that lies in the
// cache.
//
//   kernels/scores/d<dim>/v<vectors>/<target>        score tiles: pct_of_peak of the target's FMA peak
//   kernels/values/d<dim>/v<vectors>/<target>        value tiles
//   kernels/probs/v<vectors>/<target>                ns and cycles a vector
//   kernels/store_rows/d<dim>/<target>               a tile's lanes into rows; ns and cycles a vector
//   kernels/pack_rows/d<dim>/<target>                key rows 16 KiB apart into scratch
//   kernels/pack_transposed/d<dim>/<target>          a [dim, len] cache into scratch
//
// Counters are of the fastest iteration.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <benchmark/benchmark.h>

#include "huge_buffer.hpp"
#include "kernel_parts.hpp"
#include "peaks.hpp"
#include "src/targets.hpp"
#include "team.hpp"

namespace lanewise::bench {
namespace {

constexpr int64_t kStrideOfHeads = 4096;  // 32 heads of 128 floats: 16 KiB

// Buffers large enough for every part, filled with numbers that keep scores and probs ordinary.
struct Buffers {
  HugeBuffer rows{size_t{256} * kStrideOfHeads * sizeof(float)};
  HugeBuffer scratch{size_t{256} * 1024 * sizeof(float)};
  HugeBuffer scores{size_t{256} * 64 * sizeof(float)};

  Buffers() {
    uint32_t state = 1;
    for (const HugeBuffer* buffer : {&rows, &scratch, &scores}) {
      for (size_t i = 0; i < buffer->size() / sizeof(float); ++i) {
        state = state * 1664525u + 1013904223u;
        buffer->as<float>()[i] = static_cast<float>(static_cast<int32_t>(state >> 24) - 128) / 256.0f;
      }
    }
  }
};

Buffers& buffers() {
  static Buffers once;
  return once;
}

// Seconds of one call, the best over the benchmark's iterations; an iteration is as many calls as the clock needs.
template <class Call>
double best_call(benchmark::State& state, const Call& call) {
  constexpr double kEnough = 10e-6;
  call();
  const double first = now();
  call();
  const int64_t calls = std::max<int64_t>(1, std::llround(kEnough / std::max(now() - first, 1e-9)));
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = now();
    for (int64_t i = 0; i < calls; ++i) call();
    best = std::min(best, now() - start);
  }
  return best / static_cast<double>(calls);
}

// Peaks do not change from case to case, but the moment may be a bad one: the best so far.
double peak_of(int64_t target) {
  static int64_t last_target = 0;
  static double best = 0;
  if (target != last_target) best = 0;
  last_target = target;
  return best = std::max(best, fma_peak(target, 1));
}

double clock_now() {
  static double best = 0;
  return best = std::max(best, core_clock());
}

void report_flops(benchmark::State& state, int64_t target, double flops, double seconds) {
  const double peak = peak_of(target);
  state.counters["gflops"] = flops / seconds / 1e9;
  state.counters["peak"] = peak;
  state.counters["pct_of_peak"] = 100 * flops / seconds / 1e9 / peak;
}

void report_vectors(benchmark::State& state, double vectors, double seconds) {
  state.counters["ns_per_vector"] = seconds / vectors * 1e9;
  state.counters["cycles_per_vector"] = seconds / vectors * 1e9 * clock_now();
}

template <class Run>
void add(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(("kernels/" + name).c_str(), run)->Unit(benchmark::kMicrosecond);
}

void add_tiles(const KernelParts& parts, int64_t target, size_t vectors) {
  const std::string suffix = "/v" + std::to_string(vectors) + "/" + target_name(target);
  const double rows = static_cast<double>(vectors * parts.lanes);
  for (const int64_t dim : {32, 64, 80, 96, 128, 256}) {
    const double flops = 2 * rows * static_cast<double>(kBlockKeys * dim);
    const std::string dims = "/d" + std::to_string(dim);
    const auto scores = parts.scores[vectors - 1];
    add("scores" + dims + suffix, [=](benchmark::State& state) {
      const Buffers& b = buffers();
      report_flops(state, target, flops, best_call(state, [&] {
                     scores(b.scratch.as<float>(), b.rows.as<float>(), dim, dim, b.scores.as<float>());
                   }));
    });
    const auto values = parts.values[vectors - 1];
    add("values" + dims + suffix, [=](benchmark::State& state) {
      const Buffers& b = buffers();
      report_flops(state, target, flops, best_call(state, [&] {
                     values(b.scores.as<float>(), b.rows.as<float>(), dim, dim, b.scratch.as<float>());
                   }));
    });
  }
  const auto probs = parts.probs[vectors - 1];
  add("probs" + suffix, [=](benchmark::State& state) {
    const Buffers& b = buffers();
    report_vectors(state, static_cast<double>(kBlockKeys) * static_cast<double>(vectors),
                   best_call(state, [&] { probs(b.scores.as<float>()); }));
  });
}

void add_edges(const KernelParts& parts, int64_t target, int64_t dim) {
  const std::string suffix = "/d" + std::to_string(dim) + "/" + target_name(target);
  const size_t vectors = parts.max_vectors;
  const int64_t rows = static_cast<int64_t>(vectors * parts.lanes);
  const double tile_vectors = static_cast<double>(dim) * static_cast<double>(vectors);
  add("store_rows" + suffix, [=](benchmark::State& state) {
    const Buffers& b = buffers();
    const ResultTensor to = {b.rows.data(), LW_TYPE_F32, 0, dim, 1};
    report_vectors(state, tile_vectors, best_call(state, [&] {
                     parts.store_rows(to, rows, vectors, static_cast<size_t>(dim), b.scratch.as<float>());
                   }));
  });
  for (const bool transposed : {false, true}) {
    add((transposed ? "pack_transposed" : "pack_rows") + suffix, [=](benchmark::State& state) {
      const Buffers& b = buffers();
      KeyTensor keys;
      keys.data = b.rows.data();
      keys.type = LW_TYPE_F32;
      keys.len_stride = transposed ? 1 : kStrideOfHeads;
      keys.dim_stride = transposed ? kBlockKeys : 1;
      const double elements = static_cast<double>(kBlockKeys * dim);
      report_vectors(state, elements / static_cast<double>(parts.lanes),
                     best_call(state, [&] { parts.pack(keys, dim, b.scratch.as<float>(), dim); }));
      state.counters["gbps"] = static_cast<double>(parts.lanes) * 4 / state.counters["ns_per_vector"];
    });
  }
}

void register_parts() {
  for (int32_t i = 0; i < target_count(); ++i) {
    const int64_t target = target_at(i);
    if (!target_is_supported(target)) continue;
    const KernelParts parts = kernel_parts_for(target);
    for (size_t vectors = parts.max_vectors; vectors >= 1; --vectors) add_tiles(parts, target, vectors);
    for (const int64_t dim : {64, 128}) add_edges(parts, target, dim);
  }
}

}  // namespace
}  // namespace lanewise::bench

int main(int argc, char** argv) {
  lanewise::bench::register_parts();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  return benchmark::RunSpecifiedBenchmarks() == 0 ? 1 : 0;
}
