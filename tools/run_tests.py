#!/usr/bin/env python3
"""Runs every test of a build folder and adds up the test cases.

Takes the tests from Meson. A Catch2 program counts with its test cases, as its JSON report states them, and a
missing or unfinished report is a failure; every other test (scripts, checks) counts as one case: exit code 0 passes,
77 skips. The last line printed is `N passed, N failed`.

Lines of a passing test that start with "target " are repeated here; everything else it prints goes to
BUILD/test-reports/NAME.log. A failing test's output is printed whole.
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

SKIPPED = 77  # the exit code Meson, too, takes for a skipped test


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder, already built")
    parser.add_argument("--tag", help="only Catch2 test cases with this tag, such as '[hash]'; at least one must exist")
    parser.add_argument("--checks", type=pathlib.Path, help="folder of executables, each one case, given the build folder")
    parser.add_argument("--wrapper", default="", help="command that runs the programs of a cross build")
    parser.add_argument("--timeout-multiplier", type=float, default=1, help="for emulators and sanitizers")
    parser.add_argument("--totals", type=pathlib.Path, help="write 'passed failed skipped' to this file")
    return parser.parse_args()


def meson_tests(build):
    """The tests that Meson registered, without those of subprojects."""
    text = subprocess.run(["meson", "introspect", "--tests", str(build)], check=True, stdout=subprocess.PIPE).stdout
    return [test for test in json.loads(text) if any(suite.split(":")[0] == "lanewise" for suite in test["suite"])]


def is_catch2(program):
    """True for a program that holds Catch2's banner. Scripts and the command itself do not."""
    try:
        return b" is a Catch2 v" in pathlib.Path(program).read_bytes()
    except OSError:
        return False


class Run:
    """What came out of one test: its counts, its output, and why it failed where the counts do not say it."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.output = ""
        self.problem = ""

    def fail(self, problem):
        self.failed += 1
        self.problem = problem


def execute(command, environment, folder, timeout, run):
    """The exit code, or None when the command did not end by itself."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            cwd=folder,
            timeout=timeout or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        run.output = (late.stdout or b"").decode(errors="replace")
        run.fail(f"still running after {timeout:.0f} s")
        return None
    except OSError as error:
        run.fail(f"cannot be started: {error}")
        return None
    run.output = done.stdout
    return done.returncode


def run_single(command, environment, folder, timeout):
    run = Run()
    code = execute(command, environment, folder, timeout, run)
    if code == 0:
        run.passed = 1
    elif code == SKIPPED:
        run.skipped = 1
    elif code is not None:
        run.fail(f"exit code {code}")
    return run


def run_catch2(command, environment, folder, timeout, report, tag):
    run = Run()
    report.unlink(missing_ok=True)
    command = command + ["-r", "console", "-r", f"json::out={report}"]
    if tag:
        command += ["--allow-running-no-tests", tag]
    code = execute(command, environment, folder, timeout, run)
    try:
        cases = json.loads(report.read_text())["test-run"]["totals"]["test-cases"]
    except (OSError, ValueError, KeyError):
        if code is not None:
            run.fail(f"no complete report, exit code {code}")
        return run
    run.passed = cases["passed"] + cases["fail-but-ok"]
    run.failed += cases["failed"]
    run.skipped = cases["skipped"]
    if code not in (0, None) and cases["failed"] == 0 and not (run.skipped and not run.passed):
        run.fail(f"exit code {code}, although no test case failed")  # a sanitizer, or a crash at the end
    if not tag and run.passed + run.failed + run.skipped == 0:
        run.fail("ran no test case")
    return run


def file_name(test_name):
    return test_name.replace("/", "_").replace(" ", "_")


def counts(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def main():
    arguments = parse_arguments()
    build = arguments.build.resolve()
    reports = build / "test-reports"
    reports.mkdir(exist_ok=True)

    jobs = []  # name, function that runs it
    for test in meson_tests(build):
        command = shlex.split(arguments.wrapper) + test["cmd"]
        # Fresh memory is not zero by chance.
        environment = {"MALLOC_PERTURB_": "165", **test["env"]}
        timeout = test["timeout"] * arguments.timeout_multiplier
        # Paths in a test's command are relative to the build folder, as for `meson test`.
        start = (command, environment, test["workdir"] or str(build), timeout)
        if is_catch2(test["cmd"][0]):
            report = reports / f"{file_name(test['name'])}.json"
            jobs.append((test["name"], functools.partial(run_catch2, *start, report, arguments.tag)))
        elif not arguments.tag:
            jobs.append((test["name"], functools.partial(run_single, *start)))
    if arguments.checks:
        root = pathlib.Path(__file__).resolve().parent.parent
        for check in sorted(path for path in arguments.checks.iterdir() if os.access(path, os.X_OK)):
            command = [str(check.resolve()), str(build)]
            jobs.append((f"check {check.name}", functools.partial(run_single, command, {}, root, 300)))

    passed = failed = skipped = 0
    for name, job in jobs:
        start = time.monotonic()
        run = job()
        seconds = time.monotonic() - start
        (reports / f"{file_name(name)}.log").write_text(run.output)
        if run.failed:
            print(run.output, end="" if run.output.endswith("\n") else "\n")
        else:
            print("".join(f"  {line}\n" for line in run.output.splitlines() if line.startswith("target ")), end="")
        if run.passed + run.failed + run.skipped:
            word = "FAIL" if run.failed else "ok  "
            line = f"{word} {name}: {counts(run.passed, run.failed, run.skipped)} ({seconds:.1f} s)"
            print(line + (f": {run.problem}" if run.problem else ""), flush=True)
        passed, failed, skipped = passed + run.passed, failed + run.failed, skipped + run.skipped

    if passed + failed == 0:
        print("FAIL no test was run")
        failed = 1
    if arguments.totals:
        arguments.totals.write_text(f"{passed} {failed} {skipped}\n")
    print(counts(passed, failed, skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
