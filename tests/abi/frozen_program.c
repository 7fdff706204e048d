/* A program as it was compiled with lanewise 0.1, linked with today's library: its structs are as long as they were
 * then, its numbers mean what they meant then, and every function is still there and works. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include "lanewise_0_1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* Sizes as numbers: the frozen header cannot grow by accident either. */
#define FROZEN(type, size) typedef char type##_size[sizeof(void*) != 8 || sizeof(type) == size ? 1 : -1]
FROZEN(lw_problem, 320);
FROZEN(lw_inputs, 960);
FROZEN(lw_outputs, 536);
FROZEN(lw_executor, 104);
FROZEN(lw_options, 80);
FROZEN(lw_explanation, 144);
FROZEN(lw_status, 256);

enum { kLen = 5, kDim = 3 };

static float q[kLen * kDim], k[kLen * kDim], v[kLen * kDim], out[kLen * kDim], lse[kLen], again[kLen * kDim];
static lw_problem problem;
static lw_inputs inputs;
static lw_outputs outputs;

static lw_const_tensor tensor(const float* data, int64_t row) {
  lw_const_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.type = LW_TYPE_F32;
  t.stride[0] = t.stride[1] = kLen * row;
  t.stride[2] = row;
  t.stride[3] = 1;
  return t;
}

static lw_tensor result(float* data, int64_t row) {
  const lw_const_tensor t = tensor(data, row);
  lw_tensor r;
  memcpy(&r, &t, sizeof r);
  return r;
}

/* Structs end at the edge of what the library may read: behind each lies what is no zero. */
static void* in_dirt(const void* from, size_t size) {
  char* copy = malloc(size + 4096);
  CHECK(copy != NULL);
  memset(copy, 0xA5, size + 4096);
  memcpy(copy, from, size);
  return copy;
}

static void serial(void* context, int64_t n, lw_share share, void* argument) {
  int64_t i;
  for (i = 0; i < n; ++i) share(argument, i);
  ++*(int*)context;
}

static void run_in_every_way(void) {
  lw_problem* p = in_dirt(&problem, sizeof problem);
  lw_inputs* in = in_dirt(&inputs, sizeof inputs);
  lw_outputs* o = in_dirt(&outputs, sizeof outputs);
  lw_options options = lw_options_default();
  lw_options* opt = in_dirt(&options, sizeof options);
  lw_executor executor = lw_executor_default();
  lw_executor* e;
  lw_plan* plan = NULL;
  void* workspace = NULL;
  int64_t size;
  int32_t phase;
  int calls = 0;
  CHECK(lw_plan_make(p, opt, &plan).code == LW_OK && plan != NULL);
  size = lw_plan_workspace_size(plan, 2);
  CHECK(size > 0);
  CHECK(posix_memalign(&workspace, 64, (size_t)size) == 0);
  CHECK(lw_run(plan, in, o, workspace, size, NULL).code == LW_OK);
  memcpy(again, out, sizeof out);
  executor.kind = LW_EXECUTOR_CALLBACK;
  executor.threads = 2;
  executor.context = &calls;
  executor.parallel_for = serial;
  e = in_dirt(&executor, sizeof executor);
  memset(out, 0, sizeof out);
  CHECK(lw_run(plan, in, o, workspace, size, e).code == LW_OK);
  CHECK(memcmp(out, again, sizeof out) == 0);
  memset(out, 0, sizeof out);
  for (phase = 0; phase < lw_plan_phases(plan); ++phase) {
    CHECK(lw_run_part(plan, in, o, workspace, size, phase, 0, 2).code == LW_OK);
    CHECK(lw_run_part(plan, in, o, workspace, size, phase, 1, 2).code == LW_OK);
  }
  CHECK(memcmp(out, again, sizeof out) == 0);
  memset(out, 0, sizeof out);
  CHECK(lw_attend(p, in, o, e).code == LW_OK);
  CHECK(memcmp(out, again, sizeof out) == 0);
  lw_plan_free(plan);
  free(workspace);
  free(p);
  free(in);
  free(o);
  free(opt);
  free(e);
}

/* The library writes no further than the struct of its caller reaches. */
static void explain(void) {
  struct {
    lw_explanation explanation;
    unsigned char behind[256];
  } e;
  lw_plan* plan = NULL;
  size_t i;
  memset(&e, 0xA5, sizeof e);
  e.explanation.struct_size = sizeof e.explanation;
  CHECK(lw_plan_make(&problem, NULL, &plan).code == LW_OK);
  CHECK(lw_plan_explain(plan, 1, &e.explanation).code == LW_OK);
  CHECK(e.explanation.struct_size == sizeof e.explanation && e.explanation.lanes > 0);
  CHECK(e.explanation.target[0] != '\0' && e.explanation.kernel[0] != '\0' && e.explanation.note != NULL);
  for (i = 0; i < sizeof e.behind; ++i) CHECK(e.behind[i] == 0xA5);
  lw_plan_free(plan);
}

static void partials(void) {
  const lw_const_tensor outs[2] = {tensor(again, kDim), tensor(again, kDim)};
  const lw_const_tensor lses[2] = {tensor(lse, 1), tensor(lse, 1)};
  const int32_t slots[2] = {3, 1};
  const lw_tensor cache = result(out, kDim);
  const lw_const_tensor rows = tensor(v, kDim);
  CHECK(lw_merge(&problem, outs, lses, 2, &outputs).code == LW_OK);
  CHECK(lw_append(&cache, 1, kLen, 1, kDim, &rows, 2, slots).code == LW_OK);
  CHECK(memcmp(out + 3 * kDim, v, kDim * sizeof(float)) == 0 &&
        memcmp(out + kDim, v + kDim, kDim * sizeof(float)) == 0);
}

int main(void) {
  int i;
  for (i = 0; layout_frozen[i].field != NULL; ++i) {
    CHECK(strcmp(layout_frozen[i].field, layout_now[i].field) == 0);
    if (layout_frozen[i].offset != layout_now[i].offset || layout_frozen[i].size != layout_now[i].size) {
      fprintf(stderr, "%s has moved or changed\n", layout_frozen[i].field);
      return 1;
    }
  }
  CHECK(i > 90);
  CHECK(lw_version() >= LW_VERSION_MAJOR * 10000 + LW_VERSION_MINOR * 100 + LW_VERSION_PATCH);
  CHECK(lw_target_count() > 0 && lw_target_name(0) != NULL && lw_target_supported(-1) == 0);
  for (i = 0; i < kLen * kDim; ++i) {
    q[i] = (float)(i % 4) - 1.5f;
    k[i] = (float)(i % 3) - 1;
    v[i] = (float)i;
  }
  problem = lw_problem_default();
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1;
  inputs = lw_inputs_default();
  inputs.q = tensor(q, kDim);
  inputs.k = tensor(k, kDim);
  inputs.v = tensor(v, kDim);
  outputs = lw_outputs_default();
  outputs.out = result(out, kDim);
  outputs.lse = result(lse, 1);
  outputs.lse.stride[3] = 0;
  run_in_every_way();
  CHECK(out[0] == v[0]); /* the first row sees one key */
  explain();
  partials();
  return 0;
}
