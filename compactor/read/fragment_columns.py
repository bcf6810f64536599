"""Reads columns of single row groups of a stored fragment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from compactor.errors import DamagedInputError, DataError
from compactor.read.templated_column import TemplatedColumn
from compactor.stores.base import Store
from compactor.stores.local import is_on_local_disk
from compactor.table.damage import check_is_logged
from compactor.table.entry import FragmentEntry
from compactor.table.stored_object import StoredObject
from lsm_fragment.arrays.cast import read_as
from lsm_fragment.arrays.moves import keep
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.arrays.widening import becomes_json, is_stored_as
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.template_chunk import TemplateChunk
from lsm_fragment.threads import ALONE, ThreadPool

Column: TypeAlias = pa.Array | TemplatedColumn
"""A column of a row group: a storage array, or strings stored as templates."""
_REQUEST_BYTES: Final = 2 << 20
"""Read a chunk whole if its rest is at most this long: another request would take as much time."""
_ROW_BYTES: Final = 8
"""Minimum memory per row: the footer has no bytes for columns whose values are all null."""


def open_logged_fragment(store: Store, entry: FragmentEntry) -> FragmentReader:
    """Opens a fragment of a table for random access.

    Raises what `open_fragment` raises, and `DamagedInputError` for another one than the log describes.
    """
    reader = open_fragment(store, entry.key, entry.size_bytes)
    check_is_logged(reader.name, reader.footer, entry, DamagedInputError)
    return reader


def open_fragment(store: Store, key: str, size_bytes: int) -> FragmentReader:
    """Opens an object that is a fragment for random access.

    Raises `FormatError`, `FragmentMissingError`, `OvertakenError`.
    """
    request_bytes = 0 if is_on_local_disk(store) else _REQUEST_BYTES
    name = f"{store.url}/{key}"
    return FragmentReader(StoredObject(store, key), size_bytes, name, request_bytes=request_bytes)


def held_bytes(reader: FragmentReader, group: int, names: Collection[str]) -> int:
    """Estimates the memory of columns of a row group by the footer's statistics."""
    reader.footer.fetch(names)
    minimum = _ROW_BYTES * reader.footer.row_groups[group].rows
    chunks = (reader.footer.chunks(name) for name in names)
    return sum(max(found[group].held_bytes if found else 0, minimum) for found in chunks)


def read_columns(
    reader: FragmentReader,
    group: int,
    names: Collection[str],
    schema: pa.Schema,
    pool: ThreadPool = ALONE,
    *,
    needs_text: bool = True,
) -> dict[str, Column]:
    """Returns columns of one row group by name, in the storage types of the table.

    Strings stored as templates are not decoded yet, unless their type changes. A column that the fragment
    lacks is all null. schema: the table's. pool: reads and decodes several columns at a time. needs_text: see
    `FragmentReader.read_lazily`. Raises `DataError` if the stored type or a value does not fit the table's
    type.
    """
    reader.footer.fetch(names)
    for name in names:
        _check_type(reader, name, schema.field(name).type)
    arrays = pool.each(
        lambda name: _read_column(
            reader, group, name, schema.field(name).type, needs_text=needs_text
        ),
        names,
    )
    return dict(zip(names, arrays, strict=True))


def _check_type(reader: FragmentReader, name: str, wanted: pa.DataType) -> None:
    field = reader.footer.field(name)
    if field is not None and not is_stored_as(field.type, wanted):
        raise DataError(
            f"{reader.name}: column {name!r} is stored as {field.type}, which cannot be read as the table's "
            f"{wanted}"
        )


def rows_of(column: Column, kept: pa.BooleanArray | None) -> pa.Array:
    """Filters the rows of a column. kept: bool without nulls; None for all rows."""
    if isinstance(column, TemplatedColumn):
        return column.texts(kept)
    return column if kept is None else keep(column, np.asarray(kept))


def _read_column(
    reader: FragmentReader, group: int, name: str, wanted: pa.DataType, *, needs_text: bool
) -> Column:
    rows = reader.footer.row_groups[group].rows
    field = reader.footer.field(name)
    if field is None or pa.types.is_null(field.type):
        return pa.nulls(rows, storage_type(wanted))
    found = reader.read_lazily(name, group, needs_text=needs_text)
    if isinstance(found, TemplateChunk):
        if found.dtype == storage_type(wanted) and not becomes_json(field.type, wanted):
            return TemplatedColumn(found)
        found = found.texts()
    try:
        return read_as(found, field.type, wanted)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{reader.name}: a value does not fit the type that the table has now: {error}"
        ) from error
