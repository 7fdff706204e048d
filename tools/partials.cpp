// `lanewise merge` combines results over disjoint key ranges; `lanewise append` writes new rows into a cache.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "io/safetensors.hpp"
#include "lanewise/lanewise.hpp"
#include "placed.hpp"
#include "run_case.hpp"
#include "tensor_set.hpp"

namespace lanewise::tools {
namespace {

using io::quote;
using io::shape_text;

struct MergeFlags {
  std::vector<std::string> inputs;
  std::string output;
  bool quiet = false;
};

struct AppendFlags {
  std::string cache, rows, output;
  std::string layout = "bhld";
  bool quiet = false;
};

void check_output_name(const std::string& name) {
  if (!ends_with(name, ".safetensors")) throw Error("-o " + quote(name) + ": the name must end in .safetensors");
}

std::string text_of(const io::Tensor& tensor) {
  return "tensor " + quote(tensor.name) + " " + io::type_name(tensor.type) + " " + shape_text(tensor.shape);
}

void write_all(const std::string& path, const std::vector<io::Tensor>& tensors) {
  std::vector<const io::Tensor*> pointers;
  for (const io::Tensor& tensor : tensors) pointers.push_back(&tensor);
  io::write_safetensors(path, pointers);
}

// One input of a merge.
struct Part {
  io::Tensor out, lse;
};

Part load_part(const std::string& path, const Part* first) {
  const io::SafetensorsFile file(path);
  Part part = {file.read("out"), file.read("lse")};
  for (const io::Tensor* tensor : {&part.out, &part.lse}) {
    if (tensor->type != io::Type::f32) throw Error(path + ": " + text_of(*tensor) + ": type F32 is needed");
  }
  const std::vector<int64_t>& shape = part.out.shape;
  if (shape.empty()) throw Error(path + ": " + text_of(part.out) + ": an axis for dim is needed");
  if (part.lse.shape != std::vector<int64_t>(shape.begin(), shape.end() - 1)) {
    throw Error(path + ": " + text_of(part.lse) + ": the shape of out without its last axis is needed");
  }
  if (first != nullptr && shape != first->out.shape) {
    throw Error(path + ": " + text_of(part.out) + " differs in shape from the first file's, " +
                shape_text(first->out.shape));
  }
  return part;
}

// Rows are merged one by one, so axes but the last are all the same to it: one head of many rows.
int merge(const MergeFlags& flags) {
  check_output_name(flags.output);
  std::vector<Part> parts;
  for (const std::string& path : flags.inputs) parts.push_back(load_part(path, parts.empty() ? nullptr : &parts[0]));
  lanewise::Problem problem;
  problem.q_len = parts[0].lse.count();
  problem.v_dim = parts[0].out.shape.back();
  problem.qk_dim = 1;
  const auto rows = [&](const io::Tensor& tensor, bool has_dim) {
    lw_const_tensor view = {};
    view.data = tensor.bytes.data();
    view.type = LW_TYPE_F32;
    view.stride[2] = has_dim ? problem.v_dim : 1;
    view.stride[3] = has_dim ? 1 : 0;
    return view;
  };
  const auto output = [](const lw_const_tensor& view) {
    lw_tensor result = {};
    result.data = const_cast<void*>(view.data);  // of a tensor that is ours and not const
    result.type = view.type;
    std::copy(std::begin(view.stride), std::end(view.stride), result.stride);
    return result;
  };
  std::vector<lw_const_tensor> outs, lses;
  for (const Part& part : parts) {
    outs.push_back(rows(part.out, true));
    lses.push_back(rows(part.lse, false));
  }
  lanewise::Outputs merged;  // in place of the first part
  merged.out = output(outs[0]);
  merged.lse = output(lses[0]);
  require(lw_merge(&problem, outs.data(), lses.data(), static_cast<int32_t>(parts.size()), &merged));
  io::write_safetensors(flags.output, {&parts[0].out, &parts[0].lse});
  if (!flags.quiet) {
    std::printf("merged   %zu parts of %s\nwrote    %s: out, lse\n", parts.size(),
                shape_text(parts[0].out.shape).c_str(), flags.output.c_str());
  }
  return kSuccess;
}

void append_rows(io::Tensor& cache, const io::Tensor& rows, const io::Tensor& slots, bool blhd,
                 const std::string& path) {
  if (cache.shape.size() != 4) {
    throw Error(text_of(cache) +
                (blhd ? ": [pages, page_size, heads, dim] is needed" : ": [pages, heads, page_size, dim] is needed"));
  }
  const Axes axes = dense_axes(blhd, 4);
  const int64_t heads = axis_size(cache.shape, axes, 1), dim = cache.shape[3];
  const std::vector<int64_t> needed = {slots.count(), heads, dim};
  if (rows.type != cache.type || rows.shape != needed) {
    throw Error(path + ": " + text_of(rows) + ": " + io::type_name(cache.type) + " " + shape_text(needed) +
                " (tokens, heads, dim) is needed");
  }
  lw_tensor to = {};
  lw_const_tensor from = {};
  to.data = cache.bytes.data();
  from.data = rows.bytes.data();
  to.type = from.type = lw_type(cache.type);
  const std::array<int64_t, 4> cache_strides = strides_of(cache.shape, axes),
                               row_strides = strides_of(rows.shape, kRaggedAxes);
  std::copy(cache_strides.begin(), cache_strides.end(), to.stride);
  std::copy(row_strides.begin(), row_strides.end(), from.stride);
  require(lw_append(&to, cache.shape[0], axis_size(cache.shape, axes, 2), heads, dim, &from, slots.count(),
                    slots.as<int32_t>()));
}

int append(const AppendFlags& flags) {
  check_output_name(flags.output);
  if (flags.layout != "bhld" && flags.layout != "blhd") {
    throw Error("--layout " + quote(flags.layout) + ": bhld and blhd are allowed");
  }
  const io::SafetensorsFile cache_file(flags.cache), row_file(flags.rows);
  io::Tensor slots = io::to_i32(row_file.read("slot_mapping"));
  if (slots.shape.size() != 1)
    throw Error(row_file.path() + ": " + text_of(slots) + ": one slot a row, [tokens], is needed");
  std::string names;
  std::vector<io::Tensor> tensors;  // all of the cache's file: a page table, lengths and the like are kept
  for (const io::TensorEntry& entry : cache_file.entries()) tensors.push_back(cache_file.read(entry));
  for (const io::TensorEntry& entry : row_file.entries()) {
    if (entry.name == "slot_mapping") continue;
    const auto cache =
        std::find_if(tensors.begin(), tensors.end(), [&](const io::Tensor& t) { return t.name == entry.name; });
    if ((entry.name != "k" && entry.name != "v") || cache == tensors.end()) {
      throw Error(row_file.path() + ": tensor " + quote(entry.name) +
                  ": rows for the cache's k and v and slot_mapping are allowed");
    }
    append_rows(*cache, row_file.read(entry), slots, flags.layout == "blhd", row_file.path());
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  if (names.empty()) throw Error(row_file.path() + ": neither k nor v has rows to append");
  write_all(flags.output, tensors);
  if (!flags.quiet) {
    std::printf("appended %lld rows to %s\nwrote    %s\n", static_cast<long long>(slots.count()), names.c_str(),
                flags.output.c_str());
  }
  return kSuccess;
}

}  // namespace

void add_merge(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("merge", "Combines results (out, lse) over disjoint ranges of keys");
  const auto flags = std::make_shared<MergeFlags>();
  command->add_option("IN", flags->inputs, "files with out and lse, as attend writes them")
      ->option_text("A.safetensors B ...")
      ->required();
  command->add_option("-o,--output", flags->output, "where the result goes")
      ->option_text("OUT.safetensors")
      ->required();
  command->add_flag("--quiet", flags->quiet, "print nothing");
  command->footer("Example: lanewise merge prefix.safetensors rest.safetensors -o whole.safetensors");
  command->callback([flags, &chosen] { chosen = [flags] { return merge(*flags); }; });
}

void add_append(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("append", "Writes new rows of k and v into a cache");
  const auto flags = std::make_shared<AppendFlags>();
  command->add_option("CACHE", flags->cache, "file with k, v: [pages, heads, page_size, dim]")
      ->option_text("CACHE.safetensors")
      ->required();
  command
      ->add_option("ROWS", flags->rows, "file with k, v: [tokens, heads, dim] and slot_mapping: i32 [tokens], -1 skips")
      ->option_text("ROWS.safetensors")
      ->required();
  command->add_option("--layout", flags->layout, "of the cache; blhd: [pages, page_size, heads, dim]")
      ->option_text("bhld|blhd");
  command->add_option("-o,--output", flags->output, "where the cache goes; may be CACHE itself")
      ->option_text("OUT.safetensors")
      ->required();
  command->add_flag("--quiet", flags->quiet, "print nothing");
  command->footer("Slot s is token s % page_size of page s / page_size. Other tensors of CACHE are kept.");
  command->callback([flags, &chosen] { chosen = [flags] { return append(*flags); }; });
}

}  // namespace lanewise::tools
