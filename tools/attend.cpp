// `lanewise attend`: attention from files to files, with a check against the float64 reference or against expected
// values.
#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "check.hpp"
#include "command.hpp"
#include "flags.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "io/safetensors.hpp"
#include "run_case.hpp"
#include "statistics_case.hpp"

namespace lanewise::tools {
namespace {

struct AttendFlags : Flags {
  std::string output;
  std::string verify;      // a tensor of the input, or an npy file
  std::string verify_lse;  // the same for lse
  std::optional<double> tolerance, lse_tolerance;
  bool check = false;
  bool no_lse = false;
  bool state_out = false;
  StatisticsWanted statistics;
  std::string statistic_rows;
  bool quiet = false;
  int64_t repeat = 1;
};

class Attend {
 public:
  explicit Attend(const AttendFlags& flags) : flags_(flags), options_(run_options(flags)), wanted_(flags.statistics) {}

  int execute() {
    check_flags();
    case_ = make_case(load_tensors(flags_, flags_.verify, Load::everything), flags_);
    load_expectations();
    options_.repeat = flags_.repeat;
    options_.lse = !flags_.no_lse;
    options_.state = flags_.state_out;
    options_.should_stop = interrupted();
    catch_interrupts();
    if (!run()) return stopped();
    print_run();
    if (wanted_.any() && !run_statistics()) return stopped();
    if (needs_reference() && !compute_reference()) return stopped();
    bool good = report_check();
    if (flags_.check && wanted_.any()) {
      std::array<Comparison, 4> comparisons;
      if (!compare_statistics(comparisons)) return stopped();
      if (!report_statistics(comparisons)) good = false;
    }
    if (!report_expected()) good = false;
    io::remove_unfinished_on_signals();  // nobody looks at interrupted() any more
    if (*interrupted() != 0) return stopped();
    write();
    return good ? kSuccess : kCheckFailed;
  }

 private:
  bool compares() const { return flags_.check || !flags_.verify.empty() || !flags_.verify_lse.empty(); }

  void check_flags() {
    if (!flags_.statistic_rows.empty()) {
      if (!wanted_.any())
        throw Error("--statistic-rows goes with --weights, --column-sums, --row-max or --row-entropy");
      parse_rows(flags_.statistic_rows, wanted_);
    }
    if (flags_.no_lse && wanted_.any()) throw Error("--no-lse leaves nothing to tell weights from");
    if (flags_.quiet && flags_.output.empty() && !compares()) {
      throw Error("--quiet leaves nothing to do: -o FILE writes the result, --check and --verify-against compare it");
    }
    const bool npy = ends_with(flags_.output, ".npy");
    if (!flags_.output.empty() && !npy && !ends_with(flags_.output, ".safetensors")) {
      throw Error("-o " + io::quote(flags_.output) + ": the name must end in .safetensors or .npy (out alone)");
    }
    if (npy && flags_.state_out) throw Error("--state-out needs an output that ends in .safetensors");
    if (npy && wanted_.any()) throw Error("statistics of weights need an output that ends in .safetensors");
    if (flags_.state_out && flags_.output.empty()) throw Error("--state-out needs -o FILE.safetensors");
    if (flags_.tolerance && flags_.verify.empty()) throw Error("--tolerance goes with --verify-against");
    if (flags_.lse_tolerance && flags_.verify.empty() && flags_.verify_lse.empty()) {
      throw Error("--lse-tolerance goes with --verify-against or --verify-lse");
    }
    if (flags_.no_lse && (!flags_.verify_lse.empty() || flags_.lse_tolerance))
      throw Error("--no-lse leaves no lse to compare");
    for (const auto& tolerance : {flags_.tolerance, flags_.lse_tolerance}) {
      if (tolerance && !(*tolerance >= 0 && std::isfinite(*tolerance)))
        throw Error("a tolerance is a finite number, 0 or more");
    }
    if (flags_.repeat < 1 || flags_.repeat > 1000000) throw Error("--repeat: 1 ... 1000000 is allowed");
  }

  void load_expectations() {
    if (!flags_.verify.empty()) expected_out_ = load_expected(flags_, flags_.verify);
    if (!flags_.verify_lse.empty()) {
      expected_lse_ = load_expected(flags_, flags_.verify_lse);
    } else if (!flags_.verify.empty() && !ends_with(flags_.verify, ".npy") && !flags_.no_lse &&
               has_tensor(flags_, "lse")) {
      expected_lse_ = load_expected(flags_, "lse");
    }
    // Before the work, not after it.
    const auto fits = [](const char* what, const io::Tensor& expected, const std::vector<int64_t>& shape) {
      if (io::is_float(expected.type) && expected.shape == shape) return;
      throw Error("expected tensor " + io::quote(expected.name) + " is " + io::type_name(expected.type) + " " +
                  io::shape_text(expected.shape) + "; " + what + " is " + io::shape_text(shape) + " of a float type");
    };
    if (expected_out_) fits("out", *expected_out_, case_.out_shape);
    if (expected_lse_) fits("lse", *expected_lse_, case_.lse_shape);
  }

  // The library reports no progress, so long runs show their time.
  bool run() {
    ProgressLine line(flags_.quiet);
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::thread clock;
    if (line.enabled()) {
      clock = std::thread([&] {
        std::unique_lock<std::mutex> lock(mutex);
        for (int seconds = 1; !changed.wait_for(lock, std::chrono::seconds(1), [&] { return done; }); ++seconds) {
          line.show(format("computing: %d s", seconds));
        }
      });
    }
    std::exception_ptr failure;
    try {
      result_ = run_case(case_, options_);
    } catch (...) {
      failure = std::current_exception();
    }
    if (clock.joinable()) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        done = true;
      }
      changed.notify_one();
      clock.join();
    }
    if (failure) std::rethrow_exception(failure);
    return !result_.stopped;
  }

  bool run_statistics() {
    statistics_ = tools::run_statistics(case_, options_, result_.lse, wanted_);
    if (statistics_.stopped) return false;
    std::string names;
    for (const io::Tensor* tensor : statistics_.tensors()) {
      if (given(*tensor)) names += (names.empty() ? "" : ", ") + tensor->name;
    }
    const std::string rows = flags_.statistic_rows.empty() ? "" : " (queries " + flags_.statistic_rows + ")";
    line("weights", names + rows + ", " + seconds_text(statistics_.seconds));
    return true;
  }

  bool needs_reference() const {
    return flags_.check || (expected_out_ && !flags_.tolerance) || (expected_lse_ && !flags_.lse_tolerance);
  }

  // compute(threads, progress), with a line that shows how far it is after a second.
  template <class Compute>
  bool by_heads(const char* what, const Compute& compute) const {
    ProgressLine line(flags_.quiet);
    const auto start = std::chrono::steady_clock::now();
    const int32_t threads = flags_.threads > 0 ? flags_.threads : default_threads();
    return compute(threads, [&](int64_t done, int64_t of) {
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1)) {
        line.show(format("%s: head %lld of %lld", what, static_cast<long long>(done), static_cast<long long>(of)));
      }
      return *interrupted() == 0;
    });
  }

  bool compute_reference() {
    return by_heads("float64 reference", [&](int32_t threads, const Progress& progress) {
      return reference_of(case_, threads, progress, reference_);
    });
  }

  bool compare_statistics(std::array<Comparison, 4>& comparisons) const {
    return by_heads("float64 weights", [&](int32_t threads, const Progress& progress) {
      return tools::compare_statistics(case_, result_, statistics_, wanted_, reference_, threads, progress,
                                       comparisons);
    });
  }

  bool report_statistics(const std::array<Comparison, 4>& comparisons) const {
    bool good = true;
    for (size_t n = 0; n < comparisons.size(); ++n) {
      const io::Tensor& tensor = *statistics_.tensors()[n];
      if (given(tensor)) good &= report("", tensor.name, comparisons[n], true);
    }
    return good;
  }

  int stopped() const {
    std::fputs("lanewise attend: stopped; nothing was written\n", stderr);
    return end_by_signal();
  }

  void line(const char* label, const std::string& text) const {
    if (!flags_.quiet) std::printf("%-8s %s\n", label, text.c_str());
  }

  void print_run() const {
    const lw_problem& p = case_.problem;
    const auto number = [](int64_t value) { return std::to_string(value); };
    line("problem", "batch " + number(p.batch) + ", " + number(p.q_heads) + " query heads on " + number(p.kv_heads) +
                        " kv heads, " + number(p.q_len) + " queries, " + number(p.kv_len) + " keys, dims " +
                        number(p.qk_dim) + " and " + number(p.v_dim));
    line("types", std::string("q ") + io::type_name(case_.q.type()) + ", k " + io::type_name(case_.k.type()) + ", v " +
                      io::type_name(case_.v.type()) + ", out " + io::type_name(case_.out_type) + ", arithmetic " +
                      result_.explanation.arithmetic);
    line("rules", rules_text());
    line("target", std::string(result_.explanation.target) + ", " + result_.explanation.kernel + ", " +
                       number(result_.threads) + (result_.threads == 1 ? " thread" : " threads") +
                       " at most, workspace " + bytes_text(static_cast<double>(result_.explanation.workspace)));
    const double flops = 2 * visible_scores(case_) * static_cast<double>(p.qk_dim + p.v_dim);
    line("time", seconds_text(result_.seconds) + ", " +
                     format("%.2f GFLOP/s", result_.seconds > 0 ? flops / result_.seconds * 1e-9 : 0.0) +
                     (flags_.repeat > 1 ? " (best of " + number(flags_.repeat) + ")"
                                        : " (one cold run; --repeat N gives the best)"));
    print_corner();
  }

  std::string rules_text() const {
    const lw_problem& p = case_.problem;
    const float scale = p.has_scale != 0 ? p.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(p.qk_dim)));
    std::string text = format("scale %.9g", static_cast<double>(scale));
    if (p.causal != 0) text += ", causal";
    if (p.has_q_offset != 0) text += format(", q_offset %lld", static_cast<long long>(p.q_offset));
    if (p.window_left >= 0 || p.window_right >= 0) {
      text +=
          format(", window %lld, %lld", static_cast<long long>(p.window_left), static_cast<long long>(p.window_right));
    }
    if (p.prefix_len > 0) text += format(", prefix %lld", static_cast<long long>(p.prefix_len));
    if (p.softcap != 0) text += format(", softcap %.9g", static_cast<double>(p.softcap));
    for (const Placed* tensor : {&case_.mask, &case_.bias}) {
      if (tensor->given()) text += ", " + tensor->name();
    }
    for (const auto& [name, tensor] : case_.arrays) text += ", " + name;
    if (case_.state_acc.given()) text += ", continued from a state";
    return text;
  }

  // The first rows and columns of the first head.
  void print_corner() const {
    if (flags_.quiet) return;
    const io::Tensor& out = result_.out;
    line("out", io::shape_text(out.shape) + (out.count() == 0 ? ": empty" : ", its first head begins"));
    if (out.count() == 0) return;
    const int64_t rows = std::min<int64_t>(3, axis_size(out.shape, case_.axes, 2));
    const int64_t columns = std::min<int64_t>(6, case_.problem.v_dim);
    const std::array<int64_t, 4> stride = strides_of(out.shape, case_.axes);
    for (int64_t i = 0; i < rows; ++i) {
      std::string text;
      for (int64_t x = 0; x < columns; ++x) text += format("%13.6g", io::element(out, i * stride[2] + x));
      std::printf("       %s%s\n", text.c_str(), columns < case_.problem.v_dim ? "  ..." : "");
    }
    if (rows < axis_size(out.shape, case_.axes, 2)) std::printf("                 ...\n");
  }

  // One line: what was compared, the largest error, what is allowed. Failures are printed even when quiet.
  bool report(const char* label, const std::string& what, const Comparison& comparison, bool share) const {
    std::string text = what + ": largest error " + format("%.3g", comparison.largest_error);
    if (!comparison.largest_at.empty()) text += " at " + comparison.largest_at;
    if (!share) {
      text += format("; tolerance %.3g", comparison.allowed_there);
    } else if (comparison.largest_share > 1) {
      text += format("; %.3g times the bound (%.3g there)", comparison.largest_share, comparison.allowed_there);
    } else {
      text += format("; uses at most %.2g %% of the bound (%.3g there)", 100 * comparison.largest_share,
                     comparison.allowed_there);
    }
    if (!comparison.passes()) {
      text += format("; FAILS: %lld of %lld values are over", static_cast<long long>(comparison.over),
                     static_cast<long long>(comparison.compared));
      std::fflush(stdout);
      std::fprintf(stderr, "%-8s %s\n", label, text.c_str());
    } else {
      line(label, text);
    }
    return comparison.passes();
  }

  bool report_check() const {
    if (!flags_.check) return true;
    const RowCounts counts = count_rows(case_, reference_);
    std::string rows = std::to_string(counts.rows) + " rows against the float64 reference";
    if (counts.without_keys > 0) rows += ", " + std::to_string(counts.without_keys) + " without a visible key";
    if (counts.undefined > 0) rows += ", " + std::to_string(counts.undefined) + " NaN";
    line("check", rows);
    bool good = report("", "out", compare_out(case_, result_, reference_), true);
    if (given(result_.lse)) good &= report("", "lse", compare_lse(case_, result_, reference_), true);
    return good;
  }

  bool report_expected() const {
    bool good = true;
    const auto verify = [&](bool lse, const std::optional<io::Tensor>& expected,
                            const std::optional<double>& tolerance) {
      if (!expected) return;
      Comparison comparison =
          compare_expected(case_, result_, lse, *expected, tolerance ? *tolerance : -1, &reference_);
      if (tolerance) comparison.allowed_there = *tolerance;
      good &= report("verify", std::string(lse ? "lse" : "out") + " against " + io::quote(expected->name), comparison,
                     !tolerance);
    };
    verify(false, expected_out_, flags_.tolerance);
    verify(true, expected_lse_, flags_.lse_tolerance);
    return good;
  }

  void write() const {
    if (flags_.output.empty()) {
      if (!compares()) line("wrote", "nothing: -o FILE.safetensors writes the result");
      return;
    }
    std::vector<const io::Tensor*> tensors;
    std::string names;
    for (const io::Tensor* output :
         {&result_.out, &result_.lse, &result_.state_max, &result_.state_sum, &result_.state_acc}) {
      if (!given(*output)) continue;
      tensors.push_back(output);
      names += (names.empty() ? "" : ", ") + output->name;
    }
    for (const io::Tensor* output : statistics_.tensors()) {
      if (!given(*output)) continue;
      tensors.push_back(output);
      names += ", " + output->name;
    }
    if (ends_with(flags_.output, ".npy")) {
      io::write_npy(flags_.output, result_.out);
      names = "out";
    } else {
      io::write_safetensors(flags_.output, tensors);
    }
    line("wrote", flags_.output + ": " + names);
  }

  const AttendFlags& flags_;
  RunOptions options_;
  ProblemCase case_;
  std::optional<io::Tensor> expected_out_, expected_lse_;
  RunResult result_;
  StatisticsWanted wanted_;
  StatisticsResult statistics_;
  ReferenceResult reference_;
};

}  // namespace

void add_attend(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("attend", "Attention from files to files, with checks");
  const auto flags = std::make_shared<AttendFlags>();
  add_problem_flags(*command, *flags);
  const std::string output = "Output";
  command->add_option("-o,--output", flags->output, "where out and lse go (.npy: out alone)")
      ->check([](const std::string& text) { return text.empty() ? "a file name is needed" : ""; })
      ->option_text("OUT.safetensors|.npy")
      ->group(output);
  command->add_flag("--no-lse", flags->no_lse, "do not compute lse")->group(output);
  command->add_flag("--state-out", flags->state_out, "also write state_max, state_sum, state_acc")->group(output);
  command->add_flag("--weights", flags->statistics.weights, "also write weights [batch, q_heads, q_len, kv_len]")
      ->group(output);
  command
      ->add_flag("--column-sums", flags->statistics.column_sums,
                 "also write column_sums [batch, q_heads, kv_len]: a key's weights, summed over queries")
      ->group(output);
  command->add_flag("--row-max", flags->statistics.row_max, "also write row_max: the largest weight of each row")
      ->group(output);
  command->add_flag("--row-entropy", flags->statistics.row_entropy, "also write row_entropy, in nats")->group(output);
  command
      ->add_option("--statistic-rows", flags->statistic_rows,
                   "the queries of each sequence that those are of, below 0 from the end (default: all)")
      ->option_text("A:B")
      ->group(output);
  command->add_flag("--quiet", flags->quiet, "print nothing but failures")->group(output);
  command->add_option("--repeat", flags->repeat, "run N times and print the best time")
      ->check(check_integer)
      ->option_text("N")
      ->group(output);
  const std::string checks = "Checks (exit code 1 if one fails)";
  command->add_flag("--check", flags->check, "compare with the float64 reference, within the bound of docs/NUMERICS.md")
      ->group(checks);
  command
      ->add_option("--verify-against", flags->verify,
                   "compare with a tensor of IN or an npy file (and lse with IN's lse)")
      ->option_text("NAME|FILE.npy")
      ->group(checks);
  command->add_option("--tolerance", flags->tolerance, "largest error of out allowed there (default: the bound)")
      ->check(check_number)
      ->option_text("T")
      ->group(checks);
  command->add_option("--verify-lse", flags->verify_lse, "compare lse with this tensor or npy file")
      ->option_text("NAME|FILE.npy")
      ->group(checks);
  command
      ->add_option("--lse-tolerance", flags->lse_tolerance, "largest error of lse allowed there (default: the bound)")
      ->check(check_number)
      ->option_text("T")
      ->group(checks);
  command->footer(
      "Expected results in IN (out, lse) are never inputs. Examples:\n"
      "  lanewise attend layer.safetensors --causal -o result.safetensors --check\n"
      "  lanewise attend --q q.npy --k k.npy --v v.npy -o out.npy\n"
      "  lanewise attend layer.safetensors --causal --column-sums --statistic-rows -32: -o sums.safetensors\n"
      "  lanewise attend layer.safetensors --verify-against out --tolerance 1e-6");
  command->callback([flags, &chosen] { chosen = [flags] { return Attend(*flags).execute(); }; });
}

}  // namespace lanewise::tools
