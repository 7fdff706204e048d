#!/usr/bin/env python3
"""Renews the tables and pictures of docs/WHY-SQRT-DK.md: tools/update_lessons.py build/tools/lanewise

A line <!-- lanewise ARGUMENTS --> is followed by a block of that command's output; pictures go where the arguments say.
Run from anywhere; paths in the arguments are relative to the repository. The test lessons_docs compares without writing.
"""
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "WHY-SQRT-DK.md"


def main():
    command = str(pathlib.Path(sys.argv[1]).resolve())
    (ROOT / "docs" / "pictures").mkdir(exist_ok=True)

    def renewed(match):
        arguments = shlex.split(match.group(1))
        result = subprocess.run([command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(result.stderr)
        return f"<!-- lanewise {match.group(1)} -->\n```text\n{result.stdout}```\n"

    text = DOCUMENT.read_text()
    text = re.sub(r"<!-- lanewise ([^\n]*) -->\n```text\n.*?```\n", renewed, text, flags=re.DOTALL)
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
