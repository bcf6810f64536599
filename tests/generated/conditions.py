"""Random conditions against DuckDB.

Many: `python -m tests.generated.conditions --count 500000 --seed 1 --processes 2`; one case again: with
`--case 77`.

A case is a small table of random columns, in several fragments of row groups of 2 to 7 rows, with and
without skip indexes, and some hundreds of conditions on it. Of every condition the rows must be those that
DuckDB finds, and nothing that has such a row may be pruned by key ranges, statistics or skip indexes. For
some of them a whole scan, the reading of parts and a deletion on a copy of the table must say the same.
"""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.generated import pool
from tests.generated.condition_cases import CASES, check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="conditions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="only this one, in this process")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    first = options.seed * CASES
    if options.case is not None:
        text = check(first + options.case)
        print(text or "nothing found")
        return 1 if text else 0
    shown = pool.Shown(
        lambda progress: (
            f"{progress.counts['conditions']:,} conditions on {progress.done:,} tables, "
            f"{progress.counts['wrong']:,} wrong, {progress.seconds:.0f} s"
        ),
        _again,
    )
    # How many conditions a case has is seen when it is made.
    seeds = itertools.takewhile(
        lambda _: shown.progress.counts["conditions"] < options.count, itertools.count(first)
    )
    findings = pool.run(check, seeds, processes=options.processes, timeout_s=600, on_progress=shown)
    print(f"{shown.summary()}, done")
    return 1 if findings else 0


def _again(number: int) -> str:
    seed, case = divmod(number, CASES)
    return f"python -m tests.generated.conditions --seed {seed} --case {case}"


if __name__ == "__main__":
    sys.exit(main())
