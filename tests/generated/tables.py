"""Random tables through the whole product: `python -m tests.generated.tables --count 50000 --processes 2`.

One again, step by step: `--seed 4711`; made as small as it fails still: `--seed 4711 --shrink`. See
docs/generated-tests.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback

import pyarrow as pa

from tests.generated.case import Case, FindingError
from tests.generated.plans import Append, Plan, plan_of, smaller
from tests.generated.pool import Finding, Progress, run

TIMEOUT_S = 60.0
"""Several hundred times what a case takes."""


def check(seed: int) -> str | None:
    """Returns what is wrong with the table of a seed."""
    return _fault(plan_of(seed))


def _fault(plan: Plan, *, aloud: bool = False) -> str | None:
    try:
        Case(plan, print if aloud else _silent).run()
    except FindingError as error:
        return f"{error}{_frames(error.__cause__)}"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:500] + _frames(error)
    return None


def _frames(error: BaseException | None) -> str:
    """Returns the last places at which an error passed, innermost first."""
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)[-7:]
    return "".join(
        f"\n    {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)
    )


def _silent(_line: str) -> None:
    return


def main() -> int:
    """Runs cases, or one; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="this one only, telling what it does")
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: look for less that fails"
    )
    parser.add_argument("--refusals", action="store_true", help="say what was refused, and why")
    parser.add_argument("--spark", type=int, help="that many tables, written and read by Spark")
    options = parser.parse_args()
    if options.spark is not None:
        return _by_spark(options.spark, options.start)
    if options.seed is not None:
        plan = _shrunk(plan_of(options.seed)) if options.shrink else plan_of(options.seed)
        show(plan)
        fault = _fault(plan, aloud=True)
        print(fault or "nothing found")
        return 1 if fault else 0
    progress = Progress()
    findings = run(
        check,
        range(options.start, options.start + options.count),
        processes=options.processes,
        timeout_s=TIMEOUT_S,
        on_progress=_Reporter(options.count, progress),
    )
    _summarize(progress, findings, aloud=options.refusals)
    return 1 if findings else 0


def _by_spark(count: int, start: int) -> int:
    from tests.generated import spark

    findings = spark.run(count, start)
    for seed, fault in findings:
        print(f"FOUND seed {seed}: {fault}")
    print(f"{count:,} tables by Spark, {len(findings)} findings")
    return 1 if findings else 0


class _Reporter:
    """Prints findings as they come, and on a terminal how far the run is."""

    def __init__(self, total: int, last: Progress) -> None:
        self._total, self._last, self._shown, self._said = total, last, 0.0, 0

    def __call__(self, progress: Progress) -> None:
        last = self._last
        last.done, last.seconds = progress.done, progress.seconds
        last.counts, last.findings = progress.counts, progress.findings
        for finding in progress.findings[self._said :]:
            print(f"\r\x1b[KFOUND seed {finding.seed}: {finding.text}\n", flush=True)
        self._said = len(progress.findings)
        if sys.stderr.isatty() and time.monotonic() - self._shown > 0.5:
            self._shown = time.monotonic()
            rate = progress.done / max(progress.seconds, 0.001)
            line = (
                f"{progress.done:,} of {self._total:,} tables, {rate:.0f}/s, {self._said} findings"
            )
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _summarize(progress: Progress, findings: list[Finding], *, aloud: bool) -> None:
    counts = progress.counts
    asked = {
        name: n for name, n in counts.items() if f"{name}: refused" in counts or ":" not in name
    }
    refused = sum(counts[f"{name}: refused"] for name in asked)
    print(
        f"{progress.done:,} tables, {len(findings)} findings, {progress.seconds:.0f} s; "
        f"{sum(asked.values()):,} steps asked for, {refused:,} of them refused"
    )
    if aloud:
        for name, number in sorted(asked.items()):
            print(f"  {name}: {number:,}, {counts[f'{name}: refused']:,} refused")
        for name, number in sorted(counts.items(), key=lambda item: -item[1]):
            if name.startswith("  "):
                print(f"{number:8,} {name}")


def show(plan: Plan) -> None:
    """Prints a case."""
    sort = ", ".join(f"{c.column!r} {c.order} nulls {c.nulls}" for c in plan.sort)
    print(f"seed {plan.seed}: sorted by {sort}; {plan.rows_per_fragment} rows a fragment, ", end="")
    print(f"{plan.max_rows} a row group")
    for number, step in enumerate(plan.steps):
        if not isinstance(step, Append):
            print(f"  {number} {step.kind}")
            continue
        print(f"  {number} append {step.rows} rows as {step.how}, mess {step.mess}", end="")
        print(", may break not null" if step.breaks_not_null else "")
        for column in step.columns:
            print(f"      {column.name!r} {column.dtype}{'' if column.nullable else ' not null'}")


def _shrunk(plan: Plan) -> Plan:
    """Returns the smallest case found that fails in the same way; each is tried in a process of its own."""
    wanted, tries = _failure(plan), 0
    while wanted and tries < 600:
        for candidate in smaller(plan):
            tries += 1
            if _failure(candidate) == wanted:
                plan = candidate
                break
        else:
            return plan
    return plan


def _failure(plan: Plan) -> str:
    """Returns in which way a case fails; "" if it does not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kind = _kind_of_fault(_fault(plan))
        except BaseException as error:  # noqa: BLE001
            kind = type(error).__name__
        os.write(writing, kind.encode())
        os._exit(0)
    os.close(writing)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading) as said:
        return said.read() or (f"signal {os.WTERMSIG(status)}" if status else "")


def _kind_of_fault(fault: str | None) -> str:
    """Returns a finding without what smaller cases change of it."""
    line = re.sub(
        r"step \d+|append of \d+ rows as \w+|'[^']*'|\d+", "", (fault or "").split("\n")[0]
    )
    return line[:60]


if __name__ == "__main__":
    pa.set_cpu_count(1)
    sys.exit(main())
