"""What an engine is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Task:
    """One compaction: sorted Arrow files in, one sorted output in the engine's own form."""

    arrow_files: Sequence[Path]
    """Each in the order of `sort`."""
    sort: Sequence[str]
    """Columns, all ascending, nulls last (none is null)."""
    prepared: Path
    """The inputs in the engine's own form, which runs do not change."""
    folder: Path
    """This run's own: its output, what it spills."""
    cores: int


@dataclass(frozen=True)
class Used:
    """What the clock says."""

    wall_seconds: float
    cpu_seconds: float


class Peer(Protocol):
    """An engine. Everything but `compact` is outside the clock."""

    settings: str
    """Every setting that matters, in a line."""

    def version(self) -> str: ...

    def prepare(self, task: Task) -> None:
        """Puts the inputs into the engine's own form, one sorted file or part an input, zstd level 1."""
        ...

    def start(self, task: Task) -> None:
        """Starts the engine and opens the prepared inputs, without reading their rows."""
        ...

    def compact(self, task: Task) -> Used | None:
        """Merges the inputs; on return the output is synced to disk.

        Returns figures only if not all that it does is to be counted.
        """
        ...

    def output_bytes(self, task: Task) -> int: ...

    def output_rows(self, task: Task) -> int: ...

    def sort_columns(self, task: Task) -> pa.Table | None:
        """Returns the output's sort columns, rows as they are stored; None if there are none to look at."""
        ...
