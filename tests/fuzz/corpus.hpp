// Problems by description (fuzz_problem.hpp): each that a fuzzer found wrong once, and some of each kind.
#pragma once

namespace lanewise::test {

inline constexpr const char* kCorpus[] = {
    "batch=1 kv_heads=1 group=1 q_len=1 kv_len=1 qk_dim=1 v_dim=1 threads=1 stream=9",
    "batch=2 kv_heads=2 group=3 q_len=9 kv_len=257 qk_dim=33 v_dim=20 q_type=2 kv_type=1 out_type=2 k_layout=3 "
    "v_layout=3 causal=1 mask=2 bias=3 softcap=1 alibi=1 sinks=1 threads=3 runner=3 stream=17",
    "batch=3 kv_heads=1 group=4 q_len=3 kv_len=513 qk_dim=16 v_dim=16 ragged_q=1 page_size=16 q_lengths=1 "
    "kv_lengths=1 capacity=1 causal=1 window=1 window_left=40 prefix=5 tiles=1 threads=7 runner=4 stream=25",
    "batch=1 kv_heads=1 group=1 q_len=2 kv_len=8200 qk_dim=4 v_dim=3 state=1 continued=1 window=3 window_left=5000 "
    "window_right=9 sinks=1 bias=1 threads=7 runner=2 stream=33",
    "batch=2 kv_heads=1 group=2 q_len=5 kv_len=40 qk_dim=8 v_dim=8 content=1 mask=3 positions=3 causal=1 threads=2 "
    "stream=41",
    "batch=2 kv_heads=2 group=1 q_len=12 kv_len=300 qk_dim=31 v_dim=7 q_type=1 kv_type=1 native=1 ragged_kv=1 "
    "kv_starts=1 positions=2 causal=1 tiles=1 threads=5 stream=49",
    "batch=1 kv_heads=1 group=1 q_len=3 kv_len=0 qk_dim=5 v_dim=5 sinks=1 threads=1 stream=57",
};

// Choices of check_wrong_problem that a fuzzer found wrong once.
inline constexpr const char kWrongProblems[][19] = {
    "\x3f\xa8\xa8\x9b\xa8\x0a\xa8\xa8\xa8\xa8\xa8\xa8\xa8\xa8\xa8\xa8\x0a\x0a",  // 2^62 rows in explain
};

}  // namespace lanewise::test
