"""Finds the row of an input that is not sorted, to tell it."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.plain_text import plain_text
from compactor.merge.inputs.decoded import DecodedRows
from lsm_fragment.arrays.storage import decoded, to_logical, to_storage
from lsm_fragment.arrays.types import is_string
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.normalised import KeyColumns
from lsm_fragment.keys.sort_schema import SortSchema


class Disorder(NamedTuple):
    """A row that comes before its predecessor by its sort columns."""

    number: int
    """The number of the row among the rows of its input, from 1."""
    row: pa.RecordBatch
    before: pa.RecordBatch | None
    """The predecessor; None if it was merged before."""


def find_disorder(rows: DecodedRows, schema: pa.Schema, sort: SortSchema) -> Disorder:
    """Returns the first row that is not sorted, which is the first one if the others are.

    rows: of an input in which the merge met such a row; all that it took are sorted.
    """
    compare = KeyComparator(schema, sort)
    places = [schema.get_field_index(column.column) for column in sort]
    first: pa.RecordBatch | None = None
    before: pa.RecordBatch | None = None
    last_key = b""
    number = rows.taken + 1
    for piece in rows.peek(0, rows.rows):
        keys = KeyColumns([piece[place] for place in places], compare.layout)
        at = 0 if keys.key(0) < last_key else keys.first_disorder()
        if at is not None:
            before = _row(piece, at - 1, schema) if at else before
            return Disorder(number + at, _row(piece, at, schema), before)
        first = _row(piece, 0, schema) if first is None else first
        before, last_key = _row(piece, keys.rows - 1, schema), keys.key(keys.rows - 1)
        number += keys.rows
    assert first is not None
    return Disorder(rows.taken + 1, first, None)


def values_text(row: pa.RecordBatch, sort: SortSchema) -> str:
    """Returns the sort columns of a row with their values."""
    return ", ".join(f"{c.column} {_value_text(row.column(c.column))}" for c in sort)


def _row(piece: list[pa.Array], at: int, schema: pa.Schema) -> pa.RecordBatch:
    fields = zip(piece, schema, strict=True)
    columns = [to_logical(column.slice(at, 1), field.type) for column, field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _value_text(value: pa.Array) -> str:
    stored = to_storage(value)
    if isinstance(stored, pa.DictionaryArray):
        stored = to_storage(decoded(stored))
    text = plain_text(stored)[0].as_py()
    if text is None:
        return "null"
    return repr(text[:SHOWN_CHARACTERS]) if is_string(stored.type) else str(text)
