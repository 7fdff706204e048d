#!/usr/bin/env python3
"""tools/bench_report.py: table and chart from a report as the bench programs write it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench_report.py"


def case(name, gflops, gbps, limit, label):
    share = 100 * (gbps if label.endswith("reading") else gflops) / limit
    return {"name": name, "gflops": gflops, "gbps": gbps, "limit": limit, "pct_of_limit": share, "label": label}


PREFILL = "attention/f32_f32/canonical/{}/q{n}_kv{n}/b1_h1_1/d{d}/bhld/{t}/t1"
DECODE = "attention/f32_f32/canonical/causal/q1_kv32768/b1_h{h}_8/d128/bhld/AVX2/t1"
ROWS, KEYS = "AVX2 rows-in-lanes 24x4, limit: arithmetic", "AVX2 keys-in-lanes 24x4, limit: reading"
REPORT = {
    "context": {"host_name": "must not be shown"},
    "benchmarks": [
        case(PREFILL.format("full", n=4096, d=64, t="AVX2"), 100, 0.05, 120, ROWS),
        case(PREFILL.format("full", n=4096, d=128, t="AVX2"), 105, 0.05, 120, ROWS),
        case(PREFILL.format("causal", n=128, d=64, t="AVX2"), 70, 2, 120, ROWS),
        case(PREFILL.format("full", n=2048, d=64, t="SSE2"), 33, 0.03, 60, ROWS.replace("AVX2", "SSE2")),
        case(DECODE.format(h=8), 10, 20, 22, KEYS),
        case(DECODE.format(h=64), 80, 20, 22, KEYS),
        case("attention/f32_f32/canonical/causal/q1_kv32768/b1_h8_8/d128/bhld/AVX2/t2", 19, 38, 44, KEYS),
        case("onednn/f32_f32/matmul/full/q4096_kv4096/b1_h1_1/d64/bhld/onednn/t1", 78, 0.04, 120, "oneDNN x, limit: arithmetic"),
        {"name": "kernels/scores/d32/v1", "pct_of_peak": 90},
        {"name": PREFILL.format("full", n=8, d=8, t="NEON"), "error_occurred": True, "error_message": "not here"},
    ],
}


def run(folder, report, *arguments):
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return subprocess.run([sys.executable, TOOL, path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        done = run(folder, REPORT)
        assert done.returncode == 0, done.stderr
        rows = done.stdout.splitlines()
        assert len(rows) == 2 + 8 and all(row.count("|") == 6 for row in rows), done.stdout
        assert "| 100.0 | 0.1 | 120.0 GFLOP/s, arithmetic | 83 % |" in done.stdout, done.stdout
        assert "left out: kernels/" in done.stderr and "not here" in done.stderr, done.stderr

        chart = folder / "chart.svg"
        done = run(folder, REPORT, "--chart", str(chart), "--table", str(folder / "table.md"))
        assert done.returncode == 0 and done.stdout == "", done.stderr
        text = chart.read_text()
        xml.fromstring(text)
        for part in ["prefers-color-scheme:dark", "FMA peak 120.0 GFLOP/s", "read bandwidth 22.0 GB/s", "1 row, d=128",
                     "8 rows, d=128", "L=4096, d=64/128", "L=128 causal, d=64", "1 thread<"]:
            assert part in text, part
        assert text.count("<g><title>") == 7, "a point a case of one thread"
        assert "must not be shown" not in text + (folder / "table.md").read_text()

        only_prefill = {"benchmarks": REPORT["benchmarks"][:3]}
        assert run(folder, only_prefill, "--chart", str(chart)).returncode == 1
        assert run(folder, {"benchmarks": []}).returncode == 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
