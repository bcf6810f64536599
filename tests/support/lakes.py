"""Copies of tables for tests: publishes them, and reads them by the libraries of other engines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from compactor.lakes.delta import DeltaLake
from compactor.lakes.iceberg import IcebergLake
from compactor.lakes.lake import Lake, LakeKind, LakeState, Swap
from compactor.lakes.parquet import ParquetFolder
from compactor.lakes.publish import Publisher
from compactor.lakes.publish_report import PublishReport
from compactor.read.scan import scan
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot

KINDS: Final = tuple(LakeKind)
Rows = Counter[Any]


def rows_of(table: pa.Table) -> Rows:
    """Returns the rows with the names of their columns, each as often as it is there."""
    columns = [table[name].to_pylist() for name in table.column_names]
    plain = ([_plain(value) for value in column] for column in columns)
    return Counter((tuple(table.column_names), row) for row in zip(*plain, strict=True))


def _plain(value: Any) -> Any:
    """Returns a value that is hashable."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in value.items())
    return value


def scanned(store: Store, snapshot: Snapshot) -> Rows:
    schema = snapshot.table.shown_schema
    return rows_of(pa.Table.from_batches(scan(store, snapshot), schema))


class Copy:
    """A copy of a table in a local folder."""

    def __init__(self, log: CommitLog, folder: Path, kind: LakeKind) -> None:
        self.log, self.folder, self.kind = log, folder, kind
        self.store: Store = LocalStore(folder)

    def lake(self, store: Store | None = None) -> Lake:
        target, table_id = store or self.store, self.log.current().table_id
        if self.kind is LakeKind.PARQUET:
            return ParquetFolder(target, table_id)
        if self.kind is LakeKind.DELTA:
            return DeltaLake(target, table_id)
        return IcebergLake(target, table_id, None, None)

    def publisher(
        self, *, lake: Lake | None = None, store: Store | None = None, **options: Any
    ) -> Publisher:
        store = store or self.store
        return Publisher(self.log, store, lake or self.lake(store), **options)

    def publish(self, **options: Any) -> PublishReport:
        return self.publisher(**options).publish()

    # --- as other engines read it ---

    def rows(self) -> Rows:
        """Returns the rows of the newest version."""
        return next((rows for _, rows in self.versions(1)), Counter())

    def versions(self, last: int = 1000) -> Iterator[tuple[bool, Rows]]:
        """Yields the rows of the last versions, and whether the commit of each claims to keep all rows."""
        if self.kind is LakeKind.PARQUET:
            for path in sorted(self.folder.glob("_published/*.json"))[-1:]:
                names = [file["name"] for file in json.loads(path.read_text())["files"]]
                yield False, _read([self.folder / name for name in names])
        elif self.kind is LakeKind.DELTA:
            newest = self.delta().version()
            for version in range(max(0, newest + 1 - last), newest + 1):
                table = DeltaTable(self.folder, version=version)
                yield self._delta_keeps(version), rows_of(table.to_pyarrow_table())
        else:
            iceberg = self.iceberg()
            for snapshot in iceberg.snapshots()[-last:]:
                found = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
                assert snapshot.summary is not None
                is_replace = snapshot.summary.operation.value == "replace"
                yield is_replace, rows_of(found)

    def delta(self) -> DeltaTable:
        return DeltaTable(self.folder)

    def delta_actions(self, version: int) -> list[dict[str, Any]]:
        path = self.folder / "_delta_log" / f"{version:020d}.json"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def _delta_keeps(self, version: int) -> bool:
        files = [
            next(iter(a.values()))
            for a in self.delta_actions(version)
            if {"add", "remove"} & a.keys()
        ]
        return bool(files) and not any(file["dataChange"] for file in files)

    def iceberg(self) -> IcebergTable:
        catalog = SqlCatalog(
            "published",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=f"file://{self.folder}",
        )
        return catalog.load_table(f"published.{self.folder.name}")

    def files(self) -> list[Path]:
        """Returns the Parquet files that are there, live or not."""
        return sorted(self.folder.glob("**/*.parquet"))


def _read(paths: list[Path]) -> Rows:
    return sum((rows_of(pq.read_table(path)) for path in paths), Counter())


class Meeting:
    """A lake that meets others: `before` and `after` are called at each commit, with its number."""

    def __init__(self, lake: Lake, before: Any = None, after: Any = None) -> None:
        self._lake = lake
        self._before, self._after = before, after
        self._commits = 0
        self.folder, self.fills_columns = lake.folder, lake.fills_columns
        self.is_followed = lake.is_followed

    def types(self, schema: pa.Schema) -> pa.Schema:
        return self._lake.types(schema)

    def state(self) -> LakeState | None:
        return self._lake.state()

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        return self._lake.arranged(base, schema)

    def file_schema(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        return self._lake.file_schema(base, schema)

    def create(self, schema: pa.Schema) -> None:
        self._lake.create(schema)

    def replace(self, base: LakeState, swap: Swap) -> None:
        self._commits += 1
        if self._before:
            self._before(self._commits)
        self._lake.replace(base, swap)
        if self._after:
            self._after(self._commits)

    def tidy(self, state: LakeState) -> None:
        self._lake.tidy(state)
