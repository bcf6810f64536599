"""Reads the entities of datasets, and notes what the next run has to know of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from compactor.entities.dataset_rows import RowColumns, Rows, batch_rows, place_in, rows_in
from compactor.entities.datasets import Located
from compactor.entities.entities import U64, Entities, RowSource, ordered_entities
from compactor.entities.memory import Charge, unlimited
from compactor.entities.properties import Sparse
from compactor.entities.row_ids import with_ids
from compactor.entities.sources import Part, Source
from compactor.entities.texts import I64

_OFFSET_BYTES: Final = 8
"""Offset size of an Arrow large string, null or not."""


class RowNotes(Struct):
    """What was read of a dataset, row by row."""

    started_ns: int
    """When the run started, in Unix time: what was changed shortly before it may change again unseen."""
    parts: list[Part] = field(default_factory=list)
    hashes: list[U64] = field(default_factory=list)
    order: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """The input row of each entity."""


def read_dataset(
    located: Located | None,
    name: str,
    charge: Charge = unlimited,
    notes: RowNotes | None = None,
) -> Entities:
    """Reads all entities of a dataset; none if it does not exist.

    Raises `InputError` naming the place, and the errors of `charge`.
    """
    reading = _Reading(charge)
    if located is None:
        return reading.ended(RowSource(name))[0]
    for part in located.whole:
        source = Source(part)
        if notes is not None:
            source.look_at_groups()
        before = len(reading.rows)
        for rows in rows_in(part, source.snapshot):
            reading.add(rows, located.id_columns)
            if notes is not None:
                notes.hashes.append(rows.hashes())
                charge(notes.hashes[-1].nbytes)
        if notes is not None:
            notes.parts.append(source.read(notes.started_ns, sum(reading.rows[before:])))
    found = RowSource(located.shown, partial(place_in, located), located.id_columns)
    entities, order = reading.ended(found)
    if notes is not None:
        notes.order = order
    return entities


def read_batches(
    batches: Iterable[pa.RecordBatch],
    name: str,
    charge: Charge,
    id_columns: Sequence[str],
) -> Entities:
    """Reads entities from Arrow batches; null means a missing property.

    name: the dataset's name, for errors. Raises `InputError`, and the errors of `charge`.
    """
    source = RowSource(name, id_columns=id_columns)
    return read_rows(batch_rows(batches, name), source, charge)[0]


def read_rows(found: Iterable[Rows], source: RowSource, charge: Charge) -> tuple[Entities, I64]:
    """Reads entities from rows. Returns also the row of each entity. Raises as `read_batches` does."""
    reading = _Reading(charge)
    for rows in found:
        reading.add(rows, source.id_columns)
    return reading.ended(source)


class _Reading:
    """Columns of rows, charged as they come."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._columns: list[RowColumns] = []
        self.rows: list[int] = []
        self._names: set[str] = set()
        self._cells = self._empty = self._total = 0

    def add(self, rows: Rows, id_columns: Sequence[str]) -> None:
        columns = with_ids(rows.columns(), rows.count, id_columns)
        dense = [name for name, column in columns.items() if not isinstance(column, Sparse)]
        self._names.update(dense)
        self._total += rows.count
        self._cells += len(dense) * rows.count
        # Each of these becomes a column of all rows, present or not.
        before, self._empty = self._empty, len(self._names) * self._total - self._cells
        size = sum(column.nbytes for column in columns.values())
        self._charge(size + (self._empty - before) * _OFFSET_BYTES)
        self._columns.append(columns)
        self.rows.append(rows.count)

    def ended(self, source: RowSource) -> tuple[Entities, I64]:
        return ordered_entities(self._columns, self.rows, source)
