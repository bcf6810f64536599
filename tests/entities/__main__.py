"""Many random histories: `python -m tests.entities --seeds 10000 [--start N] [--tasks | --spark]`.

One of them: `--seed N`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import Final

from tests.entities.histories import Merge, check, in_tasks, on_spark
from tests.entities.support import run

_MANY: Final = 100
"""Runs of this many histories have to look often enough at what changes touch only."""
_LEAST_SHARE: Final = 0.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--tasks", action="store_true", help="on the stand-in for Spark")
    parser.add_argument("--spark", action="store_true", help="on Spark")
    options = parser.parse_args()
    merge: Merge = run
    if options.tasks or options.spark:
        merge = on_spark() if options.spark else in_tasks()
    if options.seed is not None:
        check(options.seed, merge, partly=merge is run)
        return 0
    findings = looked = 0
    for seed in range(options.start, options.start + options.seeds):
        try:
            looked += check(seed, merge, partly=merge is run)
        except Exception as error:  # noqa: BLE001 - all that a history finds is told
            findings += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error).splitlines() or [""]
            print(
                f"FOUND seed {seed}: {type(error).__name__}: {said[0][:300]} ({last.name})",
                flush=True,
            )
        done = seed - options.start + 1
        if done % 100 == 0:
            print(f"{done:,} histories, {findings} findings", flush=True)
    print(f"{options.seeds:,} histories, {findings} findings", flush=True)
    if merge is run:
        print(f"{looked:,} runs looked only at what changes touch", flush=True)
        if options.seeds >= _MANY and looked < options.seeds * _LEAST_SHARE:
            print(f"TOO FEW of these: {_LEAST_SHARE:.0%} of the histories at least", flush=True)
            return 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
