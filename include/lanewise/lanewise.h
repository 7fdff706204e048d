/* lanewise: scaled dot-product attention on CPUs, C interface (C99). The ABI: the shared library exports lw_* only.
 *
 *   out = softmax(scale * Q K^T + rules) V      one fused pass; the score matrix is never stored
 *
 * A row's result (sequence, query head, query) depends on that row's own inputs and on nothing else: the same bits for
 * any thread count, batch, chunking, cache layout and instruction set with FMA (docs/NUMERICS.md).
 *
 * How it is used:
 *   lw_problem p = lw_problem_default();   sizes, types, rules: no pointers
 *   lw_plan_make(&p, NULL, &plan);         once, about a microsecond; share it between threads
 *   lw_run(plan, &inputs, &outputs, workspace, workspace_size, NULL);     many times, allocates nothing
 * or, for just the answer: lw_attend(&p, &inputs, &outputs, NULL).
 *
 * Conventions
 *   strides    in elements of the tensor's type (bit masks: bytes), one per axis. 0 and negative are allowed on inputs.
 *   structs    with a struct_size open with it and end in reserved space. Fill them with their *_default() function, which
 *              sets the size and all defaults, then change what differs. lw_explanation has none: set its size.
 *   lengths    int32 arrays; sizes int64.
 *   errors     every function that can fail returns an lw_status. Wrong arguments never abort and no output byte is written.
 *   threads    all functions may be called from any thread at any time; a plan is constant once made. One workspace serves one
 *              run at a time.
 * The library never prints. It reads one environment variable, LANEWISE_TARGET, once per process.
 */
#ifndef LANEWISE_LANEWISE_H_
#define LANEWISE_LANEWISE_H_

#include <stddef.h>
#include <stdint.h>

#ifndef LW_API
#if defined(_WIN32) || !defined(__GNUC__)
#define LW_API
#else
#define LW_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LW_VERSION_MAJOR 0
#define LW_VERSION_MINOR 1
#define LW_VERSION_PATCH 0

/* Version of the library at run time: major * 10000 + minor * 100 + patch. */
LW_API int32_t lw_version(void);

/* ---- Status ------------------------------------------------------------------------------------------------------ */

enum {
  LW_OK = 0,
  LW_INVALID_ARGUMENT = 1, /* the message names the argument, the value it had and what is allowed */
  LW_UNSUPPORTED = 2,      /* a valid request that this version, build or CPU cannot serve */
  LW_OUT_OF_MEMORY = 3,    /* only from lw_plan_make and lw_attend: lw_run allocates nothing */
  LW_STOPPED = 4           /* should_stop was seen; the outputs are incomplete */
};

/* A value: no allocation, no thread-local state. The message is empty when code is LW_OK, always zero-terminated. */
typedef struct lw_status {
  int32_t code;
  char message[252];
} lw_status;

/* ---- Types ------------------------------------------------------------------------------------------------------- */

/* Storage types. Numbers are fixed; 16 and up are kept for quantised storage. */
enum {
  LW_TYPE_NONE = 0,
  LW_TYPE_F32 = 1,
  LW_TYPE_BF16 = 2, /* as uint16_t */
  LW_TYPE_F16 = 3,  /* IEEE half, as uint16_t */
  LW_TYPE_BOOL = 4, /* one byte a flag; 1 = attend */
  LW_TYPE_BITS = 5  /* one bit a flag, least significant first; 1 = attend; strides in bytes */
};

enum {
  LW_ARITHMETIC_CANONICAL = 0,   /* float32 with FMA; the same bits on every target with FMA */
  LW_ARITHMETIC_NATIVE_BF16 = 1, /* the CPU's bf16 pair dot; bf16 q, k, v only */
  LW_ARITHMETIC_BEST = 2         /* native_bf16 where types and CPU allow it, else canonical */
};

enum {
  LW_LAYOUT_DENSE = 0,  /* axes [batch, head, len, dim] */
  LW_LAYOUT_RAGGED = 1, /* axes [head, token, dim], sequences behind one another: cu_seqlens */
  LW_LAYOUT_PAGED = 2   /* axes [page, head, token in page, dim]: page_table; k and v only */
};

/* A strided tensor. Axes of q, k, v, out and state_acc: batch (dense) or page (paged), head, len or token, dim. Axes of
 * lse, state_max, state_sum: batch, head, len. Axes of mask and bias: batch, query head, query, key; stride 0
 * broadcasts; bits lie together along keys, whose stride is not used. A ragged tensor has no batch axis: stride[0] is not
 * used. Strides of axes of size 1 are not used either. */
typedef struct lw_const_tensor {
  const void* data;
  int32_t type; /* LW_TYPE_NONE (with data NULL): not given */
  int32_t reserved_int;
  int64_t stride[4];
  int64_t reserved[4];
} lw_const_tensor;

typedef struct lw_tensor {
  void* data;
  int32_t type;
  int32_t reserved_int;
  int64_t stride[4];
  int64_t reserved[4];
} lw_tensor;

/* ---- Problem ----------------------------------------------------------------------------------------------------- */

/* Sizes, types and rules; no pointers. batch, q_len, kv_len, total_q and total_kv are capacities: a run may use less. */
typedef struct lw_problem {
  int64_t struct_size;
  int64_t batch;    /* sequences, >= 0 */
  int64_t q_heads;  /* >= 1, a multiple of kv_heads; query head h reads kv head h / (q_heads / kv_heads) */
  int64_t kv_heads; /* >= 1 */
  int64_t q_len;    /* query rows of the longest sequence, 0 ... 2^31 - 1 */
  int64_t kv_len;   /* keys of the longest sequence, 0 ... 2^31 - 1 */
  int64_t qk_dim;   /* head dimension of q and k, 1 ... 65536 */
  int64_t v_dim;    /* head dimension of v and out, 1 ... 65536 */
  int64_t total_q;  /* ragged q: rows of all sequences together */
  int64_t total_kv; /* ragged k, v: keys of all sequences together */
  int64_t page_size;
  int64_t page_count; /* paged: pages in the pool; ids are 0 ... page_count - 1 */
  int32_t q_type, k_type, v_type, out_type;
  int32_t q_layout;  /* LW_LAYOUT_DENSE or LW_LAYOUT_RAGGED, of q, out, lse and states */
  int32_t kv_layout; /* LW_LAYOUT_DENSE, LW_LAYOUT_RAGGED or LW_LAYOUT_PAGED */
  int32_t arithmetic;
  int32_t causal;       /* 1: query at position p sees keys at positions <= p */
  int64_t window_left;  /* keys at positions >= p - window_left are visible; -1: open */
  int64_t window_right; /* keys at positions <= p + window_right are visible; -1: open */
  int64_t prefix_len;   /* keys at positions < prefix_len are visible whatever causal and window say; 0: off */
  int32_t has_scale;    /* 1: scale is given (0 and negative count as given); 0: scale = float32(1 / sqrt(qk_dim)) */
  float scale;          /* finite, |scale| <= 1e38 */
  float softcap;        /* 0: off, else 1e-6 ... 1e6: score = softcap * tanh(score / softcap) */
  int32_t has_q_offset; /* 1: q_offset is given; 0: kv_start + kv_len - q_len of the sequence (bottom-right) */
  int64_t q_offset;     /* position of query 0 on the key axis; 0 is top-left causal */
  int32_t mask_type;    /* LW_TYPE_NONE, LW_TYPE_BOOL, LW_TYPE_BITS */
  int32_t bias_type;    /* LW_TYPE_NONE, LW_TYPE_F32, LW_TYPE_F16, LW_TYPE_BF16 */
  int32_t alibi;        /* 1: alibi_slopes are given at run time */
  int32_t sinks;        /* 1: sinks are given at run time */
  /* Columns of the mask, which covers the last mask_tail keys of each sequence: column c is key kv_len - mask_tail + c of
   * the sequence's own length; keys before are not masked. 0: all kv_len. */
  int64_t mask_tail;
  int64_t block_mask_rows; /* > 0: a block-sparse mask is given at run time, of tiles of so many queries ... */
  int64_t block_mask_keys; /* ... x so many keys of a sequence; both or none */
  int64_t reserved[13];
} lw_problem;

static inline lw_problem lw_problem_default(void) {
#ifdef __cplusplus
  lw_problem p = {};
#else
  lw_problem p = {0};
#endif
  p.struct_size = sizeof p;
  p.batch = p.q_heads = p.kv_heads = 1;
  p.q_type = p.k_type = p.v_type = p.out_type = LW_TYPE_F32;
  p.window_left = p.window_right = -1;
  return p;
}

/* ---- Inputs and outputs of a run --------------------------------------------------------------------------------- */

/* Bits of lw_inputs.overrides: rules given for this run alone (they often differ from layer to layer). */
enum { LW_OVERRIDE_SCALE = 1, LW_OVERRIDE_SOFTCAP = 2, LW_OVERRIDE_WINDOW = 4, LW_OVERRIDE_Q_OFFSET = 8 };

enum {
  LW_CHECKS_FULL = 0,   /* lengths, offsets and visible page ids are checked before the first write */
  LW_CHECKS_TRUSTED = 1 /* the caller vouches for the contents of those arrays; sizes and pointers are still checked */
};

typedef struct lw_inputs {
  int64_t struct_size;
  int64_t batch;  /* this run's sizes, at most the problem's; -1: as the problem says */
  int64_t q_len;  /* of a dense q */
  int64_t kv_len; /* of a dense k and v */
  lw_const_tensor q, k, v;
  const int32_t* q_lengths;     /* [batch], 0 ... q_len; NULL: q_len for all */
  const int32_t* kv_lengths;    /* [batch], 0 ... kv_len; NULL: kv_len for all; required with pages */
  const int32_t* q_offsets;     /* [batch]; goes before the problem's q_offset; NULL: not given */
  const int32_t* kv_starts;     /* [batch], >= 0: position of K row 0 on the key axis; NULL: 0 for all */
  const int32_t* cu_seqlens_q;  /* [batch + 1] prefix offsets of a ragged q */
  const int32_t* cu_seqlens_kv; /* [batch + 1] */
  const int32_t* page_table;    /* page ids, [batch, pages of a sequence] */
  int64_t page_table_stride[2]; /* in elements */
  /* [batch, q_len] or ragged [total_q]: replaces q_offset + i for causal, window, ALiBi. Any int32: positions before
   * the first key or behind the last count like any other. */
  const int32_t* q_positions;
  int64_t q_positions_stride[2];
  lw_const_tensor mask;
  lw_const_tensor bias;
  const float* alibi_slopes; /* [q_heads], or [batch, q_heads] with a batch stride */
  int64_t alibi_batch_stride;
  const float* sinks; /* [q_heads]: one logit a head in the denominator, unscaled, uncapped */
  /* Continue from an earlier run's state over keys at positions 0 ... 4096n - 1, given to this run as kv_start = 4096n.
   * Row maxima and sums [batch, head, len], unnormalised output [batch, head, len, v_dim], all f32. */
  lw_const_tensor state_max, state_sum, state_acc;
  int32_t overrides;
  float scale;
  float softcap;
  int32_t checks;
  int64_t window_left, window_right;
  int64_t q_offset;
  /* Block-sparse mask in CSR form: keys of tile column c (key rows c * block_mask_keys ...) are visible to tile row r (queries
   * r * block_mask_rows ... of the sequence) where c is among block_indices[block_indptr[r] ... block_indptr[r + 1] - 1],
   * which ascend. block_indptr: [batch, q_heads, tile rows of q_len + 1], batch and head by stride (0 broadcasts). */
  const int32_t* block_indptr;
  const int32_t* block_indices;
  int64_t block_indptr_stride[2]; /* batch, head; in elements */
  int64_t reserved[12];
} lw_inputs;

static inline lw_inputs lw_inputs_default(void) {
#ifdef __cplusplus
  lw_inputs in = {};
#else
  lw_inputs in = {0};
#endif
  in.struct_size = sizeof in;
  in.batch = in.q_len = in.kv_len = -1;
  in.window_left = in.window_right = -1;
  return in;
}

/* What is not wanted stays NULL; at least one of out and the state must be given. Outputs overlap nothing: no input, no
 * other output, not the workspace. The state leaves the sink out, so that a run that continues from it takes it once; out
 * and lse of the same run have it. */
typedef struct lw_outputs {
  int64_t struct_size;
  lw_tensor out; /* [batch, q_heads, q_len, v_dim] */
  lw_tensor lse; /* f32 [batch, q_heads, q_len]: natural log-sum-exp; -inf where no key is visible */
  lw_tensor state_max, state_sum, state_acc; /* all three or none */
  int64_t reserved[16];
} lw_outputs;

static inline lw_outputs lw_outputs_default(void) {
#ifdef __cplusplus
  lw_outputs out = {};
#else
  lw_outputs out = {0};
#endif
  out.struct_size = sizeof out;
  return out;
}

/* ---- Executor ---------------------------------------------------------------------------------------------------- */

enum {
  /* OpenMP threads; the calling thread alone inside a caller's parallel region, in a forked child, for small problems and
   * in builds without OpenMP. */
  LW_EXECUTOR_OPENMP = 0,
  LW_EXECUTOR_CALLER = 1,  /* the calling thread alone */
  LW_EXECUTOR_CALLBACK = 2 /* parallel_for */
};

/* One share of a run's work. */
typedef void (*lw_share)(void* argument, int64_t index);

typedef struct lw_executor {
  int64_t struct_size;
  int32_t kind;
  int32_t threads; /* at most this many threads; 0: OpenMP's default, or 1 for a callback. OpenMP: 1024 at most, or a
                      thread a CPU where those are more */
  void* context;
  /* Calls share(argument, i) once for each i in 0 ... n - 1, in any order, on any threads, and returns when all are done. */
  void (*parallel_for)(void* context, int64_t n, lw_share share, void* argument);
  const volatile int32_t* should_stop; /* read between tasks; not 0: no further task is begun. NULL: never */
  int64_t reserved[8];
} lw_executor;

static inline lw_executor lw_executor_default(void) {
#ifdef __cplusplus
  lw_executor e = {};
#else
  lw_executor e = {0};
#endif
  e.struct_size = sizeof e;
  return e;
}

/* ---- Plan and run ------------------------------------------------------------------------------------------------ */

typedef struct lw_options {
  int64_t struct_size;
  const char* target; /* one of lw_target_name, any case; NULL: LANEWISE_TARGET, else the best this CPU runs */
  int64_t reserved[8];
} lw_options;

static inline lw_options lw_options_default(void) {
#ifdef __cplusplus
  lw_options o = {};
#else
  lw_options o = {0};
#endif
  o.struct_size = sizeof o;
  return o;
}

typedef struct lw_plan lw_plan;

/* Checks the problem and decides target, kernels, tiles and workspace. options may be NULL. On success *plan is to be
 * freed with lw_plan_free; on failure *plan is NULL. */
LW_API lw_status lw_plan_make(const lw_problem* problem, const lw_options* options, lw_plan** plan);
LW_API void lw_plan_free(lw_plan* plan); /* NULL is fine */

/* Bytes of workspace for a run on up to `threads` threads (values below 1 count as 1): exact, never smaller for more threads. */
LW_API int64_t lw_plan_workspace_size(const lw_plan* plan, int32_t threads);

/* Phases of a run for lw_run_part's callers, who separate them by a barrier. 2: tasks, then merges of what was cut over
 * keys. (lw_run needs no barrier: the last piece to arrive merges.) */
LW_API int32_t lw_plan_phases(const lw_plan* plan);

/* Runs the plan. workspace: 64-byte aligned, at least lw_plan_workspace_size(plan, threads) bytes for the threads to be
 * used (with less, fewer threads are used; less than the size for one thread is an error); it needs no set-up and keeps
 * nothing. executor may be NULL: OpenMP with its default number of threads. Allocates nothing. */
LW_API lw_status lw_run(const lw_plan* plan, const lw_inputs* inputs, const lw_outputs* outputs, void* workspace,
                        int64_t workspace_size, const lw_executor* executor);

/* Part `ith` of `nth` of a run's phase, for callers with a thread team of their own: each thread calls it with its own
 * ith and otherwise equal arguments, for phase 0 ... lw_plan_phases - 1, with the caller's barrier between phases.
 * workspace as for lw_run with nth threads. Any thread may do any part, in any order within a phase. */
LW_API lw_status lw_run_part(const lw_plan* plan, const lw_inputs* inputs, const lw_outputs* outputs, void* workspace,
                             int64_t workspace_size, int32_t phase, int32_t ith, int32_t nth);

/* Statistics of the attention weights of a run, from a second pass over its scores (about half of lw_run's time for the
 * same rows, since values are left out). weight(row, key) = min(1, exp(score - lse[row])), 0 for hidden keys: the
 * weights by which lw_run sums V. With a sink, or for the keys of one part of a continued run, a row's weights sum to
 * less than 1. Rows with lse = -inf have weights 0. A NaN score makes its weight NaN, a NaN lse all weights of the keys
 * that its row sees; with them that row's statistics and those keys' column sums, and nothing else.
 *
 * Outputs are f32, with NULL for what is not wanted; at least one must be given. They overlap nothing. Written are rows
 * of the range and keys below a sequence's own length, and nothing else. */
typedef struct lw_statistics {
  int64_t struct_size;
  /* Queries [row_begin, row_end) of each sequence count, of all of them what exists: below 0 counts from the end of the
   * sequence. -32 and LW_TO_END are its last 32 queries, 0 and LW_TO_END (the defaults) all. */
  int64_t row_begin, row_end;
  int32_t accumulate; /* 1: column_sums go on from what they hold, so that rows in several calls give one call's bits */
  int32_t reserved_int;
  lw_tensor weights;     /* [batch, q_heads, q_len, kv_len]; ragged q: [-, q_heads, total_q, kv_len] */
  lw_tensor column_sums; /* [batch, q_heads, kv_len], strides batch, head, key; ragged k: [-, q_heads, total_kv] */
  lw_tensor row_max;     /* [batch, q_heads, q_len], as lse: the largest weight */
  lw_tensor row_entropy; /* the same: -sum(weight * ln(weight)), in nats */
  int64_t reserved[16];
} lw_statistics;

#define LW_TO_END INT64_MAX

static inline lw_statistics lw_statistics_default(void) {
#ifdef __cplusplus
  lw_statistics s = {};
#else
  lw_statistics s = {0};
#endif
  s.struct_size = sizeof s;
  s.row_end = LW_TO_END;
  return s;
}

/* Statistics for the inputs of a run and its lse, f32 [batch, q_heads, q_len] as lw_run wrote it (the lse of all keys,
 * where the run is one part of them). v, states and sinks of the inputs are not used and may be missing. Scores are
 * canonical for any plan, so with native_bf16, whose scores differ a little, weights are within the sum of both bounds.
 * The same bits for any threads, layout, batch and instruction set with FMA, and for rows in one call or in several
 * (docs/NUMERICS.md, "Statistics of weights"). workspace and executor as for lw_run. Allocates nothing.
 * Column sums and row statistics together take two passes on several threads with fewer (sequence, kv head) pairs than
 * four a thread. */
LW_API lw_status lw_run_statistics(const lw_plan* plan, const lw_inputs* inputs, const lw_const_tensor* lse,
                                   const lw_statistics* statistics, void* workspace, int64_t workspace_size,
                                   const lw_executor* executor);

/* Part `ith` of `nth` of the same, for callers with a thread team of their own: each thread calls it with its own ith and
 * otherwise equal arguments. One phase: the caller's barrier follows before the results are read. workspace as for
 * lw_run with nth threads. Any thread may do any part, in any order. */
LW_API lw_status lw_run_statistics_part(const lw_plan* plan, const lw_inputs* inputs, const lw_const_tensor* lse,
                                        const lw_statistics* statistics, void* workspace, int64_t workspace_size,
                                        int32_t ith, int32_t nth);

/* Plan, workspace, run in one call. executor may be NULL. */
LW_API lw_status lw_attend(const lw_problem* problem, const lw_inputs* inputs, const lw_outputs* outputs,
                           const lw_executor* executor);

/* What a plan decided. Strings live as long as the library is loaded. */
typedef struct lw_explanation {
  int64_t struct_size;
  const char* target;     /* AVX3_ZEN4, AVX2, NEON ... */
  const char* kernel;     /* rows-in-lanes or keys-in-lanes */
  const char* arithmetic; /* canonical or native_bf16 */
  const char* note;       /* why not a better one; empty if there is none */
  int32_t lanes;          /* float32 lanes of a vector */
  int32_t tile_rows;      /* query rows of a full tile */
  int32_t tile_keys;      /* keys of a register tile */
  int32_t phases;
  int64_t row_tiles; /* row tiles of one (sequence, kv head) */
  /* Independent tasks of a run whose sequences are all as long as the plan allows: panels of row tiles, and where those
   * are cut over keys their pieces. Fewer where few rows of several kv heads, whose keys interleave, go together. */
  int64_t tasks;
  int64_t workspace; /* bytes for the given number of threads */
  int64_t reserved[8];
} lw_explanation;

/* Fills *explanation (struct_size set by the caller) for runs on `threads` threads. */
LW_API lw_status lw_plan_explain(const lw_plan* plan, int32_t threads, lw_explanation* explanation);

/* Why a plan is what it is, as lines "target: ...", "kernel: ...", "tile: ...", "split: ...", and a line "faster: ..." for
 * everything known that would make runs faster and what it needs. For people: the wording changes between versions.
 *   inputs   NULL, or a run's: their strides and addresses then count too
 *   text     written like snprintf does: at most `size` bytes with the final zero. NULL with size 0 is fine
 * Returns the length of the whole text without the zero; 0 where plan is NULL. */
LW_API int64_t lw_plan_reasons(const lw_plan* plan, const lw_inputs* inputs, int32_t threads, char* text, int64_t size);

/* ---- Partial results and caches ---------------------------------------------------------------------------------- */

/* Most parts of one lw_merge. */
#define LW_MAX_PARTS 256

/* Combines results over disjoint key ranges (shared prefixes, cascades, several devices): with m = max of the parts'
 * lse and w = exp(lse - m), out = sum(w * out) / sum(w), lse = m + log(sum(w)). Within the error bound of
 * docs/NUMERICS.md, whatever the tree of merges. A part with lse = -inf holds nothing, whatever its out; all such: out
 * 0, lse -inf. A NaN lse makes the row NaN.
 *   problem      batch, q_heads, q_len, v_dim, q_layout and total_q say the shapes; f32
 *   outs, lses   `count` tensors each, 1 ... LW_MAX_PARTS; shapes as lw_outputs.out and lse (ragged: total_q rows)
 *   merged       out, and lse if wanted; may be one of the parts itself, element for element (in place)
 * Runs on the calling thread, allocates nothing. A sink is left to the last step: see lw_inputs.sinks. */
LW_API lw_status lw_merge(const lw_problem* problem, const lw_const_tensor* outs, const lw_const_tensor* lses,
                          int32_t count, const lw_outputs* merged);

/* Writes new rows of K or V into a cache: row t of `rows` goes to slot slots[t] of every head; -1 skips the row.
 *   cache   [pages, heads, page_size, dim] by strides; slot s is token s % page_size of page s / page_size. A dense cache of one
 *           sequence is one page. Slots repeated in one call: the last one wins.
 *   rows    [-, heads, tokens, dim] by strides (stride[0] is not used), the same type
 * Copies bits: any type of LW_TYPE_F32, LW_TYPE_BF16, LW_TYPE_F16. All slots are checked before the first write. */
LW_API lw_status lw_append(const lw_tensor* cache, int64_t pages, int64_t page_size, int64_t heads, int64_t dim,
                           const lw_const_tensor* rows, int64_t tokens, const int32_t* slots);

/* ---- Conversions ------------------------------------------------------------------------------------------------- */

/* to[i] = from[i] for i < n, elements behind one another, between any two of LW_TYPE_F32, LW_TYPE_BF16 and LW_TYPE_F16.
 * Widening is exact; rounding is to nearest, ties to even, beyond the largest number to infinity, denormals kept: the same
 * bits on every CPU and in every floating-point mode of the caller. A NaN becomes the positive quiet NaN of to_type. `to`
 * overlaps nothing of `from`. */
LW_API lw_status lw_convert(const void* from, int32_t from_type, void* to, int32_t to_type, int64_t n);

/* ---- Helpers ------------------------------------------------------------------------------------------------------- */

/* The standard ALiBi slopes (Press, Smith, Lewis: Train Short, Test Long, 2021): for a power of two n of heads 2^(-8/n),
 * 2^(-16/n), ... 2^-8; for another number of heads those of the next lower power of two m, then every second one of 2m,
 * from the first on. slopes: [q_heads], q_heads >= 1. */
LW_API lw_status lw_alibi_slopes(int64_t q_heads, float* slopes);

/* ---- Targets ----------------------------------------------------------------------------------------------------- */

/* Instruction-set builds of the kernels in this library, best first. index in 0 ... lw_target_count() - 1, else NULL / 0. */
LW_API int32_t lw_target_count(void);
LW_API const char* lw_target_name(int32_t index);  /* "AVX2"; lives as long as the library is loaded */
LW_API int32_t lw_target_supported(int32_t index); /* 1: this CPU runs it */

#ifdef __cplusplus
}
#endif

#endif /* LANEWISE_LANEWISE_H_ */
