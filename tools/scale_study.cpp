// `lanewise scale-study`: why scores are divided by sqrt(d_k), as experiments with the library's own kernels beside the
// float64 reference.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "command.hpp"
#include "flags.hpp"
#include "io/safetensors.hpp"
#include "lessons/pages.hpp"

namespace lanewise::tools {
namespace {

struct StudyFlags {
  lessons::StudyOptions options;
  std::vector<std::string> parts;  // empty: all
  std::vector<std::string> real, real_causal;
  std::string folder;
};

using PartPage = void (*)(lessons::Page&, const lessons::StudyOptions&);
struct Part {
  const char* name;
  PartPage page;
};
constexpr Part kParts[] = {{"variance", lessons::variance_page},
                           {"saturation", lessons::saturation_page},
                           {"competition", lessons::competition_page},
                           {"experiment", lessons::experiment_page},
                           {"layers", lessons::layer_page},
                           {"cosine", lessons::angle_page}};

void in_range(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(std::string(flag) + " " + std::to_string(value) + ": " + std::to_string(low) + " ... " +
              std::to_string(high) + " is allowed");
}

void check(const StudyFlags& flags) {
  const lessons::StudyOptions& o = flags.options;
  in_range("--samples", o.samples, 2, 1000000);
  in_range("--draws", o.draws, 1, 100000);
  in_range("--keys", o.keys, 1, 1000);
  in_range("--dim", o.dim, 1, 4096);
  in_range("--layers", o.layers, 0, 100);
  if (o.dims.empty() || o.dims.size() > 16) throw Error("--dims: 1 ... 16 sizes are allowed");
  for (const int64_t dim : o.dims) in_range("--dims", dim, 1, 4096);
  if (!(o.growth >= 0.01 && o.growth <= 100)) throw Error(format("--growth %g: 0.01 ... 100 is allowed", o.growth));
  // Beyond this the scores themselves leave float32's range of meaning.
  const double last = std::pow(o.growth, static_cast<double>(o.layers));
  if (!(last <= 1e12 && last >= 1e-12)) {
    throw Error(format("--growth %g over --layers %lld: the last layer's variance %.3g must be 1e-12 ... 1e12",
                       o.growth, static_cast<long long>(o.layers), last));
  }
  if (!flags.folder.empty() && !std::filesystem::is_directory(flags.folder)) {
    throw Error("--svg " + io::quote(flags.folder) + ": there is no such folder");
  }
  for (const std::string& part : flags.parts) {
    const auto same = [&](const Part& known) { return part == known.name; };
    if (part == "real" && flags.real.empty() && flags.real_causal.empty()) {
      throw Error("--part real needs --real FILE.safetensors");
    }
    if (part == "real" || std::any_of(std::begin(kParts), std::end(kParts), same)) continue;
    throw Error("--part " + io::quote(part) +
                ": variance, saturation, competition, experiment, layers, cosine and real are allowed");
  }
}

std::vector<float> floats(const io::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(io::element(tensor, static_cast<int64_t>(i)));
  return values;
}

// q and k of a file's only sequence.
lessons::RealHeads load_real(const std::string& path, bool causal) {
  const io::SafetensorsFile file(path);
  const io::Tensor q = file.read("q"), k = file.read("k");
  for (const io::Tensor* tensor : {&q, &k}) {
    const bool good = io::is_float(tensor->type) && tensor->shape.size() == 4 && tensor->shape[0] == 1;
    if (!good || tensor->count() == 0) {
      throw Error(path + ": tensor " + io::quote(tensor->name) + " is " + io::type_name(tensor->type) + " " +
                  io::shape_text(tensor->shape) + "; [1, heads, len, dim] of a float type is needed, not empty");
    }
  }
  lessons::RealHeads heads;
  heads.name = std::filesystem::path(path).stem().string();
  heads.heads = q.shape[1];
  heads.kv_heads = k.shape[1];
  heads.q_len = q.shape[2];
  heads.kv_len = k.shape[2];
  heads.dim = q.shape[3];
  heads.causal = causal;
  if (k.shape[3] != heads.dim || heads.heads % heads.kv_heads != 0) {
    throw Error(path + ": q " + io::shape_text(q.shape) + " and k " + io::shape_text(k.shape) +
                " do not fit each other");
  }
  if (heads.heads > 128 || heads.q_len * heads.kv_len > int64_t{1} << 22) {
    throw Error(path + ": too large for a study; at most 128 heads of 4,194,304 scores (queries x keys) are allowed");
  }
  heads.q = floats(q);
  heads.k = floats(k);
  return heads;
}

int execute(const StudyFlags& flags) {
  check(flags);
  std::vector<lessons::RealHeads> models;
  for (const std::string& path : flags.real) models.push_back(load_real(path, false));
  for (const std::string& path : flags.real_causal) models.push_back(load_real(path, true));
  if (models.size() > 4) throw Error("--real: at most 4 files are allowed");
  // Before any output: a wrong target is one line and nothing else.
  lessons::softmax_of({0}, flags.options.target);
  const auto wanted = [&](const char* name) {
    return flags.parts.empty() || std::find(flags.parts.begin(), flags.parts.end(), name) != flags.parts.end();
  };
  lessons::Page page(flags.folder);
  for (const Part& part : kParts) {
    if (wanted(part.name)) part.page(page, flags.options);
  }
  if (wanted("real") && !models.empty()) lessons::real_page(page, models, flags.options);
  return kSuccess;
}

}  // namespace

void add_scale_study(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("scale-study", "Why scores are divided by sqrt(d_k): experiments and pictures");
  const auto flags = std::make_shared<StudyFlags>();
  lessons::StudyOptions& o = flags->options;
  command->add_option("--part", flags->parts, "variance, saturation, competition, experiment, layers, cosine, real")
      ->option_text("NAME,... (all)")
      ->delimiter(',');
  command->add_option("--svg", flags->folder, "write the pictures into this folder")->option_text("FOLDER");
  command->add_option("--real", flags->real, "a model's q and k, to hold against the theory; up to 4 files")
      ->option_text("FILE.safetensors ...");
  command->add_option("--real-causal", flags->real_causal, "the same where queries see keys up to their own position")
      ->option_text("FILE.safetensors ...");
  command->add_option("--seed", o.seed, "of the random vectors")->check(check_integer)->option_text("N (1)");
  command->add_option("--samples", o.samples, "pairs of vectors for the distribution of scores")
      ->check(check_integer)
      ->option_text("N (10000)");
  command->add_option("--draws", o.draws, "rows of the experiment")->check(check_integer)->option_text("N (2000)");
  command->add_option("--keys", o.keys, "keys of a row of the experiment")
      ->check(check_integer)
      ->option_text("N (100)");
  command->add_option("--dim", o.dim, "d_k of the experiment")->check(check_integer)->option_text("N (512)");
  command->add_option("--dims", o.dims, "d_k of the variance study")
      ->option_text("N,... (16,64,128,512)")
      ->delimiter(',');
  command->add_option("--layers", o.layers, "last layer of the table over layers")
      ->check(check_integer)
      ->option_text("N (8)");
  command->add_option("--growth", o.growth, "factor on the inputs' variance from layer to layer")
      ->check(check_number)
      ->option_text("X (1.5)");
  command->add_option("--target", o.target, "instruction set (default: LANEWISE_TARGET, else the best)")
      ->option_text("NAME");
  command->footer("docs/WHY-SQRT-DK.md tells the story with these tables and pictures.");
  command->callback([flags, &chosen] { chosen = [flags] { return execute(*flags); }; });
}

}  // namespace lanewise::tools
