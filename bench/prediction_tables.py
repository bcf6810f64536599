"""Unlike tables, each in two halves: what a first compaction merges, and what comes in for the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from bench import string_kinds
from bench.bench_memory import wide
from bench.kinds import requests, trips
from bench.tables import LOG_SORT
from bench.workload import make_overlapping_inputs
from compactor.rows.policy import RowFunction, RowKind, RowPolicy
from compactor.settings.compaction import Strategy
from compactor.write.ingest import IngestOptions

Parts = Callable[[], Iterator[pa.Table]]


class Case(Struct, frozen=True, kw_only=True):
    """A table that is compacted twice."""

    name: str
    sort: str
    parts: Parts
    """The files, in order."""
    first: int
    """Number of files that come before the first compaction; the rest comes after it."""
    options: IngestOptions = field(default_factory=IngestOptions)
    strategy: Strategy = Strategy.LEVELED
    delete: str = ""
    """Condition of rows to delete before each compaction."""
    on_s3: bool = False


def integers(rows: int, files: int, *, seed: int, keys: int = 1 << 40) -> Iterator[pa.Table]:
    """Yields narrow tables of random integers."""
    rng = np.random.default_rng(seed)
    for _ in range(files):
        yield pa.table({
            "k": rng.integers(0, keys, rows),
            "v": rng.integers(0, 1_000, rows),
            "n": np.arange(rows, dtype=np.int64),
        })  # fmt: skip


def texts(rows: int, files: int, *, seed: int) -> Iterator[pa.Table]:
    """Yields long texts of common words by a random key."""
    rng = np.random.default_rng(seed)
    for _ in range(files):
        lines = string_kinds.prose(rng, rows * 3)
        long = [" ".join(lines[at : at + 3]) for at in range(0, rows * 3, 3)]
        yield pa.table({"k": rng.integers(0, 1 << 40, rows), "text": long})


def of_kind(
    kind: Callable[[np.random.Generator, int], pa.Table], rows: int, files: int
) -> Iterator[pa.Table]:
    rng = np.random.default_rng(11)
    for _ in range(files):
        yield kind(rng, rows)


def consecutive(rows: int, files: int) -> Iterator[pa.Table]:
    """Yields files whose keys hardly overlap, as of a log by time."""
    rng = np.random.default_rng(5)
    for number in range(files):
        begin = number * rows * 98 // 100
        yield pa.table({
            "t": np.arange(begin, begin + rows),
            "v": rng.normal(size=rows),
            "s": np.char.add("s", rng.integers(0, 50, rows).astype(str)),
        })  # fmt: skip


def cases(divisor: int = 1) -> Iterator[Case]:
    """Yields the cases, with rows divided by `divisor`."""

    def n(rows: int) -> int:
        return max(10, rows // divisor)

    yield Case(name="narrow integers", sort="k", first=4,
               parts=partial(integers, n(200_000), 8, seed=1))  # fmt: skip
    yield Case(name="logs", sort=LOG_SORT, first=4,
               parts=partial(make_overlapping_inputs, n(800_000), 8, seed=7))  # fmt: skip
    yield Case(name="logs on S3", sort=LOG_SORT, first=4, on_s3=True,
               parts=partial(make_overlapping_inputs, n(200_000), 8, seed=8))  # fmt: skip
    yield Case(name="logs, all into one", sort=LOG_SORT, first=5, strategy=Strategy.FULL,
               parts=partial(make_overlapping_inputs, n(500_000), 10, seed=9))  # fmt: skip
    yield Case(name="long texts", sort="k", first=4,
               parts=partial(texts, n(20_000), 8, seed=2))  # fmt: skip
    yield Case(name="wide", sort="k", first=4,
               parts=lambda: wide(200, inputs=8, present=200, rows=n(10_000)))  # fmt: skip
    yield Case(name="many small", sort=LOG_SORT, first=60,
               parts=partial(make_overlapping_inputs, max(240, n(120_000)), 120, seed=3))  # fmt: skip
    yield Case(name="many small into one", sort=LOG_SORT, first=60, strategy=Strategy.FULL,
               parts=partial(make_overlapping_inputs, max(240, n(120_000)), 120, seed=3))  # fmt: skip
    yield Case(name="few rows", sort="k", first=4,
               parts=partial(integers, n(1_000), 8, seed=4))  # fmt: skip
    yield Case(name="deleted rows", sort="k", first=4, delete="v < 150",
               parts=partial(integers, n(200_000), 8, seed=5))  # fmt: skip
    yield Case(name="last row of a key", sort="k", first=4,
               options=IngestOptions(rows=RowPolicy(RowKind.LAST)),
               parts=partial(integers, n(200_000), 8, seed=6, keys=1 << 20))  # fmt: skip
    yield Case(name="sums of a key", sort="k", first=4,
               options=IngestOptions(rows=RowPolicy(RowKind.AGGREGATE, aggregates=(
                   ("v", RowFunction.SUM), ("n", RowFunction.MAX)))),
               parts=partial(integers, n(200_000), 8, seed=6, keys=1 << 18))  # fmt: skip
    yield Case(name="level 0 into 1", sort="k", first=4, strategy=Strategy.OVERLAPPING,
               parts=lambda: of_kind(by_k(trips), n(80_000), 8))  # fmt: skip
    yield Case(name="requests", sort="k", first=4,
               parts=lambda: of_kind(by_k(requests), n(40_000), 8))  # fmt: skip
    yield Case(name="consecutive", sort="t", first=4, strategy=Strategy.FULL,
               parts=partial(consecutive, n(200_000), 8))  # fmt: skip


def by_k(
    kind: Callable[[np.random.Generator, int], pa.Table],
) -> Callable[[np.random.Generator, int], pa.Table]:
    def made(rng: np.random.Generator, rows: int) -> pa.Table:
        table = kind(rng, rows)
        return (
            table
            if "k" in table.column_names
            else table.add_column(0, "k", pa.array(rng.integers(0, 1 << 40, rows)))
        )

    return made
