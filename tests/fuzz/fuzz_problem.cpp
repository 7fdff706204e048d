#include "fuzz_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "src/plan.hpp"
#include "support/canonical.hpp"
#include "support/rnd.hpp"
#include "support/statistics.hpp"
#include "support/targets.hpp"

namespace lanewise::test {
namespace {

constexpr const char* kNames[] = {
    "batch",     "kv_heads",  "group",     "q_len",      "kv_len",   "qk_dim",      "v_dim",        "q_type",
    "kv_type",   "out_type",  "native",    "q_layout",   "k_layout", "v_layout",    "out_layout",   "ragged_q",
    "ragged_kv", "page_size", "q_lengths", "kv_lengths", "capacity", "no_lse",      "state",        "continued",
    "scale",     "amplitude", "content",   "causal",     "window",   "window_left", "window_right", "positions",
    "kv_starts", "prefix",    "softcap",   "alibi",      "mask",     "mask_axes",   "bias",         "bias_axes",
    "tiles",     "sinks",     "threads",   "runner",     "stream"};
static_assert(std::size(kNames) == kFields);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kTypes[] = {LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16};
constexpr float kScales[] = {0, 1, -0.5f, 0.125f, 1e-30f};  // 0: not given
constexpr float kAmplitudes[] = {1, 0.01f, 8, 60};
constexpr int64_t kSpan = 4096;

// Mostly few, sometimes around the edges of vectors, tiles and blocks.
int64_t draw_keys(Draw& draw) {
  constexpr int64_t kEdges[] = {15, 16, 17, 31, 32, 33, 255, 256, 257, 511, 512, 513};
  switch (draw.below(4)) {
    case 0:
      return draw.within(1, 12);
    case 1:
      return draw.within(1, 100);
    case 2:
      return draw.within(0, 600);
    default:
      return draw.one_of(kEdges);
  }
}

int64_t draw_dim(Draw& draw) {
  return draw.rarely(8) ? draw.within(65, 130) : draw.within(1, draw.rarely(2) ? 64 : 20);
}

void draw_sizes(Draw& draw, FuzzProblem& p) {
  auto& f = p.field;
  f[kBatch] = draw.within(1, 3);
  f[kKvHeads] = draw.within(1, 3);
  f[kGroup] = draw.within(1, 4);
  f[kKvLen] = draw_keys(draw);
  f[kQLen] = draw.rarely(2) ? draw.within(1, 4) : draw.within(draw.rarely(16) ? 0 : 1, 150);
  f[kQkDim] = draw_dim(draw);
  f[kVDim] = draw.rarely(2) ? f[kQkDim] : draw_dim(draw);
  f[kStream] = 1 + 8 * draw.below(4096);
  bool many_rows = false;
  if (draw.rarely(24)) {  // more than one span
    f[kKvLen] = draw.within(4000, 9000);
    f[kQkDim] = draw.within(1, 6);
    f[kVDim] = draw.within(1, 6);
    f[kQLen] = draw.within(1, 3);
    f[kContinued] = f[kKvLen] > kSpan && draw.rarely(2);
  } else if (draw.rarely(16)) {  // a task is several tiles of rows: cheap where the rest is small
    many_rows = true;
    f[kKvLen] = draw.within(1, 9);
    f[kQkDim] = draw.within(1, 3);
    f[kVDim] = draw.within(1, 3);
    f[kQLen] = draw.within(100, 300);
  }
  // The reference and the scalar program take the time, not the library; below 10^6 it uses one thread and cuts nothing.
  // So most problems are tiny: two in five have some thousand multiply-adds, one in 36 more than 10^5, one in 165 10^6.
  int64_t most = many_rows ? 65536 : 1024;
  while (most < 4000000 && draw.below(5) < 3) most *= 2;
  constexpr Field kLess[] = {kBatch, kGroup, kKvHeads, kQLen, kQkDim, kVDim};
  const auto halve = [&](Field less) { f[less] = (f[less] + 1) / 2; };
  const auto work = [&] { return f[kBatch] * f[kKvHeads] * f[kGroup] * f[kQLen] * f[kKvLen] * (f[kQkDim] + f[kVDim]); };
  for (int n = 0; n < 20 && work() > most; ++n) halve(draw.one_of(kLess));
  for (const Field less : kLess) {
    while (work() > most && f[less] > 1) halve(less);
  }
}

void draw_storage(Draw& draw, FuzzProblem& p) {
  auto& f = p.field;
  if (draw.rarely(2)) {
    for (const Field type : {kQType, kKvType, kOutType}) f[type] = draw.below(3);
    if (draw.rarely(4)) f[kNative] = f[kQType] = f[kKvType] = 1;
  }
  if (draw.rarely(2)) {
    for (const Field layout : {kQLayout, kKLayout, kVLayout, kOutLayout}) f[layout] = draw.below(7);
  }
  f[kRaggedQ] = draw.rarely(4);
  const int64_t keys = draw.below(4);
  f[kRaggedKv] = keys == 1;
  if (keys == 2) f[kPageSize] = draw.rarely(2) ? draw.within(1, 40) : int64_t{1} << draw.below(6);
  f[kQLengths] = draw.rarely(4);
  f[kKvLengths] = draw.rarely(2);
  f[kCapacity] = draw.rarely(6);
  f[kNoLse] = draw.rarely(8);
  f[kState] = draw.rarely(4);
  f[kThreads] = draw.within(1, 7);
  // Starting threads takes longer than a small problem; parts one after the other cut it all the same.
  constexpr Runner kQuick[] = {Runner::kCaller, Runner::kPartsReversed, Runner::kPartsReversed, Runner::kOpenmp};
  constexpr Runner kThreaded[] = {Runner::kCallback, Runner::kPartsOnThreads};
  f[kRunner] = static_cast<int64_t>(draw.rarely(16) ? draw.one_of(kThreaded) : draw.one_of(kQuick));
}

void draw_rules(Draw& draw, FuzzProblem& p) {
  auto& f = p.field;
  f[kScale] = draw.below(std::size(kScales));
  f[kAmplitude] = draw.rarely(2) ? draw.below(std::size(kAmplitudes)) : 0;
  f[kContent] = draw.rarely(8);
  f[kCausal] = draw.rarely(2);
  if (draw.rarely(3)) {
    f[kWindow] = draw.within(1, 3);
    f[kWindowLeft] = draw.below(f[kKvLen] + 3);
    f[kWindowRight] = draw.below(20);
  }
  if (draw.rarely(2)) f[kPositions] = draw.within(1, 3);
  f[kKvStarts] = f[kContinued] ? 0 : draw.rarely(4);
  if (draw.rarely(6)) f[kPrefix] = draw.below(f[kKvLen] + 20);
  if (draw.rarely(4)) f[kSoftcap] = draw.within(1, 3);
  if (draw.rarely(4)) f[kAlibi] = draw.within(1, 2);
  if (draw.rarely(3)) f[kMask] = f[kContinued] ? 1 : draw.within(1, 3);
  f[kMaskAxes] = draw.below(8);
  if (draw.rarely(3)) f[kBias] = draw.within(1, 3);
  f[kBiasAxes] = draw.below(8);
  f[kTiles] = !f[kContinued] && draw.rarely(6);
  f[kSinks] = draw.rarely(4);
}

// Axes whose bit is set are broadcast. Keys never are.
Shape shape_of(const FuzzProblem& p, int64_t axes, int64_t keys) {
  return {axes & 1 ? 1 : p[kBatch], axes & 2 ? 1 : p[kKvHeads] * p[kGroup], axes & 4 ? 1 : p[kQLen], keys};
}

Array flags(const Shape& shape, uint64_t stream, float share) {
  Array array = random_array(shape, stream);
  for (float& x : array.values) x = x < 2 * share - 1 ? 1.0f : 0.0f;
  return array;
}

// Whole numbers low ... high.
std::vector<int32_t> integers(int64_t n, uint64_t stream, int64_t low, int64_t high) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < n; ++i) {
    const double share = (static_cast<double>(rnd(stream, static_cast<uint64_t>(i))) + 1) / 2;
    values.push_back(static_cast<int32_t>(low + std::llround(share * static_cast<double>(high - low))));
  }
  return values;
}

void add_positions(const FuzzProblem& p, Case& c) {
  const uint64_t s = static_cast<uint64_t>(p[kStream]) + 100000;
  const int64_t batch = p[kBatch], keys = p[kKvLen];
  if (p[kQLengths]) c.q_lengths(integers(batch, s, 0, p[kQLen]));
  if (p[kKvLengths] && !p[kContinued]) c.kv_lengths(integers(batch, s + 1, 0, keys));
  if (p[kKvStarts]) c.kv_starts(integers(batch, s + 2, 0, 5000));
  if (p[kPositions] == 1) c.q_offset(keys / 2 - 3);
  if (p[kPositions] == 2) c.q_offsets(integers(batch, s + 3, -5, keys + 5));
  if (p[kPositions] == 3 && p[kQLen] > 0) c.q_positions(integers(batch * p[kQLen], s + 4, 0, keys + 3));
  c.causal(p[kCausal] != 0);
  c.window(p[kWindow] & 1 ? p[kWindowLeft] : -1, p[kWindow] & 2 ? p[kWindowRight] : -1);
  c.prefix(p[kPrefix]);
}

void add_rules(const FuzzProblem& p, Case& c) {
  const uint64_t s = static_cast<uint64_t>(p[kStream]) + 200000;
  const int64_t heads = p[kKvHeads] * p[kGroup], keys = p[kKvLen];
  constexpr float kCaps[] = {0, 0.7f, 20, 1e-5f};
  c.softcap(kCaps[p[kSoftcap]]);
  if (p[kAlibi]) c.alibi(random_array({1, 1, p[kAlibi] == 2 ? p[kBatch] : 1, heads}, s, 0.5f).values);
  if (p[kSinks]) c.sinks(random_array({1, 1, 1, heads}, s + 1, 5).values);
  const bool none = keys == 0 || p[kQLen] == 0;
  if (p[kMask] && !none) {
    const int32_t type = p[kMask] == 1 ? LW_TYPE_BOOL : LW_TYPE_BITS;
    if (p[kMask] == 3) {
      c.tail_mask(flags(shape_of(p, p[kMaskAxes], std::min<int64_t>(keys, 21)), s + 2, 0.5f), type);
    } else {
      c.mask(flags(shape_of(p, p[kMaskAxes], keys), s + 2, 0.6f), type);
    }
  }
  if (p[kBias] && !none) {
    Array bias = random_array(shape_of(p, p[kBiasAxes], keys), s + 3, 2);
    for (size_t n = 5; n < bias.values.size(); n += 7) bias.values[n] = n % 2 ? -kInf : -3.3e38f;
    c.bias(bias, kTypes[p[kBias] - 1]);
  }
  if (p[kTiles] && !none)
    c.block_mask(8, 24, flags({p[kBatch], heads, (p[kQLen] + 7) / 8, (keys + 23) / 24}, s + 4, 0.6f));
}

void spoil(const FuzzProblem& p, Case& c) {
  constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 1e38f, -1e38f, 1e-40f, -0.0f};
  for (Array* array : {&c.q(), &c.k(), &c.v()}) {
    const size_t size = array->values.size();
    for (size_t n = 0; size > 0 && n < 6; ++n)
      array->values[static_cast<size_t>(p[kStream]) * (n + 3) % size] = kOdd[(n + static_cast<size_t>(p[kStream])) % 7];
  }
}

// canonical() leaves results in float32.
Result rounded(Result result, int32_t type) {
  for (float& x : result.out.values) {
    alignas(4) uint8_t element[4];
    store(type, element, 0, x);
    x = load(type, element, 0);
  }
  return result;
}

struct Checker {
  const FuzzProblem& p;
  Case whole, last;
  std::optional<Expectation> expected;
  std::optional<Result> right;
  std::optional<Prepared> prepared;

  explicit Checker(const FuzzProblem& problem) : p(problem), whole(case_of(p)), last(whole) {
    if (!p[kContent]) expected.emplace(whole);
    if (p[kContinued]) last = whole.key_part(kSpan, p[kKvLen]);
    if (!p[kNative]) right = rounded(canonical(Case(whole).dense().prepare()), kTypes[p[kOutType]]);
    if (p[kNoLse] && right) right->lse = Array();
  }

  std::string on(const std::string& target) {
    if (p[kNative] && !has_native_bf16(target)) {
      count_case(target);
      return PreparedPlan(whole.prepare().problem, target).status().code == LW_UNSUPPORTED ? "" : "not refused";
    }
    if (p[kContinued]) {
      Case first = whole.key_part(0, kSpan);
      const Result state = first.with_state().run({target});
      if (state.status.code != LW_OK) return state.status.message;
      last.continue_from(state);
      prepared.reset();
    }
    if (!prepared) prepared = last.prepare(p[kStream] & 8 ? Edge::kEnd : Edge::kStart);
    const PreparedPlan plan(prepared->problem, target);
    if (plan.status().code != LW_OK) return plan.status().message;
    // All panels by rows-in-lanes, then by keys-in-lanes up to its most rows. Now and then keys are cut into pieces where
    // a problem is too small for that.
    lw_plan& forced = *const_cast<lw_plan*>(plan.get());
    const int32_t threads = static_cast<int32_t>(p[kThreads]);
    const bool cut_rows = p[kStream] & 16, cut_few = p[kStream] & 32;
    forced.kernels.few_rows = 0;
    forced.work_per_thread = cut_rows ? 1 : kWorkPerThread;
    const Result rows = plan.run(*prepared, {target, cut_rows ? threads : 1, Runner::kPartsReversed});
    forced.kernels.few_rows = kMaxFewRows;
    forced.work_per_thread = cut_few ? 1 : kWorkPerThread;
    const Result few = plan.run(*prepared, {target, threads, static_cast<Runner>(p[kRunner])});
    if (!rows.damage.empty() || !few.damage.empty()) return rows.damage + few.damage;
    if (std::string text = bit_difference(rows, few); !text.empty()) return "the kernels differ: " + text;
    if (expected) {
      if (std::string text = expected->difference(rows); !text.empty()) return "not the reference's: " + text;
    }
    if (right && has_fma(target)) {
      std::string text = bit_difference(right->out, rows.out);
      if (text.empty() && !p[kNoLse]) text = bit_difference(right->lse, rows.lse);
      if (!text.empty()) return "not the canonical bits: " + text;
    }
    return p[kNoLse] || p[kStream] % 4 != 0 ? "" : statistics(plan, target, rows.lse);
  }

  std::string statistics(const PreparedPlan& plan, const std::string& target, const Array& lse) {
    StatisticsRequest request;
    request.row_begin = p[kStream] % 7 - 4;
    if (p[kStream] % 5 == 0) request.row_end = -1;
    if (p[kStream] % 3 == 0) request.columns_layout = request.weights_layout = Layout::kSpread;
    const Statistics one = run_statistics(plan, *prepared, lse, request, {target, 1, Runner::kCaller});
    const Statistics all =
        run_statistics(plan, *prepared, lse, request, {target, static_cast<int32_t>(p[kThreads]), Runner::kCallback});
    if (!one.damage.empty() || !all.damage.empty()) return "statistics: " + one.damage + all.damage;
    if (std::string text = bit_difference(one, all); !text.empty()) return "statistics differ: " + text;
    if (expected) {
      if (std::string text = reference_difference(last, *expected, request, one); !text.empty())
        return "statistics are not the reference's: " + text;
    }
    if (p[kContinued] || !has_fma(target)) return "";
    const Statistics exact = canonical_statistics(Case(last).dense().prepare(), lse, request);
    const std::string text = bit_difference(exact, one);
    return text.empty() ? "" : "statistics have not the canonical bits: " + text;
  }
};

}  // namespace

FuzzProblem draw_problem(Draw& draw) {
  FuzzProblem p;
  draw_sizes(draw, p);
  draw_storage(draw, p);
  draw_rules(draw, p);
  return p;
}

Case case_of(const FuzzProblem& p) {
  Case c;
  c.batch(p[kBatch]).heads(p[kKvHeads] * p[kGroup], p[kKvHeads]).len(p[kQLen], p[kKvLen]).dims(p[kQkDim], p[kVDim]);
  c.types(kTypes[p[kQType]], kTypes[p[kKvType]], kTypes[p[kOutType]]).seed(static_cast<uint64_t>(p[kStream]));
  if (p[kNative]) c.native_bf16();
  const float amplitude = kAmplitudes[p[kAmplitude]];
  c.amplitudes(amplitude, amplitude, p[kAmplitude] == 1 ? 100.0f : 1.0f);
  if (p[kScale]) c.scale(kScales[p[kScale]]);
  const auto layout = [&](Field f) { return static_cast<Layout>(p[f]); };
  c.layouts(layout(kQLayout), layout(kKLayout), layout(kVLayout), layout(kOutLayout));
  c.ragged_q(p[kRaggedQ] != 0);
  if (p[kRaggedKv]) c.ragged_kv();
  if (p[kPageSize]) c.paged(p[kPageSize], static_cast<uint64_t>(p[kStream]));
  if (p[kCapacity]) c.capacity(p[kBatch] + 2, p[kQLen] + 40, p[kKvLen] + 300);
  if (p[kNoLse]) c.without_lse();
  if (p[kState]) c.with_state();
  add_positions(p, c);
  add_rules(p, c);
  if (p[kContent]) spoil(p, c);
  return c;
}

std::string describe(const FuzzProblem& problem) {
  std::string text;
  for (size_t n = 0; n < kFields; ++n) {
    if (problem.field[n] != 0)
      text += std::string(text.empty() ? "" : " ") + kNames[n] + "=" + std::to_string(problem.field[n]);
  }
  return text;
}

FuzzProblem parse_problem(const std::string& description) {
  FuzzProblem problem;
  std::istringstream words(description);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const auto name = std::find(std::begin(kNames), std::end(kNames), word.substr(0, equals));
    if (equals == std::string::npos || name == std::end(kNames)) throw std::runtime_error("no field: " + word);
    problem.field[static_cast<size_t>(name - kNames)] = std::stoll(word.substr(equals + 1));
  }
  return problem;
}

std::string check_problem(const FuzzProblem& problem) {
  Checker checker(problem);
  for (const std::string& target : targets()) {
    if (const std::string text = checker.on(target); !text.empty()) return target + ": " + text;
  }
  return "";
}

FuzzProblem shrink(FuzzProblem problem) {
  bool smaller = true;
  for (int round = 0; smaller && round < 20; ++round) {
    smaller = false;
    for (size_t n = 0; n < kStream; ++n) {
      const int64_t least = n <= kVDim || n == kThreads ? 1 : 0, value = problem.field[n];
      // A state to continue from is of a whole span.
      if (n == kKvLen && problem[kContinued]) continue;
      for (const int64_t tried : {least, value / 2, value - 1}) {
        if (tried < least || tried >= problem.field[n]) continue;
        FuzzProblem other = problem;
        other.field[n] = tried;
        // native_bf16 takes bf16 alone.
        if (other[kNative] && !(other[kQType] == 1 && other[kKvType] == 1)) continue;
        if (check_problem(other).empty()) continue;
        problem = other;
        smaller = true;
        break;
      }
    }
  }
  return problem;
}

}  // namespace lanewise::test
