/* An engine with its own team of threads, which walk through a model together and meet at barriers. Each thread calls
 * lw_run_part with its own number; lanewise starts no thread and waits for none.
 *
 *   cc main.c $(pkg-config --cflags --libs lanewise) -pthread -o team && ./team
 */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <lanewise/lanewise.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kThreads = 3, kLayers = 4, kHeads = 4, kLen = 200, kDim = 32, kElements = kHeads * kLen * kDim };

static float q[kElements], k[kElements], v[kElements], out[kLayers][kElements], alone[kElements];
static lw_plan* plan;
static lw_inputs inputs;
static void* workspace; /* of the whole team: one workspace serves one run at a time */
static int64_t workspace_size;
static pthread_barrier_t barrier;

static void set_strides(int64_t stride[4]) {
  stride[0] = kElements;
  stride[1] = kLen * kDim;
  stride[2] = kDim;
  stride[3] = 1;
}

static lw_outputs outputs_to(float* data) {
  lw_outputs outputs = lw_outputs_default();
  outputs.out.data = data;
  outputs.out.type = LW_TYPE_F32;
  set_strides(outputs.out.stride);
  return outputs;
}

/* What each thread of the engine does, layer by layer. */
static void* work(void* argument) {
  const int32_t ith = *(const int32_t*)argument;
  int layer, phase;
  for (layer = 0; layer < kLayers; ++layer) {
    const lw_outputs outputs = outputs_to(out[layer]);
    /* Every phase, with the engine's barrier after it: the next phase, and whatever follows, reads what this one wrote. */
    for (phase = 0; phase < lw_plan_phases(plan); ++phase) {
      const lw_status status = lw_run_part(plan, &inputs, &outputs, workspace, workspace_size, phase, ith, kThreads);
      if (status.code != LW_OK) {
        fprintf(stderr, "lw_run_part: %s\n", status.message);
        exit(1);
      }
      pthread_barrier_wait(&barrier);
    }
  }
  return NULL;
}

static lw_const_tensor input(const float* data) {
  lw_const_tensor tensor = {0};
  tensor.data = data;
  tensor.type = LW_TYPE_F32;
  set_strides(tensor.stride);
  return tensor;
}

int main(void) {
  lw_problem problem = lw_problem_default();
  const lw_outputs outputs = outputs_to(alone);
  lw_executor caller = lw_executor_default();
  pthread_t threads[kThreads];
  int32_t number[kThreads];
  lw_status status;
  int i;

  for (i = 0; i < kElements; ++i) {
    q[i] = (float)(i * 37 % 101) / 50 - 1;
    k[i] = (float)(i * 53 % 103) / 50 - 1;
    v[i] = (float)(i * 71 % 107) / 50 - 1;
  }
  problem.q_heads = problem.kv_heads = kHeads;
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1;
  inputs = lw_inputs_default();
  inputs.q = input(q);
  inputs.k = input(k);
  inputs.v = input(v);

  status = lw_plan_make(&problem, NULL, &plan);
  if (status.code != LW_OK) {
    fprintf(stderr, "lw_plan_make: %s\n", status.message);
    return 1;
  }
  workspace_size = lw_plan_workspace_size(plan, kThreads);
  if (posix_memalign(&workspace, 64, (size_t)workspace_size) != 0) return 1;

  pthread_barrier_init(&barrier, NULL, kThreads);
  for (i = 0; i < kThreads; ++i) {
    number[i] = i;
    if (pthread_create(&threads[i], NULL, work, &number[i]) != 0) return 1;
  }
  for (i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);

  /* The same on one thread: the same bits. */
  caller.kind = LW_EXECUTOR_CALLER;
  status = lw_run(plan, &inputs, &outputs, workspace, workspace_size, &caller);
  if (status.code != LW_OK) return 1;
  for (i = 0; i < kLayers; ++i) {
    if (memcmp(out[i], alone, sizeof alone) != 0) {
      fprintf(stderr, "layer %d differs from one thread's\n", i);
      return 1;
    }
  }
  printf("%d layers on %d threads of our own: the bits of one thread\n", kLayers, kThreads);
  pthread_barrier_destroy(&barrier);
  free(workspace);
  lw_plan_free(plan);
  return 0;
}
