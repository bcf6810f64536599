"""Reads whole columns of some row groups of one stored fragment."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from compactor.errors import DataError
from compactor.stores.base import Store
from compactor.table.overtaken import overtaken_explained
from format.cast import widened
from format.reader import FragmentReader
from format.types import storage_type
from format.widening import is_stored_as


class StoredObject:
    """An object of a store as `FragmentReader` reads it."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    def read_range(self, start: int, length: int) -> bytes:
        with overtaken_explained(self._store, self._key):
            return self._store.read_range(self._key, start, length)


def open_fragment(store: Store, key: str, size_bytes: int) -> FragmentReader:
    """Opens one fragment for random access.

    Raises `FormatError`, `ObjectNotFoundError`, `OvertakenError`.
    """
    return FragmentReader(StoredObject(store, key), size_bytes, f"{store.url}/{key}")


def read_columns(
    reader: FragmentReader, group: int, names: Collection[str], schema: pa.Schema
) -> dict[str, pa.Array]:
    """Returns columns of one row group by name, as storage arrays of the table's types.

    A column that the fragment does not have is all null. schema: the table's. Raises `DataError` where the
    stored type or a value does not fit the table's type.
    """
    rows = reader.footer.row_groups[group].rows
    reader.footer.fetch(names)
    present = []
    for name in names:
        field, wanted = reader.footer.field(name), schema.field(name).type
        if field is None:
            continue
        present.append(name)
        found = field.type
        if not is_stored_as(found, wanted):
            raise DataError(
                f"{reader.name}: column {name!r} is stored as {found}, which cannot be read as the table's "
                f"{wanted}"
            )
    stored = dict(zip(present, reader.read_storage(present, [group])[0], strict=True))
    try:
        return {name: _typed(stored.get(name), rows, schema.field(name).type) for name in names}
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{reader.name}: a value does not fit the type that the table has now: {error}"
        ) from error


def _typed(array: pa.Array | None, rows: int, dtype: pa.DataType) -> pa.Array:
    """Returns `array` in the table's type, or nulls where the fragment does not have the column."""
    if array is None or pa.types.is_null(array.type):
        return pa.nulls(rows, storage_type(dtype))
    return widened(array, storage_type(dtype))
