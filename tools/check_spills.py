#!/usr/bin/env python3
"""Looks for spills in the kernels' hot loops: an accumulator that lives in memory costs a load and a store a step.

    tools/check_spills.py OBJECT_OR_ARCHIVE... [--verbose]

Disassembles (x86-64), takes every innermost loop with at least 8 packed multiply-adds, and prints a table of what they
have on the stack, by instruction-set target:
  spills     vectors written to the stack and read back: must be none in tiles
  vectors    other uses: constants that found no register, results for the caller
  scalars    pointers and counters, also those that compilers keep in vector registers meanwhile
Loops that round, convert, scale by powers of two, divide or test bits are elementwise (probs, merges, rules): they have
more constants than 16 registers hold, and a spill among them cannot be measured (bench_kernels: 6.1 cycles a vector of probs
with and without). They are counted, that is all.
Exit code 1: a tile spills, or a target has no tile at all (then the kernels changed in a way that this script does not
understand). 77: not x86-64 code. No function name matters but the target's namespace, N_AVX2 and the like.
"""

import argparse
import collections
import os
import re
import subprocess
import sys

LEAST_MULTIPLY_ADDS = 8
SKIPPED = 77

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
JUMP_TARGET = re.compile(r"([0-9a-f]+) <")
NAMESPACE = re.compile(r"\bN_([A-Z0-9_]+)::")
FMA = re.compile(r"^v(fn?m(add|sub)\d+p[sd]|dpbf16ps|pdpbusds?|pdpwssds?)$")
ELEMENTWISE = re.compile(r"v?(rndscaleps|roundps|cvtps2dq|cvtdq2ps|scalefps|divps|pcmpeqd|ptestn?md)$")
SCALAR_MOVE = re.compile(r"^v?mov[dq]$")

Instruction = collections.namedtuple("Instruction", "address name operands")
Loop = collections.namedtuple("Loop", "target kind function address length multiply_adds spills vectors scalars")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="object files or static libraries of the kernels")
    parser.add_argument("--objdump", default=os.environ.get("OBJDUMP", "objdump"))
    parser.add_argument("--verbose", action="store_true", help="also list every hot loop")
    return parser.parse_args()


def disassemble(objdump, file):
    command = [objdump, "--disassemble", "--demangle", "--no-show-raw-insn", "--wide", file]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def functions(text):
    """(name, instructions) of every function."""
    name, body = None, []
    for line in text.splitlines():
        header = FUNCTION.match(line)
        if header:
            if name is not None:
                yield name, body
            name, body = header.group(1), []
            continue
        match = INSTRUCTION.match(line)
        if match:
            body.append(Instruction(int(match.group(1), 16), match.group(2), match.group(3)))
    if name is not None:
        yield name, body


def innermost_loops(body):
    """Index ranges [first, last] that a jump at `last` closes and that hold no other such range."""
    index = {instruction.address: i for i, instruction in enumerate(body)}
    ranges = set()
    for i, instruction in enumerate(body):
        target = JUMP_TARGET.match(instruction.operands) if instruction.name.startswith("j") else None
        if target:
            first = index.get(int(target.group(1), 16))
            if first is not None and first <= i:
                ranges.add((first, i))
    # Of ranges with one begin (a loop closed in several places) the longest is the loop.
    loops = {}
    for first, last in ranges:
        loops[first] = max(last, loops.get(first, last))
    for first, last in sorted(loops.items()):
        if not any(first < other and other_last <= last for other, other_last in loops.items()):
            yield first, last


def multiply_adds(instructions):
    """Fused ones; where the target has none, multiplications that have an addition to go with."""
    fused = sum(1 for i in instructions if FMA.match(i.name))
    names = collections.Counter(i.name.lstrip("v") for i in instructions)
    return fused if fused else min(names["mulps"], names["addps"])


def kind_of(instructions):
    return "others" if any(ELEMENTWISE.match(i.name) for i in instructions) else "tiles"


def has_frame_pointer(body):
    return any(i.name in ("mov", "lea") and re.search(r"%rsp\)?,%rbp$", i.operands) for i in body[:24])


def stack_references(body, instructions):
    """(vectors written and read back, other uses of vectors, uses of anything else)"""
    register = "%r[sb]p" if has_frame_pointer(body) else "%rsp"
    stack = re.compile(r"-?(0x[0-9a-f]+)?\(" + register + r"[^)]*\)")
    written, read, others = collections.Counter(), collections.Counter(), 0
    for instruction in instructions:
        slot = stack.search(instruction.operands)
        if not slot:
            continue
        if SCALAR_MOVE.match(instruction.name) or not re.search(r"%[xyz]mm\d", instruction.operands):
            others += 1
        elif re.search(r"\)(\{[^}]*\})*$", instruction.operands):  # the last operand is the result
            written[slot.group()] += 1
        else:
            read[slot.group()] += 1
    spills = sum(count for slot, count in written.items() if slot in read)
    return spills, sum(written.values()) - spills + sum(read.values()), others


def hot_loops(text, seen_targets):
    for name, body in functions(text):
        namespace = NAMESPACE.search(name)
        if not namespace:
            continue
        seen_targets.add(namespace.group(1))
        for first, last in innermost_loops(body):
            instructions = body[first : last + 1]
            count = multiply_adds(instructions)
            if count >= LEAST_MULTIPLY_ADDS:
                references = stack_references(body, instructions)
                kind = kind_of(instructions)
                yield Loop(namespace.group(1), kind, name, body[first].address, len(instructions), count, *references)


def short(name):
    """The function without its parameters' types and the parts of its name that all have."""
    name = re.sub(r"lanewise::(N_[A-Z0-9_]+::)?|hwy::|static ", "", name)
    name = re.sub(r"^\w+ (?=\w+<)", "", name)
    return re.sub(r"\(.*", "", name)[:60]


def print_loops(loops):
    numbers = f"{'address':>8} {'length':>6} {'fma':>4} {'spills':>6} {'vector':>6} {'scalar':>6}"
    print(f"{'target':12} {'kind':6} {numbers}  function")
    for l in loops:
        numbers = f"{l.address:8x} {l.length:6} {l.multiply_adds:4} {l.spills:6} {l.vectors:6} {l.scalars:6}"
        print(f"{l.target:12} {l.kind:6} {numbers}  {short(l.function)}")


def main():
    arguments = parse_arguments()
    targets, loops = set(), []
    for file in arguments.files:
        text = disassemble(arguments.objdump, file)
        if "x86-64" not in text:
            print(f"{file}: not x86-64 code")
            return SKIPPED
        loops += hot_loops(text, targets)

    if arguments.verbose:
        print_loops(loops)
        print()
    print(f"{'target':12} {'kind':6} {'loops':>5} {'spills':>6} {'vectors':>7} {'scalars':>7}")
    for target, kind in sorted({(loop.target, loop.kind) for loop in loops}):
        own = [loop for loop in loops if (loop.target, loop.kind) == (target, kind)]
        sums = [sum(getattr(loop, column) for loop in own) for column in ("spills", "vectors", "scalars")]
        print(f"{target:12} {kind:6} {len(own):5} {sums[0]:6} {sums[1]:7} {sums[2]:7}")

    tiles = [loop for loop in loops if loop.kind == "tiles"]
    bad = [loop for loop in tiles if loop.spills > 0]
    silent = targets - {loop.target for loop in tiles}
    if bad:
        print("\nTiles that spill:")
        print_loops(bad)
    if silent or not targets:
        print(f"\nNo tile found for {', '.join(sorted(silent)) or 'any target'}")
    return 1 if bad or silent or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
