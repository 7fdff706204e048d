#!/usr/bin/env python3
"""Runs a tiny case of each bench program, by a name that is not among the standard cases, and looks at the report."""

import json
import subprocess
import sys


def report(program, filter):
    command = [program, f"--benchmark_filter={filter}", "--benchmark_min_time=0.01", "--benchmark_format=json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["benchmarks"]


def first_target(program):
    """The target of the first standard case: the best one here."""
    done = subprocess.run([program, "--benchmark_list_tests"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[0].split("/")[8]


def main():
    attention, kernels = sys.argv[1:]
    name = f"attention/f32_f32/canonical/causal/q5_kv23/b1_h2_1/d24/bhld/{first_target(attention)}/t1"
    (case,) = report(attention, name)
    print(f"{case['name']}: {case['pct_of_limit']:.2f} % of {case['limit']:.1f}, {case['gflops']:.2f} GFLOP/s")
    assert case["name"] == name, "the case has another name than asked for"
    assert not case.get("error_occurred"), case.get("error_message")
    assert case["pct_of_limit"] > 0 and case["limit"] > 0 and case["gflops"] > 0 and case["gbps"] > 0

    parts = report(kernels, "kernels/(scores/d32/v1|probs/v1)/")
    print(f"bench_kernels: {len(parts)} parts")
    assert parts and all(part.get("pct_of_peak", 1) > 0 for part in parts)
    assert any("pct_of_peak" in part for part in parts) and any("cycles_per_vector" in part for part in parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
