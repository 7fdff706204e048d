#!/usr/bin/env python3
"""Breaks the library in one small way after another and looks whether the tests notice.

Works in a copy of the source tree, built for AVX2 and SSE2 alone. Each mutation of tools/mutations.json is applied,
what it touches is built again, and its test runs; where that passes, so do the other programs that the list names,
for at most 45 s in all. A mutation no program fails on is a survivor, and wants a test; one that applies no longer wants
the text of today's source. Takes minutes a mutation in src/kernels, seconds elsewhere: not part of CI.

    python3 tools/mutate.py --check                   every mutation still applies, to one place
    python3 tools/mutate.py /tmp/mutate               all of them, in this folder
    python3 tools/mutate.py /tmp/mutate --only 3,7-9  some, by number
    python3 tools/mutate.py /tmp/mutate --cheap       those outside src/kernels
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 45  # of running tests, a mutation
# Programs with options of their own: few random problems, always the same.
ARGUMENTS = {"fuzz": ["--problems", "5000", "--seconds", "20"]}
OPTIONS = [
    "-Dtests=enabled", "-Dtools=disabled", "-Dbench=disabled", "-Donednn=disabled", "-Ddefault_library=static",
    "-Doptimization=1", "-Ddisabled_targets=AVX3,AVX3_DL,AVX3_ZEN4,AVX3_SPR",
]


def numbers(text):
    chosen = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen.update(range(int(first), int(last or first) + 1))
    return chosen


def unapplied(mutations):
    """What keeps mutations from being applied, one line each."""
    problems = []
    for number, m in enumerate(mutations, 1):
        path = ROOT / m["file"]
        count = path.read_text().count(m["old"]) if path.exists() else 0
        if count != 1:
            problems.append(f"{number}: {m['old']!r} is {count} times in {m['file']}, not once")
        if m["old"] == m["new"]:
            problems.append(f"{number}: changes nothing")
    return problems


def build(folder, programs):
    command = ["ninja", "-C", str(folder / "build"), *(f"tests/test_{name}" for name in programs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode == 0, done.stdout


def dies(folder, program, seconds):
    """Whether a program fails. One that does not end is a failure too."""
    command = [str(folder / "build" / "tests" / f"test_{program}"), "--abort", *ARGUMENTS.get(program, [])]
    try:
        environment = {**os.environ, "MALLOC_PERTURB_": "165"}
        return subprocess.run(command, env=environment, timeout=seconds, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode != 0
    except subprocess.TimeoutExpired as late:
        # The time left over by others says nothing.
        return late.timeout >= SECONDS - 1


def prepare(folder, programs):
    source = folder / "source"
    if not source.exists():
        ignored = shutil.ignore_patterns(".git", "build*", "__pycache__")
        shutil.copytree(ROOT, source, ignore=ignored)
        subprocess.run(["meson", "setup", str(folder / "build"), str(source), *OPTIONS], check=True,
                       stdout=subprocess.DEVNULL)
    good, output = build(folder, programs)
    if not good:
        sys.exit(output)
    for program in programs:
        if dies(folder, program, 600):
            sys.exit(f"test_{program} fails without a mutation")


def try_one(folder, mutation, programs):
    """'killed by NAME', or what else became of it."""
    path = folder / "source" / mutation["file"]
    text = path.read_text()
    if text.count(mutation["old"]) != 1:
        return "DOES NOT APPLY"
    path.write_text(text.replace(mutation["old"], mutation["new"]))
    try:
        left = SECONDS
        for program in [mutation["test"]] + [name for name in programs if name != mutation["test"]]:
            good, output = build(folder, [program])
            if not good:
                return "does not compile: " + next((x for x in output.splitlines() if "error:" in x), "?")
            start = time.monotonic()
            if dies(folder, program, max(left, 1)):
                return f"killed by {program}"
            left -= time.monotonic() - start
        return "SURVIVED"
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="for the copy and its build; may be there already")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", type=numbers, default=set(), metavar="NUMBERS")
    parser.add_argument("--cheap", action="store_true", help="none in src/kernels, which take minutes to compile")
    arguments = parser.parse_args()
    mutations = json.loads((ROOT / "tools" / "mutations.json").read_text())
    if arguments.check:
        problems = unapplied(mutations)
        print("\n".join(problems) or f"{len(mutations)} mutations apply")
        return 1 if problems else 0
    if arguments.folder is None:
        parser.error("a folder is needed")

    programs = sorted({m["test"] for m in mutations})
    prepare(arguments.folder, programs)
    killed = tried = 0
    for number, mutation in enumerate(mutations, 1):
        if arguments.only and number not in arguments.only:
            continue
        if arguments.cheap and mutation["file"].startswith("src/kernels"):
            continue
        start = time.monotonic()
        result = try_one(arguments.folder, mutation, programs)
        tried += 1
        killed += result.startswith("killed")
        print(f"{number:3} {mutation['what']}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    print(f"{killed} of {tried} killed; {len(mutations) - tried} of the list not tried")
    return 0 if killed == tried else 1


if __name__ == "__main__":
    sys.exit(main())
