"""States what an engine is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import pyarrow as pa


class Measure(StrEnum):
    """One kind of work that engines are compared at."""

    MERGE = "merge"
    """Sorted files of the engine's own form in, one sorted output of that form."""
    INGEST = "ingest"
    """Sorted Parquet files in, sorted files of the engine's own form out."""
    SCAN_ALL = "scan-all"
    """All columns of one sorted output into Arrow."""
    SCAN_STRING = "scan-string"
    """The string column that has the most bytes."""
    SCAN_NUMBERS = "scan-numbers"
    """Two columns of integers, or of other numbers if there are fewer."""

    @property
    def is_scan(self) -> bool:
        return self not in (Measure.MERGE, Measure.INGEST)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The rows of one run, and where it finds and leaves them."""

    sources: Sequence[Path]
    """Parquet files, each in the order of `sort`."""
    sort: Sequence[str]
    """Columns, all ascending, none with nulls."""
    prepared: Path
    """What the engine has prepared from the sources; runs do not change it."""
    folder: Path
    """This run's own: its output, what it spills."""
    cores: int
    columns: Sequence[str] = ()
    """The columns to scan."""


@dataclass(frozen=True)
class Used:
    """What the clock says."""

    wall_seconds: float
    cpu_seconds: float


class Peer(Protocol):
    """An engine that prepares inputs. What measures it is in `Merger`, `Ingester` and `Scanner`."""

    settings: str
    """Every setting that matters, in a line."""

    def version(self) -> str: ...

    def prepare(self, task: Task) -> None:
        """Puts the sources into the engine's own form, zstd level 1 where there is a choice.

        A merger makes one sorted file or part of each source, a scanner one of all of them.
        """
        ...

    def start(self, task: Task) -> None:
        """Starts the engine and opens what was prepared, without reading rows."""
        ...

    def output_bytes(self, task: Task) -> int:
        """Returns the bytes of what was written; for a scan, of what was read."""
        ...


class Merger(Peer, Protocol):
    def compact(self, task: Task) -> Used | None:
        """Merges the inputs; on return the output is synced to disk.

        Returns figures only if not all that it does is to be counted.
        """
        ...

    def output_rows(self, task: Task) -> int: ...

    def sort_columns(self, task: Task) -> pa.Table | None:
        """Returns the output's sort columns, rows as they are stored; None if there are none to look at."""
        ...


class Ingester(Peer, Protocol):
    def ingest(self, task: Task) -> None:
        """Makes a sorted file or part of each source; on return they are synced to disk."""
        ...

    def output_rows(self, task: Task) -> int: ...


class Scanner(Peer, Protocol):
    def scan(self, task: Task) -> int:
        """Decodes `task.columns` into Arrow arrays, in the order of rows; returns how many rows."""
        ...
