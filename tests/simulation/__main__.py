"""Many seeds: `python -m tests.simulation --seeds 100000 [--start N]`; one: `--seed N`, with its trace.

`--mutations` breaks each rule in turn and says by which seed that is found. `--steps 100000` runs whole
lives of tables in this process, beside a model of all versions, until that many steps were taken.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from functools import partial
from multiprocessing import get_context

import pytest

from tests.simulation.actors import STEP
from tests.simulation.hazards import BY_NAME
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import FoundError, finding, simulate, spawn_lives


def main() -> int:
    logging.disable(logging.CRITICAL)  # checkpoints that fail are expected
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutations", action="store_true")
    parser.add_argument("--steps", type=int, help="of tables' whole lives")
    parser.add_argument("--hazard", choices=list(BY_NAME), help="in every run, and no other one")
    options = parser.parse_args()
    if options.steps is not None:
        return live(options.start, options.steps)
    if options.seed is not None:
        return replay(options.seed, options.hazard)
    if options.mutations:
        return search_mutations(options.start, options.seeds)
    return search(options.start, options.seeds, options.hazard)


def replay(seed: int, hazard: str | None) -> int:
    found = finding(seed, hazard)
    print("\n".join(found.trace if found else []))
    print(found or "nothing found")
    return 1 if found else 0


def live(start: int, steps: int) -> int:
    """Counts what actors did, whether or not a fault befell it, and the versions that came of it."""
    taken: Counter[str] = Counter()
    seed, versions = start, 0
    while taken.total() < steps:
        try:
            run = simulate(seed, spawn_lives)
        except FoundError as found:
            print("\n".join(found.trace[-40:]))
            print(f"FOUND {found} after {taken.total():,} steps")
            return 1
        seed += 1
        versions += run.visits["versions"]
        before = taken.total()
        for what, count in run.visits.items():
            if what.startswith(STEP):
                taken[what.removeprefix(STEP)] += count
        if before // 1_000 != taken.total() // 1_000:
            print(
                f"{taken.total():,} steps, {versions:,} versions, {seed - start:,} tables",
                flush=True,
            )
    print(", ".join(f"{count:,} {what}" for what, count in taken.most_common()))
    print(
        f"{taken.total():,} steps of {seed - start:,} tables from seed {start}, {versions:,} versions: "
        "nothing is lost"
    )
    return 0


def search(start: int, seeds: int, hazard: str | None) -> int:
    began = time.monotonic()
    findings = 0
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        of_seed = partial(finding, hazard=hazard)
        runs = pool.imap_unordered(of_seed, range(start, start + seeds), chunksize=20)
        for number, found in enumerate(runs, start=1):
            if found is not None:
                findings += 1
                print(
                    f"FOUND {found}\n  python -m tests.simulation --seed {found.seed}", flush=True
                )
            if number % 1_000 == 0:
                rate = number / (time.monotonic() - began)
                print(f"{number:,} seeds, {findings} findings, {rate:.0f} seeds/s", flush=True)
    print(f"{seeds:,} seeds from {start}: {findings} findings, {time.monotonic() - began:.0f} s")
    return 1 if findings else 0


def search_mutations(start: int, seeds: int) -> int:
    missed = 0
    for mutation in MUTATIONS:
        with pytest.MonkeyPatch.context() as patch:
            mutation.apply(patch)
            try:
                for seed in range(start + mutation.start, start + mutation.start + seeds):
                    mutation.simulate(seed)
            except FoundError as found:
                print(f"{mutation.rule:52} seed {found.seed:5}  {found.cause[:90]}", flush=True)
            else:
                missed += 1
                print(f"{mutation.rule:52} NOT FOUND in {seeds} seeds", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
