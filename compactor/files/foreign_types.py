"""Finds the columns of types that Arrow lacks.

Some make Arrow refuse a whole schema, such as Polars' 128-bit integers. Its error does not name the column,
so this module reads names and types from the schema's FlatBuffer (Arrow's `Schema.fbs`), which is untrusted.
Of others, Parquet's INTERVAL and VARIANT, Arrow drops the type and reads the bytes.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.common.flat_buffers import FlatTable, number_at, target_at
from compactor.errors import InputError
from compactor.files.column_names import inner_fields
from compactor.files.problems import one_line

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_READ_BYTES: Final = 8 << 20
"""Search this much of the start and the end of a file."""
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_PARQUET_END: Final = b"PAR1"
_PARQUET_NOTE: Final = re.compile(rb"ARROW:schema\x18[\x80-\xff]*[\x00-\x7f]([A-Za-z0-9+/]+=*)")
"""Arrow's own schema in a Parquet footer. pyarrow refuses a footer if it does not support that schema."""
_ARROW_END: Final = b"ARROW1"
_SCHEMA: Final = 1
_INTEGER: Final = 2
_LAST_KNOWN: Final = 26
"""Treat higher type numbers than that of large list views as unknown to Arrow."""
_MAX_FIELDS: Final = 100_000
_INTERVAL_BYTES: Final = 12
_DROPPED: Final = re.compile(r" field_id=\S+ (.*) \((Interval|Variant)(?:\(\d+\))?\)(?:;| \{)$")
"""A field in the text of a Parquet schema, the only place where pyarrow tells the type of a VARIANT."""


@contextlib.contextmanager
def naming_foreign_types(path: str) -> Iterator[None]:
    """Turns Arrow's error about an unsupported type in a Parquet or Arrow file into `InputError`."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        found = _foreign(path)
        what = "has a column of a type" if found is None else f"column {found[0]!r} has {found[1]}"
        raise InputError(
            f"{path}: {what}, which Arrow does not support ({one_line(error)}): write the file again with "
            "decimals, text or another type, or leave the column out"
        ) from error


def refuse_dropped_types(path: str, schema: pq.ParquetSchema, columns: pa.Schema) -> None:
    """Raises `InputError` for the first column with a type of Parquet that Arrow drops.

    schema: of the whole file. columns: those that are read, as Arrow types them.
    """
    fields = ((column.name, field) for column in columns for field in _fields_within(column))
    looking_so = [(name, field.name) for name, field in fields if _may_be_dropped(field.type)]
    if not looking_so:
        return
    dropped = _dropped_in(schema)
    for field in looking_so:
        if field in dropped:
            raise InputError(
                f"{path}: column {field[0]!r} has the type {dropped[field]} of Parquet, which Arrow does not "
                "support: write the file again with numbers, text or another type, or leave the column out"
            )


def _dropped_in(schema: pq.ParquetSchema) -> dict[tuple[str, str], str]:
    """Returns the types that Arrow drops, by column and field."""
    columns = iter(schema.to_arrow_schema().names)
    found, column = {}, ""
    for line in str(schema).splitlines():
        if re.match(r"  [^ }]", line):
            column = next(columns, "")
        if (match := _DROPPED.search(line)) is not None:
            found[column, match[1]] = match[2].upper()
    return found


def _fields_within(field: pa.Field) -> Iterator[pa.Field]:
    yield field
    for inner in inner_fields(field.type):
        yield from _fields_within(inner)


def _may_be_dropped(dtype: pa.DataType) -> bool:
    """Returns whether Arrow reads an INTERVAL or a VARIANT as this type."""
    if pt.is_struct(dtype):
        return {"metadata", "value"} <= {field.name for field in dtype}
    return bool(pt.is_fixed_size_binary(dtype) and dtype.byte_width == _INTERVAL_BYTES)


def _foreign(path: str) -> tuple[str, str] | None:
    """Returns the first column with an unsupported type, and the type; None if none is found."""
    with Path(path).open("rb") as file:
        start = file.read(_READ_BYTES)
        file.seek(max(0, file.seek(0, os.SEEK_END) - _READ_BYTES))
        end = file.read()
    try:
        schema = _schema_in(start, end)
        fields = () if schema is None else itertools.islice(_fields(schema), _MAX_FIELDS)
        return next(((name, found) for name, field in fields if (found := _type_of(field))), None)
    except (struct.error, ValueError, RecursionError):
        return None


def _schema_in(start: bytes, end: bytes) -> FlatTable | None:
    if end.endswith(_PARQUET_END):
        note = _PARQUET_NOTE.search(end)
        return None if note is None else _schema_of(base64.b64decode(note[1]))
    if end.endswith(_ARROW_END):
        length = number_at("<I", end, len(end) - len(_ARROW_END) - 4)
        footer = end[: -len(_ARROW_END) - 4][-length:]
        return FlatTable(footer, target_at(footer, 0)).table(1)
    return _schema_of(start)


def _schema_of(message: bytes) -> FlatTable | None:
    start = 8 if message.startswith(_CONTINUATION) else 4
    root = FlatTable(message, target_at(message, start))
    return root.table(2) if root.number("<B", 1) == _SCHEMA else None


def _fields(schema: FlatTable) -> Iterator[tuple[str, FlatTable]]:
    """Yields all fields at any depth, each with its column's name."""
    for column in schema.tables(1):
        name = column.text(0)
        yield from ((name, field) for field in _with_children(column))


def _with_children(field: FlatTable) -> Iterator[FlatTable]:
    yield field
    for child in field.tables(5):
        yield from _with_children(child)


def _type_of(field: FlatTable) -> str | None:
    number, dtype = field.number("<B", 2), field.table(3)
    if number > _LAST_KNOWN:
        return f"a type of number {number}"
    if number == _INTEGER and dtype is not None and (bits := dtype.number("<i", 0)) > 64:
        return f"integers of {bits} bits"
    return None
