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
import sys

from tests.generated import pool
from tests.generated.condition_cases import CASES, CONDITIONS, check


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
    cases = max(1, options.count // CONDITIONS)
    shown = _Shown(cases)
    seeds = range(first, first + cases)
    findings = pool.run(check, seeds, processes=options.processes, timeout_s=600, on_progress=shown)
    print(f"{shown.last}, done")
    return 1 if findings else 0


class _Shown:
    """Prints findings as they come, and how far the run is every few seconds."""

    def __init__(self, cases: int) -> None:
        self._cases, self._at, self._shown = cases, 0.0, 0
        self.last = ""

    def __call__(self, progress: pool.Progress) -> None:
        for finding in progress.findings[self._shown :]:
            seed, case = divmod(finding.seed, CASES)
            again = f"python -m tests.generated.conditions --seed {seed} --case {case}"
            print(f"FOUND {again}\n{finding.text}", flush=True)
        self._shown = len(progress.findings)
        self.last = (
            f"{progress.counts['conditions']:,} conditions on {progress.done:,} of {self._cases:,} tables, "
            f"{progress.counts['wrong']:,} wrong, {progress.seconds:.0f} s"
        )
        if progress.seconds - self._at > 20:
            self._at = progress.seconds
            print(self.last, flush=True)


if __name__ == "__main__":
    sys.exit(main())
