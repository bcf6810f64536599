"""Reading for the Spark data source: what the driver plans, and what a task reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from compactor.files.source import sliced
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.report import ScanReport
from compactor.read.scan import scan_schema
from compactor.read.scan_tasks import Part, read_parts, tasks_of
from compactor.spark.source.filters import condition_of, with_filters
from compactor.spark.source.options import CallOptions, ReadOptions
from compactor.spark.source.types import as_spark, check_asked, check_names, spark_schema
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from format.types import storage_type

_BATCH_BYTES: Final = 8 << 20
"""Of what goes to the JVM at a time."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A table at one version."""

    url: str
    snapshot: Snapshot


def opened(call: CallOptions, version: int | None) -> Opened:
    """version: at which it was opened before; None: as the options say.

    Raises `UsageError`, `TableNotFoundError`, `VersionNotFoundError`, `StoreError`.
    """
    options = call.read()
    store = open_store(call.path)
    as_of = options.as_of if version is None else None
    snapshot = CommitLog(store).at(version or options.version, as_of)
    return Opened(store.url, snapshot)


def schema_of(table: Opened, options: ReadOptions) -> StructType:
    """Of the columns asked for. Raises `UsageError` for one that is unknown or of no type of Spark's, and for
    a wrong condition."""
    if options.columns is not None:
        check_names(options.columns, table.snapshot.table.shown_schema, table.url)
    if options.where is not None:
        condition_on(table.snapshot.table, options.where)
    return spark_schema(scan_schema(table.snapshot.table, options.columns), table.url)


class FragmentsReader(DataSourceReader):
    """Picklable without the snapshot: tasks are told the fragments they read."""

    def __init__(self, table: Opened, options: ReadOptions, schema: StructType) -> None:
        """schema: of columns of the table, in any order. Raises `UsageError`."""
        asked = schema.fieldNames()
        check_names(asked, table.snapshot.table.shown_schema, table.url)
        found = spark_schema(scan_schema(table.snapshot.table, asked), table.url)
        check_asked(schema, found, table.url)
        self._url = table.url
        self._metadata = table.snapshot.table
        self._snapshot: Snapshot | None = table.snapshot
        self._schema = schema
        self._options = options
        self._where: Predicate | None = None
        if options.where is not None:
            self._where = condition_on(table.snapshot.table, options.where)
        self.planned = ScanReport()
        """What planning left out."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> list[InputPartition]:
        """Each with parts of the table for a task."""
        assert self._snapshot is not None, "partitions are planned where the reader is made"
        self.planned = ScanReport()
        tasks = tasks_of(self._snapshot, self._where, self._options.task_bytes, self.planned)
        # None at all would be taken for one that has everything.
        return [InputPartition(parts) for parts in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows in no certain order. Raises `DataError`, `FormatError`, `StoreError`."""
        return self.read_reporting(partition.value, ScanReport())

    def read_reporting(
        self, parts: tuple[Part, ...], report: ScanReport
    ) -> Iterator[pa.RecordBatch]:
        """As `read`. report: counts what is read and skipped."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        cuts = self._options.nanoseconds == "cut"
        store, columns = open_store(self._url), self._schema.fieldNames()
        for batch in read_parts(store, self._metadata, parts, columns, self._where, report):
            converted = as_spark(batch, schema, self._url, cuts_nanoseconds=cuts)
            yield from sliced(converted, _BATCH_BYTES)


class SingleUseReader(FragmentsReader):
    """Takes filters of Spark's. Spark 4 keeps them with what was loaded, not with the query: another scan of
    it would have them too. So only where the user said that there is none."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Those that are left to Spark."""
        left, conditions = [], []
        for each in filters:
            condition = condition_of(each, self._metadata)
            if condition is None or self._is_cut(condition):
                left.append(each)
            else:
                conditions.append(condition)
        self._where = with_filters(self._where, conditions)
        return left

    def _is_cut(self, condition: Predicate) -> bool:
        """Whether Spark gets to see other values than those that the condition is about."""
        if self._options.nanoseconds != "cut":
            return False
        types = [storage_type(self._metadata.schema.field(c).type) for c in columns_of(condition)]
        return any(pt.is_timestamp(dtype) and dtype.unit == "ns" for dtype in types)
