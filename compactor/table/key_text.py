"""Shows keys to users: shortened, with dates instead of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from compactor.rows.fold import FoldError
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.times import time_texts
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.bounds import Bound, key_at
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.names import in_quotes

MAX_CHARACTERS: Final = 60
_MAX_LITERAL: Final = 1_000


def key_types(schema: pa.Schema, sort: SortSchema) -> list[pa.DataType]:
    """Returns the storage types of the sort columns."""
    return [storage_type(schema.field(column.column).type) for column in sort]


def key_text(bound: Bound, types: Sequence[pa.DataType]) -> str:
    """Returns the values of a key, or of a prefix of its columns, in at most 60 characters.

    A long key is cut in the middle, because neighbouring keys often begin alike.
    """
    return cut(" ".join(key_parts(bound, types)), MAX_CHARACTERS)


def cut(text: str, characters: int) -> str:
    """Returns a text, or its beginning and its end if it has more characters."""
    half = characters // 2
    return text if len(text) <= characters else f"{text[: characters - half - 1]}…{text[-half:]}"


def key_parts(bound: Bound, types: Sequence[pa.DataType]) -> list[str]:
    return [value_text(value, dtype) for value, dtype in zip(bound, types, strict=False)]


def with_key(error: FoldError, keys: Sequence[pa.Array], table: TableMetadata) -> FoldError:
    """Returns the error of a sum with the key of its rows, as a condition that finds them.

    keys: the sort columns of the rows that were folded.
    """
    key = condition_of_key(table, keys, error.row)
    dtype = table.schema.field(error.column).type
    return FoldError(
        f"column {table.shown_name(error.column)!r}: the sum of the rows where {key} does not fit into "
        f"{dtype}: append such a row with the opposite sign, or delete these rows",
        column=error.column,
        row=error.row,
    )


def condition_of_key(table: TableMetadata, keys: Sequence[pa.Array], row: int) -> str:
    """Returns a condition that finds the rows with the key of a row. keys: the sort columns of some rows."""
    held = zip(table.rows.key_columns(table.sort), key_at(keys, row), keys, strict=False)
    return " AND ".join(_equals(table.shown_name(c.column), v, k.type) for c, v, k in held)


def _equals(name: str, value: Any, dtype: pa.DataType) -> str:
    """Returns the condition that a column has a value."""
    if value is None:
        return f"{in_quotes(name)} IS NULL"
    text = value_text(value, dtype)
    if pa.types.is_integer(dtype) or pa.types.is_decimal(dtype) or pa.types.is_boolean(dtype):
        return f"{in_quotes(name)} = {text}"
    shown = text if len(text) <= _MAX_LITERAL else f"{text[:_MAX_LITERAL]}…"
    return f"{in_quotes(name)} = '" + shown.replace("'", "''") + "'"


def value_text(value: Any, dtype: pa.DataType) -> str:
    """Returns a value as users read it; keys hold times as integers."""
    if value is None:
        return "null"
    if pa.types.is_temporal(dtype) and isinstance(value, int):
        time = pa.array([value], pa.int32() if dtype.bit_width == 32 else pa.int64()).view(dtype)
        try:
            return str(time[0]).replace(" ", "T").replace("+00:00", "Z")
        except (ValueError, OverflowError):  # outside the years that Python knows
            is_dated = pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)
            return str(time_texts(time)[0]).replace(" ", "T") if is_dated else str(value)
    return str(value)
