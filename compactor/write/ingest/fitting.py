"""Checks that stored values fit new column types: finer time units span fewer years."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from compactor.errors import InputError
from compactor.read.fragment_columns import open_logged_fragment
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.cast import exact_range
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.footer import ChunkStats


class FittingCheck:
    """A check of fragments for one commit, which may be tried several times.

    Caches the fragments that fit.
    """

    def __init__(self, store: Store, path: str) -> None:
        """path: the ingested file, for errors."""
        self._store = store
        self._path = path
        self._fitting: set[tuple[str, str, pa.DataType]] = set()
        """(key, column, target type) of chunks found to fit."""

    def check_live(
        self, entries: Iterable[FragmentEntry], before: TableMetadata, after: TableMetadata
    ) -> None:
        """Raises `InputError` for the first value in the table's fragments that does not fit its column's new
        type."""
        for column, value, stored, fragment in self._misfits(entries, before.schema, after):
            wanted = after.shown_schema.field(column).type
            raise InputError(
                f"{self._path}: column {column!r} would become {wanted}, which does not hold "
                f"{value} of type {stored} in {fragment}; nothing was added: cast the file's column to "
                f"{stored}, or delete such rows, run `compactor compact --strategy full`, and ingest the "
                "file again"
            )

    def check_earlier(
        self,
        entries: Iterable[FragmentEntry],
        file: str,
        before: TableMetadata,
        after: TableMetadata,
    ) -> None:
        """Raises `InputError` for the first value of an earlier file of the same commit that does not fit its
        column's new type."""
        for column, value, stored, _ in self._misfits(entries, before.schema, after):
            wanted = after.shown_schema.field(column).type
            raise InputError(
                f"{self._path}: column {column!r} would become {wanted}, which does not hold {value} of type "
                f"{stored} in {file}; it was not added: leave that row or this file out"
            )

    def check_own(
        self, entries: Iterable[FragmentEntry], planned: TableMetadata, after: TableMetadata
    ) -> None:
        """Raises `InputError` for the first new value that does not fit a type that its column got
        meanwhile."""
        for column, value, stored, _ in self._misfits(entries, planned.schema, after):
            wanted = after.shown_schema.field(column).type
            raise InputError(
                f"{self._path}: column {column!r} has become {wanted} meanwhile, which does not "
                f"hold {value} of type {stored}; nothing was added: leave the row out, or ingest the "
                "file into another table"
            )

    def _misfits(
        self, entries: Iterable[FragmentEntry], written: pa.Schema, table: TableMetadata
    ) -> Iterator[tuple[str, int, pa.DataType, str]]:
        """Yields (shown column, value, its type, fragment) for each value that does not fit.

        Reads footers only if the table's type differs from the written type and may be too narrow.
        """
        known = set(written.names)
        columns = [
            field
            for field in table.schema
            if field.name in known
            and _range(written.field(field.name).type, field.type) is not None
        ]
        for entry in entries if columns else ():
            unknown = {
                (entry.key, field.name, field.type)
                for field in columns
                if field.name in entry.columns
            } - self._fitting
            if not unknown:
                continue
            reader = open_logged_fragment(self._store, entry)
            for _, name, wanted in sorted(unknown, key=str):
                field = reader.footer.field(name)
                if field is None:
                    continue
                for value in _outside(_range(field.type, wanted), reader.footer.chunks(name)):
                    yield table.shown_name(name), value, field.type, reader.name
            self._fitting |= unknown


def _range(source: pa.DataType, target: pa.DataType) -> tuple[int, int] | None:
    return exact_range(storage_type(source), storage_type(target))


def _outside(bounds: tuple[int, int] | None, chunks: Iterable[ChunkStats]) -> Iterator[int]:
    if bounds is not None:
        for chunk in chunks:
            for value in (chunk.min, chunk.max):
                if isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
                    yield value
