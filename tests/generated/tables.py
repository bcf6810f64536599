"""Random tables through the whole product: `python -m tests.generated.tables --count 50000 --processes 2`.

One again, step by step: `--seed 4711`; made as small as it fails still: `--seed 4711 --shrink`. See
docs/explanation/generated-tests.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

import pyarrow as pa

from tests.generated.case import TIMEOUT_S, check, fault_of
from tests.generated.plans import Append, Plan, plan_of, smaller
from tests.generated.pool import Finding, Progress, Shown, run


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
        fault = fault_of(plan, aloud=True)
        print(fault or "nothing found")
        return 1 if fault else 0
    shown = Shown(
        lambda progress: f"{progress.done:,} of {options.count:,} tables, {progress.seconds:.0f} s",
        lambda seed: f"python -m tests.generated.tables --seed {seed}",
    )
    findings = run(
        check,
        range(options.start, options.start + options.count),
        processes=options.processes,
        timeout_s=TIMEOUT_S,
        on_progress=shown,
    )
    _summarize(shown.progress, findings, aloud=options.refusals)
    return 1 if findings else 0


def _by_spark(count: int, start: int) -> int:
    from tests.generated import spark

    findings = spark.run(count, start)
    for seed, fault in findings:
        print(f"FOUND seed {seed}: {fault}")
    print(f"{count:,} tables by Spark, {len(findings)} findings")
    return 1 if findings else 0


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
            kind = _kind_offault_of(fault_of(plan))
        except BaseException as error:  # noqa: BLE001
            kind = type(error).__name__
        os.write(writing, kind.encode())
        os._exit(0)
    os.close(writing)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading) as said:
        return said.read() or (f"signal {os.WTERMSIG(status)}" if status else "")


def _kind_offault_of(fault: str | None) -> str:
    """Returns a finding without what smaller cases change of it."""
    line = re.sub(
        r"step \d+|append of \d+ rows as \w+|'[^']*'|\d+", "", (fault or "").split("\n")[0]
    )
    return line[:60]


if __name__ == "__main__":
    pa.set_cpu_count(1)
    sys.exit(main())
