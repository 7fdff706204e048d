/* The C interface from C99, through the shared library: compiles without C++, gives an answer known in closed form. */
#include <lanewise/lanewise.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char* what, lw_status status) {
  fprintf(stderr, "%s: status %d, %s\n", what, (int)status.code, status.message);
  return 1;
}

int main(void) {
  /* Scores 0: each row is the mean of the values it sees. */
  float q[3] = {0, 0, 0}, k[3] = {1, 2, 3}, v[3] = {1, 2, 6}, out[3], lse[3];
  const float mean[3] = {1, 1.5f, 3};
  lw_problem problem = lw_problem_default();
  lw_inputs inputs = lw_inputs_default();
  lw_outputs outputs = lw_outputs_default();
  lw_plan* plan = NULL;
  void* workspace = NULL;
  lw_status status;
  int64_t size;
  int i;
  problem.q_len = problem.kv_len = 3;
  problem.qk_dim = problem.v_dim = 1;
  problem.causal = 1;
  inputs.q.data = q;
  inputs.k.data = k;
  inputs.v.data = v;
  outputs.out.data = out;
  outputs.lse.data = lse;
  inputs.q.type = inputs.k.type = inputs.v.type = outputs.out.type = outputs.lse.type = LW_TYPE_F32;
  inputs.q.stride[2] = inputs.k.stride[2] = inputs.v.stride[2] = outputs.out.stride[2] = outputs.lse.stride[2] = 1;

  status = lw_plan_make(&problem, NULL, &plan);
  if (status.code != LW_OK) return failed("lw_plan_make", status);
  size = lw_plan_workspace_size(plan, 1);
  workspace = malloc((size_t)size + 64);
  status = lw_run(plan, &inputs, &outputs, (char*)workspace + (64 - (size_t)workspace % 64), size, NULL);
  if (status.code != LW_OK) return failed("lw_run", status);
  lw_plan_free(plan);
  free(workspace);
  for (i = 0; i < 3; ++i) {
    if (fabs(out[i] - mean[i]) > 1e-6 || fabs(lse[i] - log(i + 1.0)) > 1e-6) {
      fprintf(stderr, "row %d: out %g, lse %g\n", i, (double)out[i], (double)lse[i]);
      return 1;
    }
  }
  problem.qk_dim = 0;
  status = lw_attend(&problem, &inputs, &outputs, NULL);
  return status.code == LW_INVALID_ARGUMENT ? 0 : failed("lw_attend with qk_dim 0", status);
}
