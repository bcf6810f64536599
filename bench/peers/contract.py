"""The interface between the benchmark and its engines."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from msgspec import Struct


class Measure(StrEnum):
    """One kind of work."""

    MERGE = "merge"
    """Reads sorted files of the engine's format, writes one sorted output of that format."""
    INGEST = "ingest"
    """Reads sorted Parquet files, writes sorted files of the engine's format."""
    INGEST_CSV = "ingest-csv"
    """Reads sorted CSV files without nested columns, and finds their types; otherwise as `INGEST`."""
    INGEST_NDJSON = "ingest-ndjson"
    """Reads sorted NDJSON files, and finds their types; otherwise as `INGEST`."""
    SCAN_ALL = "scan-all"
    """Reads all columns of one sorted output into Arrow."""
    SCAN_STRING = "scan-string"
    """Reads the string column with the most bytes."""
    SCAN_NUMBERS = "scan-numbers"
    """Reads two integer columns, or other numbers if there are fewer."""

    @property
    def is_scan(self) -> bool:
        return self.startswith("scan")

    @property
    def is_ingest(self) -> bool:
        return self.startswith("ingest")

    @property
    def needs_columns(self) -> bool:
        """Whether only workloads with suitable columns have it."""
        return self.is_scan or self is Measure.INGEST_CSV


class Task(Struct, frozen=True, kw_only=True):
    """The input and output of one run."""

    sources: Sequence[Path]
    """Parquet files, each sorted by `sort`; their texts are in `prepared`."""
    sort: Sequence[str]
    """Columns, all ascending and without nulls."""
    prepared: Path
    """The engine's prepared inputs; runs do not change them."""
    folder: Path
    """This run's own folder, for output and spills."""
    cores: int
    columns: Sequence[str] = ()
    """The columns to scan."""


class Used(Struct, frozen=True):
    """Measured times."""

    wall_seconds: float
    cpu_seconds: float


class Peer(Protocol):
    """An engine that prepares inputs. `Merger`, `Ingester` and `Scanner` measure it."""

    settings: str
    """All relevant settings, in one line."""

    def version(self) -> str: ...

    def prepare(self, task: Task) -> None:
        """Converts the sources to the engine's format, at zstd level 1 if there is a choice.

        A merger makes one sorted file or part per source, a scanner one of all sources.
        """
        ...

    def start(self, task: Task) -> None:
        """Starts the engine and opens the prepared inputs, without reading rows."""
        ...

    def output_bytes(self, task: Task) -> int:
        """Returns the bytes written or, for a scan, read."""
        ...


class Merger(Peer, Protocol):
    def compact(self, task: Task) -> Used | None:
        """Merges the inputs; on return the output is synced to disk.

        Returns figures only if part of the work is not to be counted.
        """
        ...

    def output_rows(self, task: Task) -> int: ...

    def sort_columns(self, task: Task) -> pa.Table | None:
        """Returns the output's sort columns in stored order; None without an output to check."""
        ...


class Ingester(Peer, Protocol):
    def ingest(self, task: Task) -> None:
        """Makes a sorted file or part per source; on return they are synced to disk."""
        ...

    def output_rows(self, task: Task) -> int: ...


class Scanner(Peer, Protocol):
    def scan(self, task: Task) -> int:
        """Decodes `task.columns` into Arrow arrays, in row order; returns the row count."""
        ...
