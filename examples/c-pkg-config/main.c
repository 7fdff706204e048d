/* The smallest whole use from C: causal attention of 3 queries over 3 keys with lw_attend, which plans, takes memory
 * and runs in one call. For many runs of one shape see ../thread-team, which plans once and allocates nothing after.
 *
 *   cc main.c $(pkg-config --cflags --libs lanewise) -o attend && ./attend
 */
#include <lanewise/lanewise.h>
#include <stdio.h>

enum { kHeads = 2, kLen = 3, kDim = 4 };

/* A row-major [batch, heads, len, dim] tensor. Any other layout is other strides, in elements. */
static lw_const_tensor input(const float* data) {
  lw_const_tensor tensor = {0};
  tensor.data = data;
  tensor.type = LW_TYPE_F32;
  tensor.stride[0] = kHeads * kLen * kDim;
  tensor.stride[1] = kLen * kDim;
  tensor.stride[2] = kDim;
  tensor.stride[3] = 1;
  return tensor;
}

int main(void) {
  float q[kHeads * kLen * kDim], k[kHeads * kLen * kDim], v[kHeads * kLen * kDim], out[kHeads * kLen * kDim];
  for (int i = 0; i < kHeads * kLen * kDim; ++i) {
    q[i] = (float)(i % 5) - 2;
    k[i] = (float)(i % 7) - 3;
    v[i] = (float)i;
  }

  lw_problem problem = lw_problem_default();   /* always: sets the struct's size and every default */
  problem.q_heads = problem.kv_heads = kHeads; /* kv_heads may be fewer: query heads then share them in groups */
  problem.q_len = problem.kv_len = kLen;
  problem.qk_dim = problem.v_dim = kDim;
  problem.causal = 1; /* the last query is at the last key, unless q_offset says otherwise */

  lw_inputs inputs = lw_inputs_default();
  inputs.q = input(q);
  inputs.k = input(k);
  inputs.v = input(v);
  lw_outputs outputs = lw_outputs_default();
  outputs.out.data = out;
  outputs.out.type = LW_TYPE_F32;
  for (int i = 0; i < 4; ++i) outputs.out.stride[i] = inputs.v.stride[i];

  const lw_status status = lw_attend(&problem, &inputs, &outputs, NULL);
  if (status.code != LW_OK) {
    fprintf(stderr, "lw_attend: %s\n", status.message); /* names the argument, its value and what is allowed */
    return 1;
  }

  /* The first query of a head sees one key: its value comes out as it went in. */
  for (int i = 0; i < kHeads * kLen; ++i) {
    printf("head %d query %d: %7.3f %7.3f %7.3f %7.3f\n", i / kLen, i % kLen, out[4 * i], out[4 * i + 1],
           out[4 * i + 2], out[4 * i + 3]);
  }
  return out[0] == v[0] && out[kLen * kDim] == v[kLen * kDim] ? 0 : 1;
}
