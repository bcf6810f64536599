"""Makes the skip indexes of a merge's outputs while columns are written, and keeps them in a record buffer
until the end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from compactor.predicate.skipping.packed import pack
from compactor.predicate.skipping.spec import SkipSpec
from compactor.predicate.skipping.summary import build
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import FOOTER
from compactor.resources.record_buffer import RecordBuffer
from compactor.resources.reservation import Reservation


class OutputSkips:
    """The skip indexes of one output, column after column."""

    def __init__(self, spec: SkipSpec, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._kinds = dict(spec.columns)
        self._max_bytes = spec.bytes_per_row_group
        self._records = RecordBuffer(budget, FOOTER, disk)
        self._names: list[str] = []
        self._open: list[bytes | None] = []
        self._open_memory = Reservation(budget, FOOTER)

    def wants(self, column: str) -> bool:
        return column in self._kinds

    def summary(self, column: str, array: pa.Array) -> bytes | None:
        """Returns the summary of a row group; None if it would tell nothing. Pure."""
        return build(self._kinds[column], array, self._max_bytes)

    def add(self, summary: bytes | None) -> None:
        """Adds the summary of the column's next row group."""
        self._open_memory.grow(0 if summary is None else len(summary))
        self._open.append(summary)

    def end_column(self, column: str) -> None:
        if any(summary is not None for summary in self._open):
            self._records.append(pack(self._open))
            self._names.append(column)
        self._drop_open()

    @property
    def columns(self) -> list[str]:
        """All columns that should get an index, whether or not anything was kept of them."""
        return list(self._kinds)

    def blocks(self) -> Iterator[tuple[str, bytes]]:
        """Yields columns and their blocks."""
        yield from zip(self._names, self._records, strict=True)

    def spill(self) -> int:
        return self._records.spill()

    def close(self) -> None:
        self._drop_open()
        self._records.close()

    def _drop_open(self) -> None:
        self._open = []
        self._open_memory.free()
