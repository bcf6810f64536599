"""A Delta table, by the library deltalake.

Each commit names the version of our table as that of a transaction of an application named after the table.
The library's own retries are off: with them, two rewrites of the same files would both be committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, TableFeatures, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import types as pt

from compactor.common.clock import SystemClock
from compactor.errors import StoreError, UsageError
from compactor.lakes.file import footer_of
from compactor.lakes.lake import LakeChangedError, LakeFile, LakeState, Swap
from compactor.lakes.order import in_known_order
from compactor.lakes.statistics import column_ranges
from compactor.lakes.types import check_cases, lake_schema
from compactor.stores.base import Store
from compactor.stores.local_files import explained, make_folder
from lsm_fragment.arrays.types import contains

_LOG: Final = "_delta_log/"
_TIMES_FEATURE: Final = "timestampNtz"
_SKIPPED_BY: Final = "delta.dataSkippingStatsColumns"
"""The property that names the columns by which readers may skip files."""
_PLAIN: Final = re.compile(r"\w+", re.ASCII)
_DRAWN: Final = re.compile(r"\x1b\[\d*m|↳")
"""Colours and arrows in the library's errors."""
_OPTIONS: Final = {"allow_http": "true"}
"""Of the library's own store, which reads the others from the environment."""


_Stats = dict[str, Any]


class DeltaLake:
    """The Delta table as a `Lake`."""

    folder = ""
    fills_columns = True
    is_followed = True

    def __init__(self, store: Store, table_id: str) -> None:
        self._store = store
        self._application = f"lsm-compactor/{table_id}"

    def types(self, schema: pa.Schema) -> pa.Schema:
        check_cases(found := lake_schema(schema, "Delta", lambda _: None), "Delta")
        return found

    def state(self) -> LakeState | None:
        if next(self._store.list(_LOG), None) is None:
            if (other := next(self._store.list(""), None)) is not None:
                raise UsageError(
                    f"{self._store.url}: holds {other.key} and no Delta table: name an empty folder, or one "
                    "that was published as delta before"
                )
            return None
        with self._errors():
            table = self._open()
            version = table.transaction_version(self._application)
            if version is None:
                raise UsageError(
                    f"{self._store.url}: holds a Delta table that is no copy of this table: name another "
                    "folder"
                )
            if _has_deletion_vectors(table):
                raise UsageError(
                    f"{self._store.url}: another program has deleted rows there, which publishing would not "
                    "see: publish into an empty folder"
                )
            adds = pa.table(table.get_add_actions(flatten=True)).select(
                ["path", "num_records", "size_bytes"]
            )
            return LakeState(
                table.version(),
                version,
                pa.schema(table.schema().to_arrow()),
                {
                    path: LakeFile(path, rows or 0, size)
                    for path, rows, size in zip(
                        *(column.to_pylist() for column in adds.columns), strict=True
                    )
                },
            )

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        """Keeps the order of the lake: the library changes no metadata where only the order differs."""
        return in_known_order(base.schema, schema)

    def file_schema(self, base: LakeState, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002
        return schema

    def create(self, schema: pa.Schema) -> None:
        if "://" not in self._store.url:
            with explained(folder := Path(self._store.url)):
                make_folder(folder)
        try:
            with self._errors():
                DeltaTable.create(
                    self._store.url,
                    DeltaSchema.from_arrow(schema),
                    storage_options=_OPTIONS,
                    configuration=_naming(_skippable(schema)),
                    commit_properties=self._properties(0),
                )
        except StoreError:
            if next(self._store.list(_LOG), None) is None:
                raise  # Otherwise another publisher has created it.

    def replace(self, base: LakeState, swap: Swap) -> None:
        try:
            with self._errors():
                self._replace(base, swap)
        except CommitFailedError as error:
            raise LakeChangedError from error

    def tidy(self, state: LakeState) -> None:
        """Leaves old files to the table's vacuum, since readers may be at earlier versions."""

    def _replace(self, base: LakeState, swap: Swap) -> None:
        table = self._open(base.version)
        properties = self._properties(swap.table_version)
        added = list(swap.schema)[len(base.schema) :]
        is_same = list(swap.schema)[: len(base.schema)] == list(base.schema)
        if is_same and added:
            fields = DeltaSchema.from_arrow(pa.schema(added)).fields
            table.alter.add_columns(fields, commit_properties=self._properties(None))
        added_files = [(file, self._stats(file, swap.schema)) for file in swap.adds]
        named = _names_in(table)
        skippable = _skippable_in(
            [stats for _, stats in added_files],
            named if is_same and base.files else _skippable(swap.schema),
        )
        # None that files of before may lack: readers see each commit.
        self._name(table, skippable.intersection(named))
        adds: list[AddAction | RemoveAction] = [
            self._add(file, stats, keeps_rows=swap.keeps_rows) for file, stats in added_files
        ]
        if is_same:
            now = SystemClock().now_unix_ms()
            adds += [
                RemoveAction(file.name, not swap.keeps_rows, now, file.size_bytes, {})
                for file in swap.removes
            ]
        else:
            assert len(swap.removes) == len(base.files), "an overwrite removes all files there are"
            self._allow_types(table, swap.schema)
        table.create_write_transaction(
            adds,
            # Only an overwrite may change columns.
            "append" if is_same else "overwrite",
            DeltaSchema.from_arrow(swap.schema),
            commit_properties=properties,
        )
        if not skippable.issubset(named):
            self._name(self._open(), skippable)

    def _allow_types(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Enables what times without a zone need of readers, which an overwrite does not do by itself.

        Without it a table that has such a column can't be opened by anybody.
        """
        features = table.protocol().reader_features or ()
        if _TIMES_FEATURE not in features and any(map(_has_local_times, schema.types)):
            table.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=self._properties(None),
            )

    def _name(self, table: DeltaTable, names: set[str]) -> None:
        """Names the columns by which readers may skip files, unless these are named already."""
        if names != _names_in(table):
            # It keeps the interpreter's lock until the store answers, so most tables are created with it.
            table.alter.set_table_properties(
                _naming(names), commit_properties=self._properties(None)
            )

    def _stats(self, file: LakeFile, schema: pa.Schema) -> _Stats:
        """Returns a file's statistics as the log has them. schema: of the lake."""
        footer = footer_of(self._store, self.folder + file.name, file.size_bytes)
        ranges = column_ranges(footer)
        held = set(footer.schema.to_arrow_schema().names)
        absent = [f.name for f in schema if f.name not in held and not pt.is_nested(f.type)]
        return {
            "numRecords": file.rows,
            "minValues": {
                name: _text(part.least) for name, part in ranges.items() if part.is_known
            },
            "maxValues": {name: _text(part.most) for name, part in ranges.items() if part.is_known},
            "nullCount": {name: part.nulls for name, part in ranges.items()}
            | dict.fromkeys(absent, file.rows),
        }

    def _add(self, file: LakeFile, stats: _Stats, *, keeps_rows: bool) -> AddAction:
        key = self.folder + file.name
        modified = round(self._store.head(key).modified_unix_seconds * 1000)
        return AddAction(
            file.name, file.size_bytes, {}, modified, not keeps_rows, json.dumps(stats)
        )

    def _open(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._store.url, version=version, storage_options=_OPTIONS)

    def _properties(self, table_version: int | None) -> CommitProperties:
        named = [] if table_version is None else [Transaction(self._application, table_version)]
        return CommitProperties(max_commit_retries=0, app_transactions=named)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises `StoreError` for an error of the library, except for a lost race."""
        try:
            yield
        except CommitFailedError:
            raise
        except (DeltaError, OSError) as error:
            raise StoreError(f"{self._store.url}: Delta: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """Returns the first line of an error of the library, and the last, which is its cause."""
    lines = (_DRAWN.sub("", line).strip() for line in str(error).splitlines())
    first, *others = [line for line in lines if line] or [type(error).__name__]
    return ": ".join([first, *others[-1:]]).rstrip(". ")


def _skippable(schema: pa.Schema) -> list[str]:
    """Returns the columns whose files have statistics, but for odd values."""
    return [
        field.name
        for field in schema
        if _PLAIN.fullmatch(field.name)
        and any(
            kind(field.type) for kind in (pt.is_integer, pt.is_date, pt.is_timestamp, pt.is_string)
        )
    ]


def _skippable_in(stats: Iterable[_Stats], names: Iterable[str]) -> set[str]:
    """Returns those of the columns that have statistics in all of some files.

    By others the library's own readers skip too much: they take a bound that a file lacks for one that no row
    of the file is within.
    """
    found = set(names)
    for each in stats:
        nulls = each["nullCount"].items()
        empty = {name for name, count in nulls if count == each["numRecords"]}
        found &= empty.union(each["minValues"])
    return found


def _naming(names: Iterable[str]) -> dict[str, str]:
    """Returns the property that names columns by which readers may skip files."""
    return {_SKIPPED_BY: ",".join(sorted(names))}


def _names_in(table: DeltaTable) -> set[str]:
    return set(filter(None, table.metadata().configuration.get(_SKIPPED_BY, "").split(",")))


def _has_deletion_vectors(table: DeltaTable) -> bool:
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return False
    return bool(pa.table(table.deletion_vectors()).num_rows)


def _has_local_times(dtype: pa.DataType) -> bool:
    return contains(dtype, lambda part: pt.is_timestamp(part) and part.tz is None)


def _text(value: object) -> object:
    """Returns a value as Delta's statistics have it."""
    return value if isinstance(value, int | str) else value.isoformat()  # type: ignore[attr-defined]
