#!/usr/bin/env python3
"""Doxygen's input filter: the headers' plain comments as Doxygen's, line for line.

A comment before a declaration documents it, one behind it on the same line too. Section lines (---- Name ----) do not
belong to what follows. An indented `name   text` line becomes an item of a list.
"""

import re
import sys

ITEM = re.compile(r"^( \*|//)   (\S+(?:, \S+)*)\s{2,}(\S.*)$")


def c_comments(text):
    text = text.replace("/* lanewise:", "/** @file\n * lanewise:", 1)
    # A trailing comment has code before it on its line; it may go on over further lines.
    text = re.sub(r"(?m)^([^\n/]*[^\s/*][^\n/]*?)/\* (?!---)", r"\1/**< ", text)
    return re.sub(r"(?m)^(\s*)/\* (?!---)", r"\1/** ", text)


def cpp_comments(text):
    lines = text.split("\n")
    if lines[0].startswith("//"):
        lines[0] = "/// @file\n///" + lines[0][2:]
    out = []
    for line in lines:
        match = re.match(r"^(\s*)//(?!/)(.*)$", line)
        if match:
            line = f"{match[1]}///{match[2]}"
        elif not line.startswith("///"):
            line = re.sub(r"  // (.*)$", r"  ///< \1", line)
        out.append(line)
    return "\n".join(out)


def main():
    path = sys.argv[1]
    text = open(path, encoding="utf-8").read()
    if path.endswith((".h", ".hpp")):
        text = "\n".join(ITEM.sub(r"\1 - `\2` \3", line) for line in text.split("\n"))
        text = c_comments(text) if path.endswith(".h") else cpp_comments(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
