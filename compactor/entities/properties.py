"""Properties of entities by name. One that few entities have takes memory by its values, not by entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.entities.texts import I64, TEXT

_MIN_DENSITY: Final = 8
"""A property has a column of all rows if at least one in this many has it."""
_ROW_BYTES: Final = 8
"""Size of a row number."""


class Sparse(Struct, frozen=True):
    """A property that few rows have."""

    rows: I64
    """The rows that have it, ascending."""
    texts: pa.Array
    """Their values."""
    length: int
    """Number of all rows."""

    @property
    def nbytes(self) -> int:
        return int(self.texts.nbytes) + _ROW_BYTES * len(self.rows)

    def dense(self) -> pa.Array:
        at = np.full(self.length, -1)
        at[self.rows] = np.arange(len(self.rows))
        return self.texts.take(pa.array(at, mask=at < 0))

    def moved(self, places: I64, length: int) -> Sparse:
        """Moves rows to other places, -1 for those to be left out, among `length` rows."""
        rows = places[self.rows]
        order = np.argsort(rows, kind="stable")
        order = order[np.searchsorted(rows[order], 0) :]
        return Sparse(rows[order], self.texts.take(pa.array(order)), length)


Column: TypeAlias = pa.Array | Sparse


class Properties(Mapping[str, pa.Array]):
    """Arrays by name, null for rows without the property. A sparse one is made each time that it is asked
    for."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.stored = columns

    def __getitem__(self, name: str) -> pa.Array:
        column = self.stored[name]
        return column.dense() if isinstance(column, Sparse) else column

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def stored(columns: Mapping[str, pa.Array]) -> Mapping[str, Column]:
    """Returns properties as they are held."""
    return columns.stored if isinstance(columns, Properties) else columns


def values_in(column: Column) -> tuple[I64, pa.Array]:
    """Returns the rows that have a property, and its values there."""
    if isinstance(column, Sparse):
        return column.rows, column.texts
    if not column.null_count:
        return np.arange(len(column)), column
    is_there = np.asarray(column.is_valid())
    return np.flatnonzero(is_there), column.filter(pa.array(is_there))


def taken(columns: Mapping[str, pa.Array], rows: I64, length: int) -> Properties:
    """Takes rows of properties; no row twice. length: number of rows before."""
    indices, places = pa.array(rows), None
    found: dict[str, Column] = {}
    for name, column in stored(columns).items():
        if isinstance(column, Sparse):
            if places is None:
                places = np.full(length, -1)
                places[rows] = np.arange(len(rows))
            found[name] = column.moved(places, len(rows))
        else:
            found[name] = column.take(indices)
    return Properties(found)


def end_to_end(parts: Sequence[Column | None], lengths: Sequence[int]) -> Column:
    """Joins the parts of a property; None for a part whose rows lack it. Sparse if every other part is."""
    if all(part is None or isinstance(part, Sparse) for part in parts):
        starts = np.cumsum([0, *lengths])
        there = [(s, p) for s, p in zip(starts, parts, strict=False) if isinstance(p, Sparse)]
        rows = np.concatenate(
            [np.zeros(0, np.int64), *(start + part.rows for start, part in there)]
        )
        texts = pa.concat_arrays([pa.array([], TEXT), *(part.texts for _, part in there)])
        return Sparse(rows, texts, int(starts[-1]))
    arrays = [
        pa.nulls(length, TEXT)
        if part is None
        else part.dense()
        if isinstance(part, Sparse)
        else part
        for part, length in zip(parts, lengths, strict=True)
    ]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def sparse_if_rare(column: Column) -> Column:
    """Returns the form of a property that takes less memory."""
    if isinstance(column, Sparse) or not is_rare(len(column) - column.null_count, len(column)):
        return column
    return Sparse(*values_in(column), len(column))


def is_rare(values: int, rows: int) -> bool:
    return values * _MIN_DENSITY < rows
