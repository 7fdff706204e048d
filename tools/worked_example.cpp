// `lanewise worked-example`: attention in four printed steps on an input small enough to follow by hand, by the
// kernels and by the float64 reference side by side; why the row maximum is subtracted; the online softmax as a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <tuple>

#include "case_weights.hpp"
#include "check.hpp"
#include "command.hpp"
#include "example_input.hpp"
#include "flags.hpp"
#include "lessons/attention.hpp"
#include "lessons/pages.hpp"
#include "lessons/steps.hpp"
#include "run_case.hpp"
#include "src/problem.hpp"

namespace lanewise::tools {
namespace {

using lessons::Page;
using lessons::Table;

constexpr int64_t kMostRows = 64;  // queries, keys and dims that can be followed

struct ExampleFlags : Flags {
  std::string file, name;
  std::vector<std::string> parts;  // empty: all
  int64_t head = 0, sequence = 0, query = 0;
};

// What all pages need of one head of one sequence.
struct Head {
  int64_t q_len, kv_len, dim, v_dim;
  std::vector<float> q, k, v;  // widened, row-major
  float scale;
  std::string rules;    // beside hiding keys, in words; empty: none
  CaseWeights weights;  // of all heads
  size_t first_weight;  // of this head
  std::vector<double> out, out_reference;
};

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  return format("%.4f", std::fabs(value) < 0.00005 ? 0.0 : value);
}

// A matrix with its name, queries down or keys down; what does not fit is left out as "...".
std::string matrix_text(const std::string& name, const std::vector<double>& values, size_t columns, char row_letter,
                        char column_letter, size_t width, const char* indent = "  ",
                        const std::vector<double>* sums = nullptr) {
  const size_t rows = columns > 0 ? values.size() / columns : 0;
  size_t cell = 0;
  for (const double value : values) cell = std::max(cell, number(value).size());
  const size_t room = std::max<size_t>(3, (width - 6) / (cell + 2));
  const size_t shown = columns + (sums != nullptr) > room ? room - 1 - (sums != nullptr) : columns;
  std::vector<std::string> header = {name};
  for (size_t j = 0; j < shown; ++j) header.push_back(column_letter + std::to_string(j));
  if (shown < columns) header.push_back("...");
  if (sums != nullptr) header.push_back("sum");
  Table table(header);
  for (size_t i = 0; i < rows; ++i) {
    std::vector<std::string> row = {row_letter + std::to_string(i)};
    for (size_t j = 0; j < shown; ++j) row.push_back(number(values[i * columns + j]));
    if (shown < columns) row.push_back("...");
    if (sums != nullptr) row.push_back(number((*sums)[i]));
    table.add(row);
  }
  return table.text(indent);
}

std::vector<double> row_sums(const std::vector<double>& values, size_t columns) {
  std::vector<double> sums;
  for (size_t i = 0; i < values.size(); i += columns) {
    double sum = 0;
    for (size_t j = 0; j < columns; ++j) sum += values[i + j];
    sums.push_back(sum);
  }
  return sums;
}

class WorkedExample {
 public:
  explicit WorkedExample(const ExampleFlags& flags) : flags_(flags), page_("") {}

  int execute() {
    const bool own = !flags_.file.empty() || !flags_.input.empty() || !flags_.npy.empty();
    for (const std::string& part : flags_.parts) {
      if (part == "steps" || part == "overflow" || part == "online" || (part == "blocks" && !own)) continue;
      throw Error("--part " + io::quote(part) + ": steps, overflow, online and (without an input) blocks are allowed");
    }
    const auto wanted = [&](const char* part) {
      return flags_.parts.empty() || std::find(flags_.parts.begin(), flags_.parts.end(), part) != flags_.parts.end();
    };
    read(example_tensors(flags_, flags_.file, flags_.name));
    scaled_ = lessons::scores_of(heads(head_.scale), flags_.target);
    if (wanted("steps")) {
      print_input();
      print_scores();
      print_weights();
      print_output();
    }
    if (wanted("overflow")) print_overflow();
    if (wanted("online")) print_online();
    if (!own && wanted("blocks")) print_blocks();
    return kSuccess;
  }

 private:
  // A row-major copy of [len, dim] of one head.
  static std::vector<float> rows(const Placed& tensor, const std::array<int64_t, 4>& stride, int64_t b, int64_t h,
                                 int64_t len, int64_t dim) {
    const io::Tensor view = [&] {  // the bytes without padding: pad is 0 here
      io::Tensor whole = io::make_tensor(tensor.name(), tensor.type(), tensor.shape());
      std::copy_n(static_cast<const uint8_t*>(tensor.data()), whole.bytes.size(), whole.bytes.data());
      return whole;
    }();
    std::vector<float> result;
    for (int64_t i = 0; i < len; ++i) {
      for (int64_t x = 0; x < dim; ++x) {
        const int64_t at = b * stride[0] + h * stride[1] + i * stride[2] + x * stride[3];
        result.push_back(static_cast<float>(io::element(view, at)));
      }
    }
    return result;
  }

  void check_sizes(const lw_problem& p) const {
    const auto within = [](const char* what, int64_t value, int64_t most) {
      if (value >= 1 && value <= most) return;
      throw Error(std::string(what) + " " + std::to_string(value) + ": 1 ... " + std::to_string(most) +
                  " can be followed step by step (lanewise weights draws larger ones)");
    };
    within("queries", p.q_len, kMostRows);
    within("keys", p.kv_len, kMostRows);
    within("head dimension", p.qk_dim, 256);
    within("value dimension", p.v_dim, 256);
    const auto chosen = [](const char* flag, int64_t value, int64_t count) {
      if (value >= 0 && value < count) return;
      throw Error(std::string(flag) + " " + std::to_string(value) + ": 0 ... " + std::to_string(count - 1) +
                  " is allowed");
    };
    chosen("--head", flags_.head, p.q_heads);
    chosen("--batch", flags_.sequence, p.batch);
    chosen("--query", flags_.query, p.q_len);
  }

  void read(TensorSet tensors) {
    Flags flags = flags_;
    flags.pad = 0;
    flags.out_dtype = "f32";
    TensorSet copies;
    for (const auto& [name, tensor] : tensors) copies[name] = copy(tensor);
    const ProblemCase c = make_case(std::move(copies), flags);
    const lw_problem& p = c.problem;
    check_sizes(p);
    head_.weights = weights_of_case(tensors, flags);
    const int64_t b = flags_.sequence, h = flags_.head, kv = h / group_size(p);
    head_.q_len = p.q_len;
    head_.kv_len = p.kv_len;
    head_.dim = p.qk_dim;
    head_.v_dim = p.v_dim;
    head_.q = rows(c.q, strides(c.inputs.q), b, h, p.q_len, p.qk_dim);
    head_.k = rows(c.k, strides(c.inputs.k), b, kv, p.kv_len, p.qk_dim);
    head_.v = rows(c.v, strides(c.inputs.v), b, kv, p.kv_len, p.v_dim);
    head_.scale = p.has_scale != 0 ? p.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(p.qk_dim)));
    if (p.softcap != 0) head_.rules += ", softcap";
    if (p.alibi != 0) head_.rules += ", ALiBi";
    if (p.bias_type != LW_TYPE_NONE) head_.rules += ", bias";
    if (p.sinks != 0) head_.rules += ", sink";
    if (!head_.rules.empty()) head_.rules = head_.rules.substr(2);
    head_.first_weight = head_.weights.row(b, h, 0);

    const RunResult run = run_case(c, run_options(flags));
    const std::array<int64_t, 4> stride = strides_of(c.out_shape, c.axes);
    for (int64_t i = 0; i < p.q_len; ++i) {
      for (int64_t x = 0; x < p.v_dim; ++x) {
        head_.out.push_back(run.out.as<float>()[b * stride[0] + h * stride[1] + i * stride[2] + x]);
      }
    }
    const std::vector<double> all = lanewise::reference(c.problem, c.inputs).out;
    const auto first = all.begin() + ((b * p.q_heads + h) * p.q_len) * p.v_dim;
    head_.out_reference.assign(first, first + p.q_len * p.v_dim);
  }

  static std::array<int64_t, 4> strides(const lw_const_tensor& view) {
    return {view.stride[0], view.stride[1], view.stride[2], view.stride[3]};
  }

  static std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

  lessons::Heads heads(float scale) const {
    return {1, head_.q_len, head_.kv_len, head_.dim, head_.q.data(), head_.k.data(), scale};
  }

  // This head's weights.
  std::vector<double> part(const std::vector<double>& all) const {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(head_.first_weight);
    return {first, first + static_cast<std::ptrdiff_t>(head_.q_len * head_.kv_len)};
  }

  // The kernel's matrix and the reference's.
  void print_both(const lessons::Both& both, size_t columns, char column_letter, bool with_sums = false) {
    const std::vector<double> sums = row_sums(both.kernel, columns), exact = row_sums(both.reference, columns);
    const size_t width = page_.columns();
    const auto text = [&](const char* name, const char* indent, const std::vector<double>& values,
                          const std::vector<double>& s) {
      return matrix_text(name, values, columns, 'q', column_letter, width, indent, with_sums ? &s : nullptr);
    };
    page_.print(
        "\n" +
        lessons::side_by_side(text("kernel", "  ", both.kernel, sums), text("ref.", "", both.reference, exact), width) +
        "\n");
  }

  void print_input() {
    page_.heading(format("Input: %lld queries, %lld keys, d_k = %lld", static_cast<long long>(head_.q_len),
                         static_cast<long long>(head_.kv_len), static_cast<long long>(head_.dim)));
    const size_t width = page_.columns();
    const auto text = [&](const char* name, const std::vector<float>& values, int64_t columns, char letter) {
      return matrix_text(name, wide(values), static_cast<size_t>(columns), letter, 'd', width);
    };
    page_.print("\n" +
                lessons::side_by_side(text("Q", head_.q, head_.dim, 'q'), text("K", head_.k, head_.dim, 'k'), width));
    page_.print("\n" + text("V", head_.v, head_.v_dim, 'k'));
  }

  void print_scores() {
    const size_t keys = static_cast<size_t>(head_.kv_len);
    page_.heading("Step 1, scores: S = Q K^T");
    page_.paragraph("How well each query matches each key: a dot product.");
    print_both(lessons::scores_of(heads(1), flags_.target), keys, 'k');
    page_.heading(format("Step 2, scaling: S * %.6g", static_cast<double>(head_.scale)));
    page_.paragraph(format("1/sqrt(d_k) is %.6g for d_k = %lld: scores keep a size that softmax can grade.",
                           1 / std::sqrt(static_cast<double>(head_.dim)), static_cast<long long>(head_.dim)));
    print_both(scaled_, keys, 'k');
  }

  void print_weights() {
    page_.heading("Step 3, weights: softmax of each row");
    std::string text = "e^score divided by the row's sum: positive, and each row adds up to 1.";
    const bool hides =
        std::find(head_.weights.visible.begin(), head_.weights.visible.end(), false) != head_.weights.visible.end();
    if (hides) text += " Hidden keys weigh 0; a row that sees none adds up to 0.";
    if (!head_.rules.empty()) text += " Rules that change scores before it: " + head_.rules + ".";
    page_.paragraph(text);
    print_both({part(head_.weights.kernel), part(head_.weights.reference)}, static_cast<size_t>(head_.kv_len), 'k',
               true);
  }

  void print_output() {
    page_.heading("Step 4, output: weights times V");
    page_.paragraph("Each query's mixture of the values.");
    print_both({head_.out, head_.out_reference}, static_cast<size_t>(head_.v_dim), 'd');
    double difference = 0;
    for (size_t n = 0; n < head_.out.size(); ++n)
      difference = std::fmax(difference, std::fabs(head_.out[n] - head_.out_reference[n]));
    page_.print(format("largest difference of kernel (float32) and reference (float64): %.1e\n", difference));
  }

  void print_overflow() {
    page_.heading("Why the row maximum is subtracted");
    page_.paragraph(
        "float32 ends at e^88.7 and double at e^709.8. softmax does not change when all scores move by the same "
        "amount, "
        "so the largest is subtracted first: no exponent is above 0, nothing overflows.");
    Table table({"score s", "e^s float32", "e^s double", "e^s / sum", "e^(s - max)", "kernel", "reference"});
    for (const std::vector<float>& scores : {std::vector<float>{2, 1, 0}, {100, 99, 98}, {1000, 999, 998}}) {
      for (const lessons::Overflow& row : lessons::overflow_study(scores, flags_.target)) {
        table.add({format("%g", static_cast<double>(row.score)), format("%.4g", static_cast<double>(row.naive_float)),
                   format("%.4g", row.naive_double), number(row.naive_weight), number(row.shifted), number(row.weight),
                   number(row.weight_reference)});
      }
    }
    page_.table(table);
    page_.print("(e^s / sum in float32; inf / inf is nan)\n");
  }

  // Row --query over its visible keys.
  void print_online() {
    page_.heading(format("The online softmax, key by key: query q%lld", static_cast<long long>(flags_.query)));
    if (!head_.rules.empty()) {
      page_.paragraph("(shown where scores are q.k times scale; here they also go through: " + head_.rules + ")");
      return;
    }
    std::vector<double> scores, v;
    std::vector<float> keys, values;
    std::vector<int64_t> numbers;
    const int64_t i = flags_.query;
    for (int64_t j = 0; j < head_.kv_len; ++j) {
      if (!head_.weights.visible[head_.first_weight + static_cast<size_t>(i * head_.kv_len + j)]) continue;
      numbers.push_back(j);
      scores.push_back(scaled_.reference[static_cast<size_t>(i * head_.kv_len + j)]);
      keys.insert(keys.end(), head_.k.begin() + j * head_.dim, head_.k.begin() + (j + 1) * head_.dim);
      values.insert(values.end(), head_.v.begin() + j * head_.v_dim, head_.v.begin() + (j + 1) * head_.v_dim);
    }
    if (numbers.empty()) {
      page_.paragraph("This query sees no key: its output is 0.");
      return;
    }
    page_.paragraph(
        "One pass, no stored row of scores: keep the maximum and the sum so far; when the maximum rises, what was "
        "summed "
        "is rescaled by e^(old - new). On the left in this command's own double arithmetic, a key at a time; on the "
        "right the "
        "kernel's state after the same keys, in powers of 2 of an integer maximum M, and the lse both lead to.");
    const std::vector<lessons::OnlineStep> steps =
        lessons::online_softmax(scores, wide(values), static_cast<size_t>(head_.v_dim));
    const lessons::Heads row = {
        1,           1,          static_cast<int64_t>(numbers.size()), head_.dim, head_.q.data() + i * head_.dim,
        keys.data(), head_.scale};
    Table table({"key", "score", "max", "rescale", "sum", "lse", "| kernel M", "sum", "lse"});
    for (size_t n = 0; n < steps.size(); ++n) {
      const lessons::State state =
          lessons::state_of(row, values, head_.v_dim, 0, static_cast<int64_t>(n + 1), flags_.target);
      const double lse = (state.row_max + std::log2(static_cast<double>(state.row_sum))) * 0.69314718055994531;
      const lessons::OnlineStep& step = steps[n];
      table.add({"k" + std::to_string(numbers[n]), number(step.score), number(step.row_max), number(step.rescale),
                 number(step.row_sum), number(step.row_max + std::log(step.row_sum)),
                 format("%g", static_cast<double>(state.row_max) + 0.0), number(static_cast<double>(state.row_sum)),
                 number(lse)});
    }
    page_.table(table);
    std::vector<double> out;
    for (const double value : steps.back().acc) out.push_back(value / steps.back().row_sum);
    page_.print("what was summed, divided once at the end:\n" +
                matrix_text("out", out, out.size(), 'q', 'd', page_.columns()));
  }

  void print_blocks() {
    const lessons::BlockStudy study = lessons::block_study(1, flags_.target);
    page_.heading("Block by block: 1,024 keys in the library's blocks of 256");
    page_.paragraph(
        "Another query, with keys that grow from block to block. The kernel computes each block alone; states are "
        "merged by "
        "factors 2^(M - M'), which are exact, so that nothing depends on how the work was cut.");
    Table table({"block", "its M", "its sum", "M", "rescale", "sum", "lse so far", "reference"});
    for (size_t b = 0; b < study.steps.size(); ++b) {
      const lessons::BlockStep& step = study.steps[b];
      table.add({std::to_string(b), format("%g", static_cast<double>(step.block.row_max)),
                 number(static_cast<double>(step.block.row_sum)),
                 format("%g", static_cast<double>(step.merged.row_max)), format("%.4g", step.rescale),
                 number(static_cast<double>(step.merged.row_sum)), number(step.lse), number(step.lse_reference)});
    }
    page_.table(table);
    page_.print(format("one run over all keys: M %g, sum %.4f: %s\n", static_cast<double>(study.whole.row_max),
                       static_cast<double>(study.whole.row_sum), study.same_bits ? "the same bits" : "other bits"));
  }

  ExampleFlags flags_;
  Page page_;
  Head head_ = {};
  lessons::Both scaled_;
};

}  // namespace

void add_worked_example(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("worked-example", "Attention step by step on a small input");
  const auto flags = std::make_shared<ExampleFlags>();
  const std::string group = "Example";
  command->add_option("--file", flags->file, "another input: safetensors, or JSON with q, k, v (and mask, scale)")
      ->option_text("FILE.safetensors|.json")
      ->group(group);
  command->add_option("--name", flags->name, "of an entry of a JSON list \"attention\" (default: its first)")
      ->option_text("NAME")
      ->group(group);
  command->add_option("--part", flags->parts, "steps, overflow, online, blocks")
      ->option_text("NAME,... (all)")
      ->delimiter(',')
      ->group(group);
  for (const auto& [flag, value, help] :
       {std::make_tuple("--head", &flags->head, "query head to follow (default 0)"),
        std::make_tuple("--batch", &flags->sequence, "sequence to follow (default 0)"),
        std::make_tuple("--query", &flags->query, "query of the online softmax (default 0)")}) {
    command->add_option(flag, *value, help)->check(check_integer)->option_text("N")->group(group);
  }
  add_problem_flags(*command, *flags);
  command->footer(
      "Without an input: three tokens with d_k = 4. Examples:\n"
      "  lanewise worked-example\n"
      "  lanewise worked-example --file small.json --causal");
  command->callback([flags, &chosen] { chosen = [flags] { return WorkedExample(*flags).execute(); }; });
}

}  // namespace lanewise::tools
