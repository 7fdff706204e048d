// `lanewise weights`: the attention weights of a problem from files as a picture in the terminal, as an SVG heat map and
// as CSV.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "case_weights.hpp"
#include "command.hpp"
#include "flags.hpp"
#include "io/file.hpp"
#include "lessons/statistics.hpp"
#include "lessons/svg.hpp"
#include "lessons/terminal_picture.hpp"

namespace lanewise::tools {
namespace {

constexpr size_t kMostPanels = 64;

struct WeightsFlags : Flags {
  std::vector<int64_t> heads;  // empty: all
  int64_t sequence = 0;
  std::string svg, csv, labels, query_labels;
  bool log = false;
  bool quiet = false;
  bool no_picture = false;
};

// Lines of a text file, without their ends; a last line without text is none.
std::vector<std::string> read_lines(const std::string& path) {
  const io::InputFile file(path);
  if (file.size() > (1 << 20)) throw file.error("too large for labels; at most 1 MiB is allowed");
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, end - from);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    from = end + 1;
  }
  return lines;
}

std::vector<std::string> read_labels(const std::string& path, int64_t count, const char* what) {
  std::vector<std::string> labels = read_lines(path);
  if (static_cast<int64_t>(labels.size()) == count) return labels;
  throw Error(path + ": " + std::to_string(labels.size()) + " labels, one a line; there are " + std::to_string(count) +
              " " + what);
}

class Weights {
 public:
  explicit Weights(const WeightsFlags& flags) : flags_(flags) {}

  int execute() {
    for (const std::string* path : {&flags_.svg, &flags_.csv}) {
      if (!path->empty() && path->back() == '/') throw Error(io::quote(*path) + ": a file is needed, not a folder");
    }
    weights_ = weights_of_case(load(), flags_);
    choose();
    load_labels();
    // Files first: a path that cannot be written is one line and nothing else.
    if (!flags_.svg.empty()) write_svg();
    if (!flags_.csv.empty()) write_csv();
    if (flags_.quiet) return kSuccess;
    print_summary();
    if (!flags_.no_picture) print_picture();
    if (!labels_fit_) {
      std::printf(
          "the squares of the SVG are too small for labels: it has positions\n(fewer heads or keys make room)\n");
    }
    return kSuccess;
  }

 private:
  TensorSet load() const { return load_tensors(flags_, "", Load::queries_and_keys); }

  void choose() {
    if (weights_.q_len == 0 || weights_.kv_len == 0 || weights_.batch == 0) {
      throw Error(format("no weights to show: %lld sequences, %lld queries, %lld keys",
                         static_cast<long long>(weights_.batch), static_cast<long long>(weights_.q_len),
                         static_cast<long long>(weights_.kv_len)));
    }
    if (flags_.sequence < 0 || flags_.sequence >= weights_.batch) {
      throw Error("--batch " + std::to_string(flags_.sequence) + ": 0 ... " + std::to_string(weights_.batch - 1) +
                  " is allowed");
    }
    heads_ = flags_.heads;
    for (int64_t h = 0; flags_.heads.empty() && h < weights_.heads; ++h) heads_.push_back(h);
    for (const int64_t h : heads_) {
      if (h >= 0 && h < weights_.heads) continue;
      throw Error("--heads " + std::to_string(h) + ": 0 ... " + std::to_string(weights_.heads - 1) + " is allowed");
    }
    if (!flags_.svg.empty() && heads_.size() > kMostPanels) {
      throw Error(std::to_string(heads_.size()) + " heads are too many for a picture; --heads chooses up to " +
                  std::to_string(kMostPanels));
    }
  }

  void load_labels() {
    if (!flags_.labels.empty()) key_labels_ = read_labels(flags_.labels, weights_.kv_len, "keys");
    if (!flags_.query_labels.empty()) {
      query_labels_ = read_labels(flags_.query_labels, weights_.q_len, "queries");
    } else if (weights_.q_len == weights_.kv_len) {
      query_labels_ = key_labels_;  // self-attention: the same tokens
    }
  }

  // [queries, keys] of a head; NaN where hidden or undefined.
  std::vector<double> panel(int64_t h) const {
    const size_t first = weights_.row(flags_.sequence, h, 0);
    std::vector<double> values(static_cast<size_t>(weights_.q_len * weights_.kv_len));
    for (size_t n = 0; n < values.size(); ++n) {
      values[n] = weights_.visible[first + n] ? weights_.kernel[first + n] : std::nan("");
    }
    return values;
  }

  double largest() const {
    double result = 0;
    for (const int64_t h : heads_) {
      for (const double value : panel(h)) result = std::fmax(result, value);
    }
    return result;
  }

  void print_summary() const {
    std::printf("%lld queries, %lld keys; sequence %lld of %lld; %zu of %lld heads\n",
                static_cast<long long>(weights_.q_len), static_cast<long long>(weights_.kv_len),
                static_cast<long long>(flags_.sequence), static_cast<long long>(weights_.batch), heads_.size(),
                static_cast<long long>(weights_.heads));
    lessons::Table table({"head", "largest", "entropy", "keys", "key 0", "kernel - reference"});
    int64_t rows_without_keys = 0, undefined = 0;
    for (const int64_t h : heads_) {
      double largest = 0, entropy = 0, sink = 0, difference = 0;
      int64_t rows = 0;
      for (int64_t i = 0; i < weights_.q_len; ++i) {
        const size_t at = weights_.row(flags_.sequence, h, i), keys = static_cast<size_t>(weights_.kv_len);
        const double* row = weights_.kernel.data() + at;
        const bool sees = std::find(weights_.visible.begin() + static_cast<std::ptrdiff_t>(at),
                                    weights_.visible.begin() + static_cast<std::ptrdiff_t>(at + keys),
                                    true) != weights_.visible.begin() + static_cast<std::ptrdiff_t>(at + keys);
        undefined += weights_.undefined(flags_.sequence, h, i);
        rows_without_keys += !sees;
        if (!sees || weights_.undefined(flags_.sequence, h, i)) continue;
        ++rows;
        largest += lessons::largest(row, keys);
        entropy += lessons::entropy(row, keys);
        sink += row[0];
        for (size_t j = 0; j < keys; ++j)
          difference = std::max(difference, std::fabs(row[j] - weights_.reference[at + j]));
      }
      const double n = static_cast<double>(std::max<int64_t>(rows, 1));
      table.add({std::to_string(h), format("%.3f", largest / n), format("%.3f", entropy / n),
                 format("%.1f", std::exp(entropy / n)), format("%.3f", sink / n), format("%.1e", difference)});
    }
    std::printf("%s", table.text().c_str());
    std::printf("averages over rows; entropy in nats; keys = exp(entropy); key 0: its weight\n");
    if (rows_without_keys > 0) std::printf("%lld rows see no key\n", static_cast<long long>(rows_without_keys));
    if (undefined > 0) std::printf("%lld rows are NaN and shown as hidden\n", static_cast<long long>(undefined));
  }

  void print_picture() const {
    const lessons::Terminal terminal = lessons::terminal();
    lessons::CharacterMap map = {static_cast<size_t>(weights_.q_len),
                                 static_cast<size_t>(weights_.kv_len),
                                 panel(heads_.front()),
                                 flags_.log,
                                 0,
                                 query_labels_};
    for (const double value : map.values) map.largest = std::fmax(map.largest, value);
    std::printf("\nhead %lld: queries down, keys across%s\n", static_cast<long long>(heads_.front()),
                heads_.size() > 1 ? " (--heads N shows another)" : "");
    std::printf("%s%s", lessons::character_map(map, terminal).c_str(),
                lessons::character_legend(map, terminal).c_str());
  }

  static void write(const std::string& path, const std::string& text) {
    io::OutputFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  }

  void write_svg() {
    lessons::HeatMap map;
    std::string name = flags_.input.empty() ? "q, k" : std::filesystem::path(flags_.input).stem().string();
    if (name.size() > 60) name = name.substr(0, 60) + "...";
    map.title =
        "Attention weights: " + name + (weights_.batch > 1 ? ", sequence " + std::to_string(flags_.sequence) : "");
    for (const int64_t h : heads_) {
      map.panels.push_back({"head " + std::to_string(h), static_cast<size_t>(weights_.q_len),
                            static_cast<size_t>(weights_.kv_len), panel(h)});
    }
    map.row_labels = query_labels_;
    map.column_labels = key_labels_;
    map.log = flags_.log;
    map.largest = largest();
    write(flags_.svg, lessons::heat_map_picture(map));
    labels_fit_ = map.labels_fit;
  }

  void write_csv() const {
    std::string text = "sequence,head,query,key,visible,weight,reference\n";
    for (const int64_t h : heads_) {
      for (int64_t i = 0; i < weights_.q_len; ++i) {
        for (int64_t j = 0; j < weights_.kv_len; ++j) {
          const size_t at = weights_.row(flags_.sequence, h, i) + static_cast<size_t>(j);
          text += format("%lld,%lld,%lld,%lld,%d,%.9g,%.17g\n", static_cast<long long>(flags_.sequence),
                         static_cast<long long>(h), static_cast<long long>(i), static_cast<long long>(j),
                         weights_.visible[at] ? 1 : 0, weights_.kernel[at], weights_.reference[at]);
        }
      }
    }
    write(flags_.csv, text);
  }

  const WeightsFlags& flags_;
  CaseWeights weights_ = {};
  std::vector<int64_t> heads_;
  bool labels_fit_ = true;
  std::vector<std::string> key_labels_, query_labels_;
};

}  // namespace

void add_weights(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("weights", "Attention weights as pictures and numbers");
  const auto flags = std::make_shared<WeightsFlags>();
  add_problem_flags(*command, *flags);
  const std::string group = "Picture";
  command->add_option("--svg", flags->svg, "write a heat map, a panel a head")->option_text("OUT.svg")->group(group);
  command->add_option("--csv", flags->csv, "write sequence, head, query, key, visible, weight, reference")
      ->option_text("OUT.csv")
      ->group(group);
  command->add_option("--heads", flags->heads, "query heads to show (default: all)")
      ->option_text("N,...")
      ->delimiter(',')
      ->group(group);
  command->add_option("--batch", flags->sequence, "sequence to show (default 0)")
      ->check(check_integer)
      ->option_text("N")
      ->group(group);
  command->add_option("--labels", flags->labels, "text file with a label a line for the keys (and queries, if as many)")
      ->option_text("FILE")
      ->group(group);
  command->add_option("--query-labels", flags->query_labels, "the same for the queries")
      ->option_text("FILE")
      ->group(group);
  command->add_flag("--log", flags->log, "colours by the logarithm: 1/1000 of the largest weight ... the largest")
      ->group(group);
  command->add_flag("--no-picture", flags->no_picture, "print the table alone")->group(group);
  command->add_flag("--quiet", flags->quiet, "print nothing")->group(group);
  command->footer(
      "v is not looked at and may be missing. Examples:\n"
      "  lanewise weights layer.safetensors --causal --heads 3\n"
      "  lanewise weights layer.safetensors --heads 0,2 --log --svg weights.svg --csv weights.csv");
  command->callback([flags, &chosen] { chosen = [flags] { return Weights(*flags).execute(); }; });
}

}  // namespace lanewise::tools
