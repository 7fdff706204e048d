#!/usr/bin/env python3
"""Turns reports of bench_attention and bench_decode into a table and a roofline chart.

    build/bench/bench_attention --benchmark_format=json >attention.json
    build/bench/bench_decode --benchmark_format=json >decode.json
    tools/bench_report.py attention.json decode.json --table table.md --chart roofline.svg

The chart: GFLOP/s over operations for each byte of keys and values that is read, both axes logarithmic. Its roofs are the
best FMA peak and the best read bandwidth that the reports measured, each for the number of threads with the most cases;
cases with another number are in the table alone.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import sys
from xml.sax.saxutils import escape

NAME = re.compile(
    r"(?P<library>attention|onednn)/(?P<types>[^/]+)/(?P<arithmetic>[^/]+)/(?P<rule>[^/]+)/q(?P<q>\d+)_kv(?P<kv>\d+)"
    r"/b(?P<batch>[\d+]+)_h(?P<q_heads>\d+)_(?P<kv_heads>\d+)/d(?P<dim>[\d_]+)/(?P<layout>[^/]+)"
    r"/(?P<target>[^/]+)/t(?P<threads>\d+)$"
)

Case = collections.namedtuple("Case", "name part gflops gbps limit share kernel by_memory threads")


def read_cases(paths):
    """One Case a benchmark; what failed or is no whole call (bench_kernels) is left out, with a word on stderr."""
    cases = []
    for path in paths:
        for entry in json.loads(pathlib.Path(path).read_text())["benchmarks"]:
            match = NAME.match(entry["name"])
            if entry.get("error_occurred") or not match or "gflops" not in entry:
                print(f"left out: {entry['name']} {entry.get('error_message', '')}", file=sys.stderr)
                continue
            label = entry.get("label", "")
            kernel = "oneDNN" if match["library"] == "onednn" else (label.split() + ["", ""])[1]
            cases.append(
                Case(
                    name=entry["name"],
                    part=match.groupdict(),
                    gflops=entry["gflops"],
                    gbps=entry["gbps"],
                    limit=entry["limit"],
                    share=entry["pct_of_limit"],
                    kernel=kernel,
                    by_memory=label.endswith("reading"),
                    threads=int(match["threads"]),
                )
            )
    return cases


def table(cases):
    lines = ["| case | GFLOP/s | GB/s | limit | share |", "| --- | --- | --- | --- | --- |"]
    for c in cases:
        unit = "GB/s, reading" if c.by_memory else "GFLOP/s, arithmetic"
        lines.append(f"| `{c.name}` | {c.gflops:.1f} | {c.gbps:.1f} | {c.limit:.1f} {unit} | {c.share:.0f} % |")
    return "\n".join(lines) + "\n"


# --- Chart --------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 880, 600
LEFT, RIGHT, TOP, BOTTOM = 74, 856, 92, 536

# Colours that differ in lightness too, and a shape each: also told apart without colour.
STYLE = """text{font:13px sans-serif}
.paper{fill:#fff}.ink{fill:#1c1c1c}.small{fill:#1c1c1c;font-size:11px}.title{fill:#1c1c1c;font-size:16px;font-weight:bold}
.grid{stroke:#ddd;fill:none}.frame{stroke:#555;fill:none}.roof{stroke:#1c1c1c;stroke-width:2;fill:none}
.s0{fill:#0072b2}.s1{fill:#d55e00}.s2{fill:#00795a}.s3{fill:#a3467e}
@media (prefers-color-scheme:dark){
.paper{fill:#16191d}.ink,.small,.title{fill:#ececec}.grid{stroke:#3a3f45}.frame{stroke:#aaa}.roof{stroke:#ececec}
.s0{fill:#56b4e9}.s1{fill:#f0a030}.s2{fill:#2fc49a}.s3{fill:#e39bc4}
}"""


def ticks(low, high):
    """1, 2, 5 times powers of ten within the range."""
    return [m * 10.0**e for e in range(-3, 6) for m in (1, 2, 5) if low <= m * 10.0**e <= high]


def marker(kind, x, y):
    shapes = {
        0: f'<circle class="s0" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
        1: f'<path class="s1" d="M{x - 4.2:.1f} {y - 4.2:.1f}h8.4v8.4h-8.4z"/>',
        2: f'<path class="s2" d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5-5.5z"/>',
        3: f'<path class="s3" d="M{x:.1f} {y - 5:.1f}l5 9h-10z"/>',
    }
    return shapes[kind]


class Axes:
    def __init__(self, xs, ys):
        self.low_x, self.high_x = min(xs) / 1.6, max(xs) * 7  # room for labels at the right
        self.low_y, self.high_y = min(ys) / 1.5, max(ys) * 1.35

    def x(self, value):
        return LEFT + (RIGHT - LEFT) * math.log(value / self.low_x) / math.log(self.high_x / self.low_x)

    def y(self, value):
        return BOTTOM - (BOTTOM - TOP) * math.log(value / self.low_y) / math.log(self.high_y / self.low_y)


def grid(axes):
    out = []
    for value in ticks(axes.low_x, axes.high_x):
        x = axes.x(value)
        out.append(f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}"/>')
        out.append(f'<text class="small" x="{x:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{value:g}</text>')
    for value in ticks(axes.low_y, axes.high_y):
        y = axes.y(value)
        out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        out.append(f'<text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<path class="frame" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>')
    middle = (LEFT + RIGHT) / 2
    out.append(
        f'<text class="ink" x="{middle}" y="{BOTTOM + 42}" text-anchor="middle">'
        "operations for each byte of keys and values</text>"
    )
    out.append(
        f'<text class="ink" x="22" y="{(TOP + BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 22 {(TOP + BOTTOM) / 2})">GFLOP/s</text>'
    )
    return out


def along(x0, y0, x1, y1, half):
    """Boxes that cover a line, for labels to keep clear of."""
    steps = max(1, int(math.hypot(x1 - x0, y1 - y0) / half))
    for i in range(steps + 1):
        x, y = x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps
        yield (x - half, y - half, x + half, y + half)


def roofs(axes, peak, bandwidth):
    """The reading roof up to the ridge, the arithmetic roof behind it; and the boxes that lines and texts fill."""
    ridge = min(max(peak / bandwidth, axes.low_x), axes.high_x)
    left = max(axes.low_x, axes.low_y / bandwidth)
    x0, y0, x1, y1 = axes.x(left), axes.y(left * bandwidth), axes.x(ridge), axes.y(peak)
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    text = f"read bandwidth {bandwidth:.1f} GB/s"
    boxes = [*along(x0, y0, x1, y1, 3), *along(x1, y1, RIGHT, y1, 3)]
    # The text lies 14 pixels above the line, turned with it.
    turn = math.radians(angle)
    across, half = 7.0 * len(text) / 2, 8
    middle_x, middle_y = x + 14 * math.sin(turn), y - 14 * math.cos(turn)
    begin = (middle_x - across * math.cos(turn), middle_y - across * math.sin(turn))
    end = (middle_x + across * math.cos(turn), middle_y + across * math.sin(turn))
    boxes += [*along(*begin, *end, half), (RIGHT - 180, y1 - 24, RIGHT, y1)]
    return [
        f'<path class="roof" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}H{RIGHT}"/>',
        f'<text class="ink" x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle" '
        f'transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{text}</text>',
        f'<text class="ink" x="{RIGHT - 4}" y="{y1 - 10:.1f}" text-anchor="end">FMA peak {peak:.1f} GFLOP/s</text>',
    ], boxes


def short_label(c):
    p = c.part
    what = f"L={p['q']}" if p["q"] == p["kv"] else f"q={p['q']}"
    if c.kernel == "keys-in-lanes":
        rows = int(p["q"]) * int(p["q_heads"]) // int(p["kv_heads"])
        what = f"{rows} row" + ("s" if rows > 1 else "")
    rule = " causal" if p["rule"] == "causal" and p["q"] == p["kv"] else ""
    return what + rule


class Labels:
    """Puts each text where nothing is yet; one without a place is left to the table."""

    def __init__(self, points, boxes):
        self.boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in points] + boxes

    def place(self, x, y, text):
        width = 6.4 * len(text)
        for anchor, dx, dy in [("start", 9, 4), ("end", -9, 4), ("middle", 0, 18), ("middle", 0, -10), ("start", 8, 16), ("end", -8, 16), ("end", -8, -8)]:
            left = x + dx - {"start": 0, "middle": width / 2, "end": width}[anchor]
            box = (left, y + dy - 10, left + width, y + dy + 3)
            inside = box[0] > LEFT + 2 and box[2] < RIGHT and box[3] < BOTTOM and box[1] > TOP
            if inside and not any(
                box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in self.boxes
            ):
                self.boxes.append(box)
                return (
                    f'<text class="small" x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
                )
        return ""


def chart(cases):
    threads = collections.Counter(c.threads for c in cases).most_common(1)[0][0]
    cases = [c for c in cases if c.threads == threads]
    target = collections.Counter(c.part["target"] for c in cases if c.kernel != "oneDNN").most_common(1)[0][0]
    peak = max((c.limit for c in cases if not c.by_memory), default=0)
    bandwidth = max((c.limit for c in cases if c.by_memory), default=0)
    if not peak or not bandwidth:
        sys.exit("a roofline needs a case that arithmetic limits and one that reading limits")

    def kind(c):
        if c.kernel == "oneDNN":
            return 2
        return (0 if c.kernel == "keys-in-lanes" else 1) if c.part["target"] == target else 3

    others = sorted({c.part["target"] for c in cases} - {target, "onednn"})
    names = {
        0: f"keys-in-lanes, {target}",
        1: f"rows-in-lanes, {target}",
        2: "oneDNN, matmul softmax matmul",
        3: "rows-in-lanes, " + ", ".join(others),
    }
    intensity = [c.gflops / c.gbps for c in cases]
    axes = Axes(intensity + [peak / bandwidth], [c.gflops for c in cases] + [peak])
    plural = "thread" if threads == 1 else "threads"
    title = f"Attention against this machine's roofs, float32, {threads} {plural}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{title}</title>\n<style>\n{STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{title}</text>',
    ]
    x, y = LEFT + 6, 54
    for k in sorted({kind(c) for c in cases}):
        width = 40 + 7.0 * len(names[k])
        if x + width > RIGHT + 24:
            x, y = LEFT + 6, y + 22
        out += [marker(k, x, y), f'<text class="ink" x="{x + 11}" y="{y + 4.5}">{escape(names[k])}</text>']
        x += width
    roof, boxes = roofs(axes, peak, bandwidth)
    out += grid(axes) + roof
    points = [(axes.x(i), axes.y(c.gflops)) for i, c in zip(intensity, cases)]
    labels = Labels(points, boxes)
    for (px, py), c in zip(points, cases):
        hint = f"{c.name}: {c.gflops:.1f} GFLOP/s, {c.share:.0f} % of its limit"
        out.append(f"<g><title>{escape(hint)}</title>{marker(kind(c), px, py)}</g>")
    # Cases that differ in the head dimension alone lie together, and share a label.
    groups = collections.defaultdict(list)
    for point, c in zip(points, cases):
        groups[c.part["target"], short_label(c)].append((point, c.part["dim"]))
    for (_, text), members in groups.items():
        dims = sorted({dim for _, dim in members}, key=lambda dim: [int(d) for d in dim.split("_")])
        (px, py) = sorted(point for point, _ in members)[len(members) // 2]
        out.append(labels.place(px, py, f"{text}, d={'/'.join(dims)}"))
    return "\n".join(line for line in out if line) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", help="JSON, as --benchmark_format=json writes it")
    parser.add_argument("--table", metavar="FILE.md", help="where the table goes; without --table and --chart: printed")
    parser.add_argument("--chart", metavar="FILE.svg", help="where the roofline chart goes")
    arguments = parser.parse_args()
    cases = read_cases(arguments.reports)
    if not cases:
        sys.exit("no case in these reports")
    if arguments.table:
        pathlib.Path(arguments.table).write_text(table(cases))
    if arguments.chart:
        pathlib.Path(arguments.chart).write_text(chart(cases))
    if not arguments.table and not arguments.chart:
        print(table(cases), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
