/* What an engine does with lanewise, as small as it gets: one query that sees one key gets that key's value. */
#include <lanewise/lanewise.h>
#include <stdio.h>

int main(void) {
  const float q[4] = {1, 2, 3, 4}, k[4] = {0.5f, 0, -1, 2}, v[4] = {7, -8, 9, 0.25f};
  float result[4] = {0};
  lw_problem problem = lw_problem_default();
  problem.q_len = problem.kv_len = 1;
  problem.qk_dim = problem.v_dim = 4;

  lw_inputs inputs = lw_inputs_default();
  const void* data[3] = {q, k, v};
  lw_const_tensor* views[3] = {&inputs.q, &inputs.k, &inputs.v};
  for (int i = 0; i < 3; i++) {
    views[i]->data = data[i];
    views[i]->type = LW_TYPE_F32;
    views[i]->stride[3] = 1;
  }
  lw_outputs outputs = lw_outputs_default();
  outputs.out.data = result;
  outputs.out.type = LW_TYPE_F32;
  outputs.out.stride[3] = 1;

  const lw_status status = lw_attend(&problem, &inputs, &outputs, NULL);
  if (status.code != LW_OK) {
    printf("%s\n", status.message);
    return 1;
  }
  for (int i = 0; i < 4; i++) {
    if (result[i] != v[i]) {
      printf("out[%d] is %g, not %g\n", i, result[i], v[i]);
      return 1;
    }
  }
  return 0;
}
