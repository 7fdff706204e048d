#!/usr/bin/env python3
"""Runs tiny cases of each bench program, by names that are not among the standard cases, and looks at the reports."""

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


def check_case(program, name):
    (case,) = report(program, name)
    assert case["name"] == name, f"the case has another name than asked for: {case['name']}"
    assert not case.get("error_occurred"), case.get("error_message")
    print(f"{name}: {case['pct_of_limit']:.2f} % of {case['limit']:.1f}, {case['gflops']:.2f} GFLOP/s")
    assert case["pct_of_limit"] > 0 and case["limit"] > 0 and case["gflops"] > 0 and case["gbps"] > 0


def main():
    attention, decode, kernels, rules = sys.argv[1:]
    target = first_target(attention)
    check_case(attention, f"attention/f32_f32/canonical/causal/q5_kv23/b1_h2_1/d24/bhld/{target}/t1")
    for sizes, layout, kernel in [
        ("q1_kv700/b2_h6_2/d24", "blhd", ""),
        ("q1_kv37/b2_h2_1/d40_16", "bhld_page5_vink", ".rows"),
        ("q19_kv50/b1+9_h2_1/d8", "blhd_page16", ".keys"),
        ("q3_kv300/b0+3_h2_1/d8", "bhld", ""),
    ]:
        check_case(decode, f"attention/f32_f32/canonical/causal/{sizes}/{layout}/{target}{kernel}/t2")

    for rule in ["causal.window3_-1", "mask50.bias", "causal.softcap.alibi.sinks"]:
        check_case(rules, f"attention/f32_f32/canonical/{rule}/q30_kv300/b1_h2_1/d24/bhld/{target}/t1")

    parts = report(kernels, "kernels/(scores/d32/v1|probs/v1)/")
    print(f"bench_kernels: {len(parts)} parts")
    assert parts and all(part.get("pct_of_peak", 1) > 0 for part in parts)
    assert any("pct_of_peak" in part for part in parts) and any("cycles_per_vector" in part for part in parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
