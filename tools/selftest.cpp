// `lanewise selftest`: small problems on every target this CPU runs, and statistics of their weights, against the
// float64 reference, and every target with FMA against the others bit by bit. A line a target.
#include <algorithm>
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <cstring>
#include <map>

#include "check.hpp"
#include "command.hpp"
#include "flags.hpp"
#include "run_case.hpp"
#include "statistics_case.hpp"

namespace lanewise::tools {
namespace {

enum class Storage { dense, ragged, paged };

// A problem of random tensors and what is special about it.
struct SelfCase {
  const char* name;
  std::vector<int64_t> sizes;       // batch, q_heads, kv_heads, q_len, kv_len, qk_dim, v_dim
  void (*change)(Flags&);           // may be null
  std::vector<const char*> extras;  // tensors beside q, k, v
  Storage storage = Storage::dense;
};

// splitmix64 (Steele et al. 2014) and Box-Muller: the same tensors on every machine up to the last bit of log and cos.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  uint64_t state_;
};

io::Tensor normal(const char* name, std::vector<int64_t> shape, Random& random) {
  io::Tensor tensor = io::make_tensor(name, io::Type::f32, std::move(shape));
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.as<float>()[i] = static_cast<float>(random.normal());
  return tensor;
}

// Integers in low ... high.
io::Tensor integers(const char* name, std::vector<int64_t> shape, int64_t low, int64_t high, Random& random) {
  io::Tensor tensor = io::make_tensor(name, io::Type::i32, std::move(shape));
  for (int64_t i = 0; i < tensor.count(); ++i)
    tensor.as<int32_t>()[i] = static_cast<int32_t>(low + random.below(high - low + 1));
  return tensor;
}

io::Tensor extra(const std::string& name, const SelfCase& c, Random& random) {
  const int64_t batch = c.sizes[0], q_heads = c.sizes[1], q_len = c.sizes[3], kv_len = c.sizes[4];
  if (name == "lengths") return integers("lengths", {batch}, 0, kv_len, random);
  if (name == "q_lengths") return integers("q_lengths", {batch}, 0, q_len, random);
  if (name == "kv_start") return integers("kv_start", {batch}, 0, 1000, random);
  if (name == "q_offset") return integers("q_offset", {batch}, -5, kv_len, random);
  if (name == "sinks") return normal("sinks", {q_heads}, random);
  if (name == "block_indptr" || name == "block_indices") {  // two rows of tiles, of four
    io::Tensor tensor = io::make_tensor(name, io::Type::i32, {name == "block_indptr" ? 3 : 4});
    const int32_t indptr[] = {0, 2, 4}, indices[] = {0, 3, 1, 2};
    std::copy_n(name == "block_indptr" ? indptr : indices, tensor.count(), tensor.as<int32_t>());
    return tensor;
  }
  if (name == "bias") return normal("bias", {1, q_heads, q_len, kv_len}, random);
  io::Tensor mask = io::make_tensor("mask", io::Type::boolean, {batch, 1, q_len, kv_len});
  for (int64_t i = 0; i < mask.count(); ++i) mask.as<uint8_t>()[i] = random.below(3) != 0;
  return mask;
}

const std::vector<SelfCase>& self_cases() {
  static const std::vector<SelfCase> cases = {
      {"one key", {1, 1, 1, 1, 1, 1, 1}, nullptr, {}},
      {"worked example size", {1, 1, 1, 3, 3, 4, 4}, nullptr, {}},
      {"four by four", {1, 1, 1, 4, 4, 64, 64}, nullptr, {}},
      {"encoder", {2, 3, 3, 61, 61, 32, 32}, nullptr, {}},
      {"odd sizes", {1, 2, 2, 37, 91, 33, 17}, nullptr, {}},
      {"wide values", {1, 2, 1, 5, 40, 8, 200}, nullptr, {}},
      {"wide keys", {1, 2, 1, 9, 70, 192, 128}, nullptr, {}},
      {"v_dim 1", {1, 2, 2, 20, 30, 64, 1}, nullptr, {}},
      {"block edge", {1, 1, 1, 3, 256, 16, 16}, nullptr, {}},
      {"past a block", {1, 1, 1, 3, 257, 16, 16}, nullptr, {}},
      {"past a span", {1, 1, 1, 2, 4099, 16, 8}, nullptr, {}},
      {"grouped", {1, 8, 2, 19, 45, 64, 64}, nullptr, {}},
      {"one kv head", {2, 6, 1, 7, 300, 40, 24}, nullptr, {}},
      {"decode", {3, 4, 2, 1, 500, 64, 64}, nullptr, {}},
      {"long rows", {1, 1, 1, 130, 130, 80, 80}, nullptr, {}},
      {"no keys", {1, 2, 2, 3, 0, 8, 8}, nullptr, {}},
      {"no queries", {1, 2, 2, 0, 3, 8, 8}, nullptr, {}},
      {"causal", {1, 2, 2, 67, 67, 64, 64}, [](Flags& f) { f.causal = true; }, {}},
      {"causal, more keys", {1, 2, 1, 33, 290, 32, 32}, [](Flags& f) { f.causal = true; }, {}},
      {"causal, fewer keys", {1, 2, 1, 90, 40, 32, 32}, [](Flags& f) { f.causal = true; }, {}},
      {"causal, top left", {1, 2, 2, 40, 90, 16, 16}, [](Flags& f) { f.causal = true, f.q_offset = 0; }, {}},
      {"causal, before the keys", {1, 1, 1, 40, 90, 16, 16}, [](Flags& f) { f.causal = true, f.q_offset = -7; }, {}},
      {"causal across blocks", {1, 2, 2, 300, 560, 24, 24}, [](Flags& f) { f.causal = true; }, {}},
      {"scale 0", {1, 1, 1, 5, 50, 16, 16}, [](Flags& f) { f.scale = 0; }, {}},
      {"scale -1", {1, 1, 1, 5, 50, 16, 16}, [](Flags& f) { f.scale = -1; }, {}},
      {"large scores", {1, 1, 1, 40, 300, 64, 64}, [](Flags& f) { f.scale = 4; }, {}},
      {"blhd", {2, 4, 2, 21, 33, 32, 32}, [](Flags& f) { f.layout = "blhd", f.causal = true; }, {}},
      {"padded rows", {2, 4, 2, 21, 33, 30, 30}, [](Flags& f) { f.pad = 3; }, {}},
      {"lengths", {4, 2, 2, 20, 270, 32, 32}, nullptr, {"lengths", "q_lengths"}},
      {"lengths, causal", {5, 2, 1, 20, 64, 32, 32}, [](Flags& f) { f.causal = true; }, {"lengths", "q_lengths"}},
      {"offsets", {4, 2, 2, 20, 300, 32, 32}, [](Flags& f) { f.causal = true; }, {"q_offset"}},
      {"kv_start", {4, 2, 2, 20, 300, 32, 32}, [](Flags& f) { f.causal = true; }, {"kv_start"}},
      {"ragged", {5, 4, 2, 30, 80, 32, 32}, [](Flags& f) { f.causal = true; }, {}, Storage::ragged},
      {"ragged, long", {3, 2, 1, 140, 600, 64, 32}, nullptr, {}, Storage::ragged},
      {"pages", {3, 4, 2, 2, 100, 32, 32}, nullptr, {}, Storage::paged},
      {"pages, causal", {3, 4, 1, 40, 300, 64, 64}, [](Flags& f) { f.causal = true; }, {}, Storage::paged},
      {"window", {1, 2, 2, 60, 350, 32, 32}, [](Flags& f) { f.window = "31,0", f.causal = true; }, {}},
      {"two-sided window", {1, 2, 2, 60, 60, 32, 32}, [](Flags& f) { f.window = "5,9"; }, {}},
      {"prefix", {1, 2, 2, 60, 60, 32, 32}, [](Flags& f) { f.prefix = 13, f.causal = true; }, {}},
      {"softcap", {1, 2, 2, 30, 60, 32, 32}, [](Flags& f) { f.softcap = 20; }, {}},
      {"ALiBi", {1, 6, 6, 30, 60, 32, 32}, [](Flags& f) { f.alibi = true; }, {}},
      {"mask", {2, 2, 2, 30, 300, 32, 32}, nullptr, {"mask"}},
      {"bias", {2, 2, 2, 30, 300, 32, 32}, nullptr, {"bias"}},
      {"block mask",
       {2, 4, 2, 30, 60, 32, 32},
       [](Flags& f) { f.block_mask = "16,16"; },
       {"block_indptr", "block_indices"}},
      {"sinks", {2, 4, 2, 30, 60, 32, 32}, nullptr, {"sinks"}},
      {"bf16", {1, 4, 2, 30, 90, 64, 64}, [](Flags& f) { f.dtype = "bf16"; }, {}},
      {"f16", {1, 4, 2, 30, 90, 64, 64}, [](Flags& f) { f.dtype = "f16"; }, {}},
      {"f32 on bf16", {1, 4, 2, 1, 300, 64, 64}, [](Flags& f) { f.kv_dtype = "bf16"; }, {}},
  };
  return cases;
}

// Prefix offsets of sequences of 0 ... longest rows.
io::Tensor offsets(const char* name, int64_t batch, int64_t longest, Random& random) {
  io::Tensor tensor = io::make_tensor(name, io::Type::i32, {batch + 1});
  int32_t next = 0;
  for (int64_t b = 0; b <= batch; ++b) {
    tensor.as<int32_t>()[b] = next;
    next += static_cast<int32_t>(random.below(longest + 1));
  }
  return tensor;
}

// k and v in shuffled pages of 16 keys, and which sequence has which.
void add_pages(const SelfCase& c, TensorSet& tensors, Random& random) {
  constexpr int64_t kPage = 16;
  const int64_t batch = c.sizes[0], most = (c.sizes[4] + kPage - 1) / kPage, pages = batch * most;
  tensors["k"] = normal("k", {pages, c.sizes[2], kPage, c.sizes[5]}, random);
  tensors["v"] = normal("v", {pages, c.sizes[2], kPage, c.sizes[6]}, random);
  io::Tensor table = io::make_tensor("page_table", io::Type::i32, {batch, most});
  for (int64_t n = 0; n < pages; ++n) {
    const int64_t other = random.below(n + 1);
    table.as<int32_t>()[n] = table.as<int32_t>()[other];
    table.as<int32_t>()[other] = static_cast<int32_t>(n);
  }
  tensors["page_table"] = std::move(table);
  tensors["lengths"] = integers("lengths", {batch}, 0, c.sizes[4], random);
}

ProblemCase case_of(const SelfCase& c, Flags& flags, uint64_t seed) {
  if (c.change != nullptr) c.change(flags);
  Random random(seed);
  TensorSet tensors;
  if (c.storage == Storage::ragged) {
    tensors["cu_seqlens_q"] = offsets("cu_seqlens_q", c.sizes[0], c.sizes[3], random);
    tensors["cu_seqlens_kv"] = offsets("cu_seqlens_kv", c.sizes[0], c.sizes[4], random);
  }
  const bool blhd = flags.layout == "blhd";
  const auto shape = [&](const char* offsets, int64_t heads, int64_t len, int64_t dim) {
    if (c.storage == Storage::ragged)
      return std::vector<int64_t>{tensors[offsets].as<int32_t>()[c.sizes[0]], heads, dim};
    return blhd ? std::vector<int64_t>{c.sizes[0], len, heads, dim} : std::vector<int64_t>{c.sizes[0], heads, len, dim};
  };
  tensors["q"] = normal("q", shape("cu_seqlens_q", c.sizes[1], c.sizes[3], c.sizes[5]), random);
  if (c.storage == Storage::paged) {
    add_pages(c, tensors, random);
  } else {
    tensors["k"] = normal("k", shape("cu_seqlens_kv", c.sizes[2], c.sizes[4], c.sizes[5]), random);
    tensors["v"] = normal("v", shape("cu_seqlens_kv", c.sizes[2], c.sizes[4], c.sizes[6]), random);
  }
  for (const char* name : c.extras) tensors[name] = extra(name, c, random);
  return make_case(std::move(tensors), flags);
}

uint64_t add_bits(uint64_t hash, const io::Tensor& tensor) {
  for (size_t i = 0; i < tensor.bytes.size(); ++i) hash = (hash ^ tensor.bytes.data()[i]) * 0x100000001b3u;  // FNV-1a
  return hash;
}

// Without fused multiply-add a target rounds elsewhere: accurate, but other bits.
bool has_fma(const std::string& target) {
  return target.rfind("SS", 0) != 0 && target != "EMU128" && target != "SCALAR";
}

bool go_on(int64_t, int64_t) { return true; }
constexpr StatisticsWanted kAllStatistics = {true, true, true, true};

// What came out of one target.
struct Tally {
  int64_t passed = 0, failed = 0, unsupported = 0;
  double share = 0, statistics_share = 0;  // largest used share of the bound
};

class SelfTest {
 public:
  explicit SelfTest(bool verbose) : verbose_(verbose) {}

  int execute() {
    bool good = true;
    for (int32_t t = 0; t < lw_target_count(); ++t) {
      const std::string target = lw_target_name(t);
      if (lw_target_supported(t) == 0) {
        std::printf("target %s: not supported by this CPU\n", target.c_str());
        continue;
      }
      Tally tally;
      for (size_t i = 0; i < self_cases().size(); ++i) run(i, target, tally);
      std::printf(
          "target %s: %lld passed, %lld failed, at most %.2g %% of the error bound used, %.2g %% in statistics of "
          "weights",
          target.c_str(), static_cast<long long>(tally.passed), static_cast<long long>(tally.failed), 100 * tally.share,
          100 * tally.statistics_share);
      if (tally.unsupported > 0)
        std::printf(", %lld not in this version yet", static_cast<long long>(tally.unsupported));
      std::printf("\n");
      good = good && tally.failed == 0;
    }
    std::printf("bits: %s on all targets with fused multiply-add\n", same_bits_ ? "equal" : "DIFFERENT");
    return good && same_bits_ ? kSuccess : kCheckFailed;
  }

 private:
  void run(size_t index, const std::string& target, Tally& tally) {
    const SelfCase& self = self_cases()[index];
    Flags flags;
    const ProblemCase c = case_of(self, flags, 1000 + index);
    lanewise::Options plan_options;
    plan_options.target = target.c_str();
    lanewise::Plan plan;
    const lanewise::Status status = lanewise::Plan::make(c.problem, plan_options, plan);
    if (status.code() == LW_UNSUPPORTED) {
      ++tally.unsupported;
      return;
    }
    RunOptions options = run_options(flags);
    options.target = target;
    bool good = false;
    double share = 0;
    std::string problem = status.message();
    if (status) {
      const RunResult result = run_case(c, options);
      const ReferenceResult& expected = reference(index, c);
      const Comparison out = compare_out(c, result, expected), lse = compare_lse(c, result, expected);
      good = out.passes() && lse.passes();
      share = std::max(out.largest_share, lse.largest_share);
      problem = format("out off by %.3g, lse by %.3g", out.largest_error, lse.largest_error);
      const StatisticsResult statistics = run_statistics(c, options, result.lse, kAllStatistics);
      std::array<Comparison, 4> comparisons;
      compare_statistics(c, result, statistics, kAllStatistics, expected, default_threads(), go_on, comparisons);
      uint64_t hash = add_bits(add_bits(0xcbf29ce484222325u, result.out), result.lse);
      for (size_t n = 0; n < comparisons.size(); ++n) {
        good = good && comparisons[n].passes();
        tally.statistics_share = std::max(tally.statistics_share, comparisons[n].largest_share);
        problem += format(", %s by %.3g", statistics.tensors()[n]->name.c_str(), comparisons[n].largest_error);
        hash = add_bits(hash, *statistics.tensors()[n]);
      }
      if (has_fma(target)) compare_bits(index, target, hash);
    }
    tally.share = std::max(tally.share, share);
    ++(good ? tally.passed : tally.failed);
    if (!good) std::printf("target %s: %s FAILS: %s\n", target.c_str(), self.name, problem.c_str());
    if (good && verbose_) std::printf("target %s: %s: %.2g %% of the bound\n", target.c_str(), self.name, 100 * share);
  }

  const ReferenceResult& reference(size_t index, const ProblemCase& c) {
    const auto [at, added] = references_.try_emplace(index);
    if (added) reference_of(c, default_threads(), go_on, at->second);
    return at->second;
  }

  void compare_bits(size_t index, const std::string& target, uint64_t hash) {
    const auto [at, added] = hashes_.try_emplace(index, hash);
    if (added || at->second == hash) return;
    same_bits_ = false;
    std::printf("target %s: %s has other bits than the first target\n", target.c_str(), self_cases()[index].name);
  }

  bool verbose_;
  bool same_bits_ = true;
  std::map<size_t, ReferenceResult> references_;
  std::map<size_t, uint64_t> hashes_;
};

}  // namespace

void add_selftest(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("selftest", "All targets of this machine against the float64 reference");
  const auto verbose = std::make_shared<bool>(false);
  command->add_flag("--verbose", *verbose, "a line a problem");
  command->callback([verbose, &chosen] { chosen = [verbose] { return SelfTest(*verbose).execute(); }; });
}

}  // namespace lanewise::tools
