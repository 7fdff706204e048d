#include "problem_case.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lanewise::tools {
namespace {

using io::quote;
using io::shape_text;
using io::Tensor;
using io::Type;

[[noreturn]] void fail(const Tensor& tensor, const std::string& text) {
  throw Error("tensor " + quote(tensor.name) + " " + io::type_name(tensor.type) + " " + shape_text(tensor.shape) +
              ": " + text);
}

std::string text(int64_t value) { return std::to_string(value); }

class Builder {
 public:
  Builder(TensorSet tensors, const Flags& flags) : tensors_(std::move(tensors)), flags_(flags) {}

  ProblemCase build() {
    read_layout();
    add_qkv();
    add_sequences();
    add_rules();
    add_block_mask();
    c_.problem.mask_tail = flags_.mask_tail;
    add_mask("mask", c_.mask, c_.inputs.mask, c_.problem.mask_type);
    add_mask("mask_bits", c_.mask, c_.inputs.mask, c_.problem.mask_type);
    add_mask("bias", c_.bias, c_.inputs.bias, c_.problem.bias_type);
    add_state();
    return std::move(c_);
  }

 private:
  bool has(const char* name) const { return tensors_.count(name) != 0; }
  const Tensor& get(const char* name) const { return tensors_.at(name); }
  Tensor take(const char* name) { return std::move(tensors_.at(name)); }

  // A small array moved into the case, checked for type and shape; its elements.
  const Tensor& array(const char* name, Type type, const std::vector<std::vector<int64_t>>& shapes) {
    Tensor tensor = take(name);
    if (type == Type::i32) tensor = io::to_i32(tensor);
    if (tensor.type != type) fail(tensor, std::string("type ") + io::type_name(type) + " is needed");
    if (std::find(shapes.begin(), shapes.end(), tensor.shape) == shapes.end()) {
      std::string allowed;
      for (const auto& shape : shapes) allowed += (allowed.empty() ? "" : " or ") + shape_text(shape);
      fail(tensor, "shape " + allowed + " is needed");
    }
    return c_.arrays[name] = std::move(tensor);
  }

  void read_layout() {
    if (flags_.layout != "bhld" && flags_.layout != "blhd") {
      throw Error("--layout " + quote(flags_.layout) + ": bhld and blhd are allowed");
    }
    if (flags_.pad < 0) throw Error("--pad " + text(flags_.pad) + ": 0 or more is allowed");
    const int parts = has("block_indptr") + has("block_indices") + !flags_.block_mask.empty();
    if (parts != 0 && parts != 3) {
      throw Error("a block mask needs tensors 'block_indptr' and 'block_indices' and --block-mask ROWS,KEYS");
    }
    blhd_ = flags_.layout == "blhd";
    if (has("cu_seqlens_q")) c_.problem.q_layout = LW_LAYOUT_RAGGED;
    if (has("cu_seqlens_kv")) c_.problem.kv_layout = LW_LAYOUT_RAGGED;
    if (!has("page_table")) return;
    if (has("cu_seqlens_kv")) throw Error("tensors 'page_table' and 'cu_seqlens_kv' exclude each other");
    if (!has("lengths")) throw Error("tensor 'page_table' needs 'lengths' (i32 [batch])");
    c_.problem.kv_layout = LW_LAYOUT_PAGED;
  }

  // Axes of q (kv = false), k and v; checks the rank.
  Axes axes_of(const Tensor& tensor, bool kv) const {
    const size_t rank = tensor.shape.size();
    const int32_t layout = kv ? c_.problem.kv_layout : c_.problem.q_layout;
    if (layout == LW_LAYOUT_RAGGED) {
      if (rank != 3) fail(tensor, "with cu_seqlens three axes are needed: [total, heads, dim]");
      return kRaggedAxes;
    }
    if (layout == LW_LAYOUT_PAGED) {
      if (rank != 4) {
        fail(tensor, std::string("with page_table four axes are needed: ") +
                         (blhd_ ? "[pages, page_size, kv_heads, dim]" : "[pages, kv_heads, page_size, dim]"));
      }
    } else if (rank < 2 || rank > 4) {
      fail(tensor, blhd_ ? "[batch, len, heads, dim], [len, heads, dim] or [len, dim] is needed"
                         : "[batch, heads, len, dim], [heads, len, dim] or [len, dim] is needed");
    }
    return dense_axes(blhd_, rank);
  }

  Placed place(const char* name, const std::string& dtype_flag, const std::string& dtype, int32_t& type) {
    Tensor tensor = take(name);
    const bool sizes_only = tensor.bytes.data() == nullptr;
    if (!dtype.empty()) {
      const Type wanted = parse_dtype(dtype_flag, dtype);
      if (!io::is_float(tensor.type)) fail(tensor, "types F32, BF16, F16 and F64 can be converted");
      if (tensor.type != wanted && !sizes_only) tensor = io::convert(tensor, wanted);
      tensor.type = wanted;
    }
    if (tensor.type == Type::f64) fail(tensor, "types F32, BF16 and F16 are allowed (--dtype f32 converts)");
    if (!io::is_float(tensor.type)) fail(tensor, "types F32, BF16 and F16 are allowed");
    type = lw_type(tensor.type);
    return Placed(std::move(tensor), flags_.pad);
  }

  void same(const Tensor& tensor, const char* what, int64_t value, const char* other, int64_t expected) const {
    if (value != expected)
      fail(tensor, std::string(what) + " " + text(value) + " differs from " + other + ", " + text(expected));
  }

  void add_qkv() {
    lw_problem& p = c_.problem;
    const Axes q_axes = axes_of(get("q"), false), k_axes = axes_of(get("k"), true), v_axes = axes_of(get("v"), true);
    const std::vector<int64_t> q = get("q").shape, k = get("k").shape, v = get("v").shape;
    q_rank_ = q.size();
    p.q_heads = axis_size(q, q_axes, 1);
    p.kv_heads = axis_size(k, k_axes, 1);
    p.qk_dim = axis_size(q, q_axes, 3);
    p.v_dim = axis_size(v, v_axes, 3);
    same(get("k"), "dim", axis_size(k, k_axes, 3), "q's", p.qk_dim);
    same(get("v"), "heads", axis_size(v, v_axes, 1), "k's", p.kv_heads);
    same(get("v"), "len", axis_size(v, v_axes, 2), "k's", axis_size(k, k_axes, 2));
    same(get("v"), "batch", axis_size(v, v_axes, 0), "k's", axis_size(k, k_axes, 0));

    const int64_t from_q = batch_of(q, q_axes, "cu_seqlens_q");
    p.batch = p.kv_layout == LW_LAYOUT_PAGED ? from_q : batch_of(k, k_axes, "cu_seqlens_kv");
    same(get("k"), "batch", p.batch, "q's", from_q);
    p.q_len = axis_size(q, q_axes, 2);
    p.kv_len = axis_size(k, k_axes, 2);
    if (p.q_layout == LW_LAYOUT_RAGGED) p.total_q = std::exchange(p.q_len, longest("cu_seqlens_q"));
    if (p.kv_layout == LW_LAYOUT_RAGGED) p.total_kv = std::exchange(p.kv_len, longest("cu_seqlens_kv"));
    if (p.kv_layout == LW_LAYOUT_PAGED) add_pages(axis_size(k, k_axes, 0));

    const std::string kv_flag = flags_.kv_dtype.empty() ? "--dtype" : "--kv-dtype";
    const std::string& kv_dtype = flags_.kv_dtype.empty() ? flags_.dtype : flags_.kv_dtype;
    c_.q = place("q", "--dtype", flags_.dtype, p.q_type);
    c_.k = place("k", kv_flag, kv_dtype, p.k_type);
    c_.v = place("v", kv_flag, kv_dtype, p.v_type);
    c_.inputs.q = c_.q.input(q_axes, p.q_type);
    c_.inputs.k = c_.k.input(k_axes, p.k_type);
    c_.inputs.v = c_.v.input(v_axes, p.v_type);

    c_.axes = q_axes;
    c_.out_shape = q;
    c_.out_shape.back() = p.v_dim;
    c_.lse_shape.assign(q.begin(), q.end() - 1);
    c_.out_type = flags_.out_dtype.empty() ? c_.q.type() : parse_dtype("--out-dtype", flags_.out_dtype);
    p.out_type = lw_type(c_.out_type);
  }

  int64_t batch_of(const std::vector<int64_t>& shape, const Axes& axes, const char* offsets) const {
    if (!has(offsets)) return axis_size(shape, axes, 0);
    const Tensor& tensor = get(offsets);
    if (tensor.shape.size() != 1 || tensor.shape[0] < 1) fail(tensor, "shape [batch + 1] is needed");
    return tensor.shape[0] - 1;
  }

  // Longest sequence by prefix offsets. Whether they ascend is the library's check.
  int64_t longest(const char* offsets) const {
    const Tensor cu = io::to_i32(get(offsets));
    int64_t result = 0;
    for (int64_t b = 0; b + 1 < cu.count(); ++b) {
      result = std::max<int64_t>(result, int64_t{cu.as<int32_t>()[b + 1]} - cu.as<int32_t>()[b]);
    }
    return result;
  }

  void add_pages(int64_t pages) {
    lw_problem& p = c_.problem;
    const Tensor& table = get("page_table");
    if (table.shape.size() != 2 || table.shape[0] != p.batch)
      fail(table, "shape [" + text(p.batch) + ", most pages] is needed");
    const Tensor lengths = io::to_i32(get("lengths"));
    p.page_count = pages;
    p.page_size = std::exchange(p.kv_len, 0);
    for (int64_t b = 0; b < lengths.count(); ++b) p.kv_len = std::max<int64_t>(p.kv_len, lengths.as<int32_t>()[b]);
    const bool fits = p.page_size != 0 && (p.kv_len - 1) / p.page_size < std::max<int64_t>(table.shape[1], 1);
    if (p.kv_len > 0 && (table.shape[1] == 0 || !fits)) {
      fail(table, text(table.shape[1]) + " pages of " + text(p.page_size) +
                      " keys are fewer than the longest of lengths, " + text(p.kv_len));
    }
    const Tensor& stored = array("page_table", Type::i32, {table.shape});
    c_.inputs.page_table = stored.as<int32_t>();
    c_.inputs.page_table_stride[0] = stored.shape[1];
    c_.inputs.page_table_stride[1] = 1;
  }

  void add_sequences() {
    const lw_problem& p = c_.problem;
    lw_inputs& in = c_.inputs;
    const std::vector<int64_t> batch = {p.batch};
    const std::vector<int64_t> offsets = {p.batch + 1};
    const std::pair<const char*, const int32_t**> plain[] = {{"lengths", &in.kv_lengths},
                                                             {"q_lengths", &in.q_lengths},
                                                             {"kv_start", &in.kv_starts},
                                                             {"q_offset", &in.q_offsets}};
    for (const auto& [name, pointer] : plain) {
      if (has(name)) *pointer = array(name, Type::i32, {batch}).as<int32_t>();
    }
    if (has("cu_seqlens_q")) in.cu_seqlens_q = array("cu_seqlens_q", Type::i32, {offsets}).as<int32_t>();
    if (has("cu_seqlens_kv")) in.cu_seqlens_kv = array("cu_seqlens_kv", Type::i32, {offsets}).as<int32_t>();
    if (has("q_positions")) {
      const bool ragged = p.q_layout == LW_LAYOUT_RAGGED;
      const std::vector<int64_t> shape =
          ragged ? std::vector<int64_t>{p.total_q} : std::vector<int64_t>{p.batch, p.q_len};
      in.q_positions = array("q_positions", Type::i32, {shape}).as<int32_t>();
      in.q_positions_stride[0] = ragged ? 0 : p.q_len;
      in.q_positions_stride[1] = 1;
    }
    if (has("sinks")) in.sinks = array("sinks", Type::f32, {{p.q_heads}}).as<float>();
    c_.problem.sinks = has("sinks");
  }

  void add_rules() {
    lw_problem& p = c_.problem;
    if (flags_.q_offset && has("q_offset")) throw Error("q_offset is given twice: as a tensor and by --q-offset");
    if (flags_.alibi && has("alibi_slopes")) throw Error("ALiBi slopes are given twice: as a tensor and by --alibi");
    const lanewise::Problem rules =
        make_problem({p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len, p.qk_dim, p.v_dim}, flags_);
    p.arithmetic = rules.arithmetic;
    p.causal = rules.causal;
    p.window_left = rules.window_left;
    p.window_right = rules.window_right;
    p.prefix_len = rules.prefix_len;
    p.has_scale = rules.has_scale;
    p.scale = rules.scale;
    p.softcap = rules.softcap;
    p.has_q_offset = rules.has_q_offset;
    p.q_offset = rules.q_offset;
    p.alibi = flags_.alibi || has("alibi_slopes");
    if (flags_.alibi) {
      c_.arrays["alibi_slopes"] = io::make_tensor("alibi_slopes", Type::f32, {p.q_heads}, standard_slopes(p.q_heads));
    } else if (has("alibi_slopes")) {
      array("alibi_slopes", Type::f32, {{p.q_heads}, {p.batch, p.q_heads}});
    } else {
      return;
    }
    const Tensor& slopes = c_.arrays["alibi_slopes"];
    c_.inputs.alibi_slopes = slopes.as<float>();
    c_.inputs.alibi_batch_stride = slopes.shape.size() == 2 ? p.q_heads : 0;
  }

  void add_block_mask() {
    if (flags_.block_mask.empty()) return;
    lw_problem& p = c_.problem;
    const std::vector<int64_t> tile = parse_integers("--block-mask", flags_.block_mask, 2);
    if (tile[0] < 1 || tile[1] < 1)
      throw Error("--block-mask " + quote(flags_.block_mask) + ": sizes of 1 or more are needed");
    p.block_mask_rows = tile[0];
    p.block_mask_keys = tile[1];
    const int64_t width = (p.q_len + tile[0] - 1) / tile[0] + 1;
    const Tensor& indptr = array("block_indptr", Type::i32, {{width}, {p.q_heads, width}, {p.batch, p.q_heads, width}});
    const Tensor& indices = array("block_indices", Type::i32, {get("block_indices").shape});
    if (indices.shape.size() != 1) fail(indices, "one axis is needed");
    for (int64_t n = 0; indptr.bytes.data() != nullptr && n < indptr.count(); ++n) {
      const int32_t offset = indptr.as<int32_t>()[n];
      if (offset < 0 || offset > indices.shape[0])
        fail(indptr,
             "offset " + text(offset) + " at " + text(n) + "; 0 ... " + text(indices.shape[0]) + " are allowed");
    }
    static const int32_t kNone = 0;
    c_.inputs.block_indptr = indptr.as<int32_t>();
    c_.inputs.block_indices = indices.shape[0] > 0 ? indices.as<int32_t>() : &kNone;
    c_.inputs.block_indptr_stride[1] = indptr.shape.size() > 1 ? width : 0;
    c_.inputs.block_indptr_stride[0] = indptr.shape.size() > 2 ? width * p.q_heads : 0;
  }

  // mask, mask_bits or bias.
  void add_mask(const char* name, Placed& placed, lw_const_tensor& view, int32_t& type) {
    if (!has(name)) return;
    const bool is_bias = std::string(name) == "bias", bits = std::string(name) == "mask_bits";
    Tensor tensor = take(name);
    if (placed.given()) fail(tensor, "excludes tensor " + quote(placed.name()));
    const bool fits = is_bias ? io::is_float(tensor.type) && tensor.type != Type::f64
                              : tensor.type == (bits ? Type::u8 : Type::boolean);
    if (!fits) {
      const char* other = tensor.type == Type::u8     ? "; in numpy mask.astype(bool)"
                          : io::is_float(tensor.type) ? "; a mask to be added is --bias"
                                                      : "";
      fail(tensor, is_bias ? std::string("types F32, BF16 and F16 are allowed")
                   : bits  ? std::string("type U8 is needed")
                           : std::string("type BOOL is needed") + other);
    }
    const Axes axes = mask_axes(tensor, bits);
    const uint8_t* flags = tensor.bytes.data();
    if (!is_bias && !bits && flags != nullptr) {
      const uint8_t* bad = std::find_if(flags, flags + tensor.bytes.size(), [](uint8_t flag) { return flag > 1; });
      if (bad != flags + tensor.bytes.size())
        fail(tensor, "byte " + text(*bad) + " at " + text(bad - flags) + "; 0 and 1 are allowed");
    }
    type = lw_type(tensor.type);
    placed = Placed(std::move(tensor), flags_.pad);
    view = placed.input(axes, type);
  }

  Axes mask_axes(const Tensor& tensor, bool bits) const {
    const lw_problem& p = c_.problem;
    const int64_t flags = p.mask_tail > 0 && tensor.name != "bias" ? p.mask_tail : p.kv_len;
    const int64_t keys = bits ? (flags + 7) / 8 : flags;
    const size_t rank = tensor.shape.size();
    const bool ragged = p.q_layout == LW_LAYOUT_RAGGED;
    Axes axes = {0, 1, 2, 3};
    bool broadcasts = true;
    if (ragged && rank == 3) {
      axes = {-1, 0, 1, 2};
    } else if (!ragged && rank == 2 && q_rank_ > 2) {  // key padding
      axes = {0, -1, -1, 1};
      broadcasts = false;
    } else if (!ragged && rank == q_rank_ && rank < 4) {  // as q: no batch, perhaps no heads
      axes = rank == 3 ? Axes{-1, 0, 1, 2} : Axes{-1, -1, 0, 1};
    } else if (ragged || rank != 4) {
      fail(tensor, mask_shapes(keys));
    }
    const int64_t sizes[4] = {p.batch, p.q_heads, ragged ? p.total_q : p.q_len, keys};
    for (size_t a = 0; a < 4; ++a) {
      const int64_t size = axis_size(tensor.shape, axes, a);
      // Pages: a mask may be as wide as the table allows.
      const bool wide = a == 3 && p.kv_layout == LW_LAYOUT_PAGED && size >= sizes[a];
      // A byte of bits cannot stand for many keys.
      const bool one = axes[a] < 0 || (size == 1 && broadcasts && !(bits && a == 3) && !(ragged && a == 2));
      if (size != sizes[a] && !one && !wide) fail(tensor, mask_shapes(keys));
    }
    return axes;
  }

  std::string mask_shapes(int64_t keys) const {
    const lw_problem& p = c_.problem;
    if (p.q_layout == LW_LAYOUT_RAGGED) {
      return "shape " + shape_text({p.q_heads, p.total_q, keys}) + " is needed, or 1 head";
    }
    std::string allowed = shape_text({p.batch, p.q_heads, p.q_len, keys}) + " is needed, with 1 on any axis";
    if (q_rank_ == 3) allowed += ", or " + shape_text({p.q_heads, p.q_len, keys});
    return "shape " + allowed + ", or " +
           (q_rank_ == 2 ? shape_text({p.q_len, keys}) : shape_text({p.batch, keys}) + " over keys");
  }

  void add_state() {
    if (!has("state_max") && !has("state_sum") && !has("state_acc")) return;
    const std::pair<const char*, Placed*> parts[] = {
        {"state_max", &c_.state_max}, {"state_sum", &c_.state_sum}, {"state_acc", &c_.state_acc}};
    for (const auto& [name, placed] : parts) {
      if (!has(name))
        throw Error(std::string("tensor '") + name + "' is missing: state_max, state_sum and state_acc go together");
      Tensor tensor = take(name);
      const std::vector<int64_t>& shape = placed == &c_.state_acc ? c_.out_shape : c_.lse_shape;
      if (tensor.type != Type::f32 || tensor.shape != shape) fail(tensor, "F32 " + shape_text(shape) + " is needed");
      *placed = Placed(std::move(tensor), flags_.pad);
    }
    c_.inputs.state_max = c_.state_max.input(c_.row_axes(), LW_TYPE_F32);
    c_.inputs.state_sum = c_.state_sum.input(c_.row_axes(), LW_TYPE_F32);
    c_.inputs.state_acc = c_.state_acc.input(c_.axes, LW_TYPE_F32);
  }

  TensorSet tensors_;
  const Flags& flags_;
  ProblemCase c_;
  bool blhd_ = false;
  size_t q_rank_ = 4;
};

}  // namespace

ProblemCase make_case(TensorSet tensors, const Flags& flags) { return Builder(std::move(tensors), flags).build(); }

}  // namespace lanewise::tools
