"""Reads tables for the Spark data source: Spark's driver plans partitions, tasks read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from compactor.files.source import sliced
from compactor.predicate.tree import Predicate, columns_of
from compactor.read.changes import changes_schema
from compactor.read.pruning import without_unreadable
from compactor.read.read_reports import ScanReport
from compactor.read.scan_tasks import Part, read_parts, tasks_of
from compactor.read.wanted import scan_schema
from compactor.spark.source.filters import condition_of, with_filters
from compactor.spark.source.source_options import CallOptions, ReadOptions
from compactor.spark.source.types import as_spark, check_asked, check_names, spark_schema
from compactor.spark.workers import freeze_worker, task_cores
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from compactor.table.tags import Moment
from lsm_fragment.arrays.types import storage_type

BATCH_BYTES: Final = 8 << 20
"""Size of batches sent to the JVM."""
log = logging.getLogger(__name__)


class Opened(Struct, frozen=True):
    """A table opened at one version."""

    url: str
    snapshot: Snapshot


def opened(call: CallOptions, version: int | None) -> Opened:
    """Opens a table. version: None for the version that the options name.

    Raises `UsageError`, `TableNotFoundError`, `VersionNotFoundError`, `StoreError`.
    """
    options = call.read()
    store = open_store(call.path)
    snapshot = CommitLog(store).at(*(options.moment if version is None else Moment(version)))
    return Opened(store.url, snapshot)


def schema_of(table: Opened, options: ReadOptions) -> StructType:
    """Returns the Spark schema of the requested columns.

    Raises `UsageError` for a column that is unknown or has no Spark type, and for an invalid condition.
    """
    if options.columns is not None:
        check_names(options.columns, table.snapshot.table.shown_schema, table.url)
    if options.where is not None:
        condition_on(table.snapshot.table, options.where)
    schema_of_rows = changes_schema if options.changes else scan_schema
    return spark_schema(schema_of_rows(table.snapshot.table, options.columns), table.url)


class FragmentsReader(DataSourceReader):
    """A reader of one version. Pickled without the snapshot: partitions describe what tasks read."""

    def __init__(self, table: Opened, options: ReadOptions, schema: StructType) -> None:
        """schema: columns of the table in any order. Raises `UsageError`."""
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
        """Fragments counted and skipped by planning."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> list[InputPartition]:
        """Returns the partitions, one per task."""
        assert self._snapshot is not None, "partitions are planned where the reader is made"
        self.planned = ScanReport()
        snapshot = self._snapshot
        if self._options.skip_missing:
            snapshot = without_unreadable(
                open_store(self._url), snapshot, self._where, self.planned
            )
            if left_out := self.planned.left_out:
                log.warning("%s: %s", self._url, left_out)
        tasks = tasks_of(
            snapshot,
            self._where,
            self._options.task_bytes,
            self.planned,
            columns=self._schema.fieldNames(),
            min_tasks=self._options.min_tasks,
        )
        # Spark would treat an empty list as a single partition of everything.
        return [InputPartition(parts) for parts in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition, unordered.

        Raises `DataError`, `FormatError`, `StoreError`.
        """
        freeze_worker()
        return self.read_reporting(partition.value, ScanReport())

    def read_reporting(
        self, parts: tuple[Part, ...], report: ScanReport
    ) -> Iterator[pa.RecordBatch]:
        """Reads as `read` does. report: counts rows read and skipped."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        cuts = self._options.nanoseconds == "cut"
        store, columns = open_store(self._url), self._schema.fieldNames()
        for batch in read_parts(
            store, self._metadata, parts, columns, self._where, report, threads=task_cores()
        ):
            converted = as_spark(batch, schema, self._url, cuts_nanoseconds=cuts)
            yield from sliced(converted, BATCH_BYTES)


class SingleUseReader(FragmentsReader):
    """A reader that accepts pushed-down filters.

    Spark 4 stores them with the loaded DataFrame, not with the query, so another scan of it would apply them
    too. So this is used only if the user promises, by `single_use`, that there is no other scan.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Accepts the filters that the source can apply; returns the rest, for Spark."""
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
        """Returns whether Spark sees truncated values, to which the condition would not apply."""
        if self._options.nanoseconds != "cut":
            return False
        types = [storage_type(self._metadata.schema.field(c).type) for c in columns_of(condition)]
        return any(pt.is_timestamp(dtype) and dtype.unit == "ns" for dtype in types)
