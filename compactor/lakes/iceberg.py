"""An Iceberg table (format V2), by the library pyiceberg and one of its catalogs.

The table's properties name our table and its published version. Files have the ids of their columns.
The library's own retries are off: a swap is tried once against the newest snapshot, which the catalog checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import types as pt
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from sqlalchemy.exc import SQLAlchemyError

from compactor.errors import ConfigError, StoreError, UsageError
from compactor.files.problems import one_line
from compactor.lakes.file import footer_of
from compactor.lakes.lake import LakeChangedError, LakeFile, LakeState, Swap
from compactor.lakes.statistics import unreadable_ranges
from compactor.lakes.types import check_paths, lake_schema
from compactor.stores.base import Store
from compactor.stores.local_files import explained, make_folder
from lsm_fragment.arrays.type_json import schema_from_json, schema_to_json

_TABLE_ID: Final = "lsm-compactor.table-id"
_TABLE_VERSION: Final = "lsm-compactor.table-version"
_SCHEMA: Final = "lsm-compactor.schema"
_CATALOG: Final = "published"
_CATALOG_FILE: Final = "catalog.db"
_METRICS: Final = f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}."
_PROPERTIES: Final = {"format-version": "2", "commit.retry.num-retries": "0"}


class _Replace(_OverwriteFiles):
    """Writes a snapshot of the operation `replace`, which the library has for no public call.

    Its own summary knows three operations only; a test holds what this relies on.
    """

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        self._operation = Operation.OVERWRITE
        summary = super()._summary(snapshot_properties or {})
        self._operation = Operation.REPLACE
        return Summary(Operation.REPLACE, **summary.additional_properties)


class IcebergLake:
    """The Iceberg table as a `Lake`."""

    folder = "data/"
    fills_columns = True
    is_followed = True

    def __init__(self, store: Store, table_id: str, catalog: str | None, name: str | None) -> None:
        """catalog: one of pyiceberg's configuration; None for a file in the destination, which has to be a
        local folder. name: the table's name in it, after its namespace."""
        self._store = store
        self._table_id = table_id
        self._is_local = "://" not in store.url
        self._location = f"file://{store.url}" if self._is_local else store.url
        self._catalog_name = catalog
        self._name = name or f"{_CATALOG}.{_plain_name(store.url)}"
        if not all(self._name.rpartition(".")):
            raise UsageError(f"--name {self._name}: write NAMESPACE.TABLE")
        if catalog is None and not self._is_local:
            raise UsageError(
                f"{store.url}: a catalog's file has to be in a local folder: name a catalog by --catalog"
            )

    @cached_property
    def _catalog(self) -> Catalog:
        if self._catalog_name is None:
            folder = Path(self._store.url)
            with explained(folder):
                make_folder(folder)
            address = f"sqlite:///{folder / _CATALOG_FILE}"
            return load_catalog(_CATALOG, type="sql", uri=address, warehouse=self._location)
        try:
            return load_catalog(self._catalog_name)
        except ValueError as error:
            raise ConfigError(
                f"--catalog {self._catalog_name}: {one_line(error)}: describe it in .pyiceberg.yaml or by "
                "PYICEBERG_CATALOG__ variables"
            ) from error

    def types(self, schema: pa.Schema) -> pa.Schema:
        check_paths(found := lake_schema(schema, "Iceberg", _special), "Iceberg")
        return found

    def state(self) -> LakeState | None:
        is_empty = next(self._store.list(""), None) is None
        if is_empty and self._catalog_name is None:
            return None
        if self._catalog_name is None and not self._has_catalog():
            raise self._something_else()
        with self._errors():
            table = self._table()
            if table is None and (is_empty or self._catalog_name is None):
                return None
            if table is None:
                raise self._something_else()
            self._check(table)
            return LakeState(
                _version_of(table),
                int(table.properties[_TABLE_VERSION]),
                schema_from_json(json.loads(table.properties[_SCHEMA])),
                {
                    name: LakeFile(name, file.record_count, file.file_size_in_bytes)
                    for name, file in self._files(table).items()
                },
            )

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002
        return schema

    def file_schema(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        """Adds the ids of columns, by which readers find them; new columns have those that a swap gives."""
        with self._errors():
            table = self._at(base)
            transaction = table.transaction()  # It is never committed.
            _change_columns(transaction, base.schema, schema)
            known = transaction.table_metadata.schema()
        fields = [_with_id(field, known.find_field(field.name)) for field in schema]
        return pa.schema(fields, schema.metadata)

    def create(self, schema: pa.Schema) -> None:
        with self._errors():
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            # Another publisher may have created it.
            with suppress(TableAlreadyExistsError):
                self._catalog.create_table(
                    self._name,
                    schema,
                    location=self._location,
                    properties={
                        **_PROPERTIES,
                        _TABLE_ID: self._table_id,
                        _TABLE_VERSION: "0",
                        _SCHEMA: json.dumps(schema_to_json(schema)),
                    },
                )

    def replace(self, base: LakeState, swap: Swap) -> None:
        with self._errors():
            table = self._at(base)
            try:
                with table.transaction() as transaction:
                    _change_columns(transaction, base.schema, swap.schema)
                    transaction.set_properties(_properties_of(swap))
                    self._swap(table, transaction, swap)
            except CommitFailedException as error:
                raise LakeChangedError from error

    def tidy(self, state: LakeState) -> None:
        """Leaves old files to Iceberg's own maintenance, since readers may be at earlier snapshots."""

    def _swap(self, table: IcebergTable, transaction: Transaction, swap: Swap) -> None:
        if not (swap.adds or swap.removes):
            return
        writes = _Replace if swap.keeps_rows else _OverwriteFiles
        files = self._files(table)
        with writes(operation=_operation(swap), transaction=transaction, io=table.io) as update:
            for file in swap.removes:
                update.delete_data_file(files[file.name])
            for file in swap.adds:
                update.append_data_file(self._data_file(table.io, transaction.table_metadata, file))

    def _data_file(self, io: FileIO, metadata: TableMetadata, file: LakeFile) -> DataFile:
        """Describes a file by its footer, without the bounds that Python lacks, of which the library makes
        an error."""
        key = self.folder + file.name
        path = f"{self._location}/{key}"
        try:
            return parquet_file_to_data_file(io, metadata, path)
        except OverflowError:
            names = unreadable_ranges(footer_of(self._store, key, file.size_bytes))
        counted = {**metadata.properties, **{_METRICS + name: "counts" for name in names}}
        metadata = metadata.model_copy(update={"properties": counted})
        return parquet_file_to_data_file(io, metadata, path)

    def _table(self) -> IcebergTable | None:
        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _at(self, base: LakeState) -> IcebergTable:
        """Returns the table, if `base` is its newest version."""
        table = self._table()
        if table is None or _version_of(table) != base.version:
            raise LakeChangedError
        return table

    def _files(self, table: IcebergTable) -> dict[str, DataFile]:
        """Returns the live files by name. Raises `UsageError` if another program has deleted rows of some."""
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise UsageError(
                f"{self._store.url}: another program has deleted rows there, which publishing would not see: "
                "publish into an empty folder"
            )
        return {task.file.file_path.rpartition("/")[2]: task.file for task in tasks}

    def _has_catalog(self) -> bool:
        return any(info.key == _CATALOG_FILE for info in self._store.list(_CATALOG_FILE))

    def _check(self, table: IcebergTable) -> None:
        """Raises `UsageError` for a table that is no copy of ours, or at another place."""
        if table.properties.get(_TABLE_ID) != self._table_id:
            raise UsageError(
                f"{self._store.url}: {self._name} in the catalog is no copy of this table: choose another "
                "--name"
            )
        if table.location().rstrip("/") != self._location.rstrip("/"):
            raise UsageError(
                f"{self._store.url}: {self._name} in the catalog is at {table.location()}: publish there, or "
                "choose another --name"
            )

    def _something_else(self) -> UsageError:
        return UsageError(
            f"{self._store.url}: holds something else, and not the Iceberg table {self._name}: name an empty "
            "folder, or one that was published as iceberg before"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises `StoreError` for an error of the library or its catalog."""
        try:
            yield
        except (RESTError, CommitStateUnknownException, SQLAlchemyError, OSError) as error:
            raise StoreError(
                f"{self._store.url}: Iceberg: {one_line(error)}: run the command again"
            ) from error


def _version_of(table: IcebergTable) -> int:
    metadata = table.metadata
    assert not isinstance(metadata, TableMetadataV1), "the table was made with V2"
    return metadata.last_sequence_number


def _operation(swap: Swap) -> Operation:
    if swap.keeps_rows:
        return Operation.REPLACE
    if swap.removes and swap.adds:
        return Operation.OVERWRITE
    return Operation.APPEND if swap.adds else Operation.DELETE


def _change_columns(transaction: Transaction, before: pa.Schema, after: pa.Schema) -> None:
    """Makes the columns those of another schema. Columns from the first that differs on become new ones."""
    if before == after:
        return
    same = [a for a, b in zip(before, after, strict=False) if a == b]
    while list(before)[: len(same)] != same or list(after)[: len(same)] != same:
        same.pop()
    if len(same) < len(before):
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in list(before)[len(same) :]:
                update.delete_column((field.name,))
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        update.union_by_name(after)


def _properties_of(swap: Swap) -> dict[str, str]:
    """Returns the properties of the table that a swap changes."""
    properties = {_SCHEMA: json.dumps(schema_to_json(swap.schema))}
    if swap.table_version is not None:
        properties[_TABLE_VERSION] = str(swap.table_version)
    return properties


def _with_id(field: pa.Field, known: NestedField) -> pa.Field:
    return _identified(field.with_type(_with_ids(field.type, known.field_type)), known.field_id)


def _with_ids(dtype: pa.DataType, known: IcebergType) -> pa.DataType:
    """Adds the ids of the fields within a type."""
    if isinstance(known, StructType):
        pairs = zip(dtype.fields, known.fields, strict=True)
        return pa.struct([_with_id(field, other) for field, other in pairs])
    if isinstance(known, MapType):
        key, item = (
            _with_ids(dtype.key_type, known.key_type),
            _with_ids(dtype.item_type, known.value_type),
        )
        return pa.map_(
            _identified(dtype.key_field.with_type(key), known.key_id),
            _identified(dtype.item_field.with_type(item), known.value_id),
        )
    if isinstance(known, ListType):
        element = dtype.value_field.with_type(_with_ids(dtype.value_type, known.element_type))
        return pa.list_(_identified(element, known.element_id))
    return dtype


def _identified(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({b"PARQUET:field_id": str(number).encode()})


def _special(dtype: pa.DataType) -> pa.DataType | None:
    if pt.is_time(dtype):
        return pa.time64("us")
    return pa.int32() if dtype in (pa.int8(), pa.int16()) else None


def _plain_name(url: str) -> str:
    """Returns the last part of an address as catalogs and SQL take it without quotes."""
    return re.sub(r"\W", "_", url.rstrip("/").rpartition("/")[2]) or "table"
