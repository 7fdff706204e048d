#!/usr/bin/env python3
"""Speed of two builds of the library, case by case: two compilers, or before and after a change.

    tools/compare_builds.py BUILD_A BUILD_B [--rounds 5] [--case NAME]...

Runs each case with bench_attention of one build and of the other, in turns, and compares the fastest run of each, so that
what disturbs the machine disturbs both. Prints GFLOP/s of both and B's as a ratio of A's. Cases: see bench/attention_case.hpp.
To compare compilers:

    CC=gcc CXX=g++ meson setup build-gcc && ninja -C build-gcc bench/bench_attention
    CC=clang CXX=clang++ meson setup build-clang && ninja -C build-clang bench/bench_attention
    tools/compare_builds.py build-gcc build-clang
"""

import argparse
import json
import pathlib
import subprocess
import sys

# Long and short rows, causal, both vector widths, decode. BEST becomes the best target of this machine.
CASES = [
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d128/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d64/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d32/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d80/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d256/bhld/BEST/t1",
    "attention/f32_f32/canonical/causal/q2048_kv2048/b1_h1_1/d128/bhld/BEST/t1",
    "attention/f32_f32/canonical/causal/q2048_kv2048/b1_h1_1/d64/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q128_kv128/b1_h12_12/d64/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q197_kv197/b1_h12_12/d64/bhld/BEST/t1",
    "attention/f32_f32/canonical/full/q1024_kv1024/b1_h4_4/d128/bhld_vt/BEST/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d128/bhld/AVX2/t1",
    "attention/f32_f32/canonical/full/q2048_kv2048/b1_h1_1/d64/bhld/AVX2/t1",
    "attention/f32_f32/canonical/causal/q1_kv4096/b1_h8_8/d128/bhld/BEST/t1",
]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs=2, type=pathlib.Path, metavar="BUILD", help="build folders with bench_attention")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each case with each build (default 5)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of one run of a case (default 0.3)")
    parser.add_argument("--case", action="append", help="a case instead of the usual ones; may be given several times")
    parser.add_argument("--at-least", type=float, help="exit code 1 if the geometric mean of the ratios is below this")
    return parser.parse_args()


def bench_of(build):
    return str(build / "bench" / "bench_attention")


def best_target(build):
    listed = subprocess.run([bench_of(build), "--benchmark_list_tests"], stdout=subprocess.PIPE, text=True, check=True)
    return listed.stdout.split()[0].split("/")[8]


def gflops(build, case, seconds):
    """Of the fastest iteration; None where the case cannot run."""
    command = [bench_of(build), f"--benchmark_filter={case}", f"--benchmark_min_time={seconds}"]
    command += ["--benchmark_format=json", "--clock=thread"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    (result,) = json.loads(done.stdout)["benchmarks"]
    return None if result.get("error_occurred") else result["gflops"]


def main():
    arguments = parse_arguments()
    a, b = arguments.builds
    best = best_target(a)
    cases = [case.replace("/BEST/", f"/{best}/") for case in arguments.case or CASES]
    width = max(len(case) for case in cases)
    print(f"A: {a}\nB: {b}\n\n{'case':{width}} {'A':>8} {'B':>8} {'B/A':>6}  (GFLOP/s)")
    product, count = 1.0, 0
    for case in cases:
        rates = {a: [], b: []}
        for _ in range(arguments.rounds):
            for build in (a, b):
                rates[build].append(gflops(build, case, arguments.seconds))
        if None in rates[a] + rates[b]:
            print(f"{case:{width}} cannot run here")
            continue
        rate_a, rate_b = max(rates[a]), max(rates[b])
        product, count = product * rate_b / rate_a, count + 1
        print(f"{case:{width}} {rate_a:8.2f} {rate_b:8.2f} {rate_b / rate_a:6.3f}", flush=True)
    if count == 0:
        return 1
    mean = product ** (1 / count)
    print(f"{'geometric mean':{width}} {'':8} {'':8} {mean:6.3f}")
    return 1 if arguments.at_least and mean < arguments.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
