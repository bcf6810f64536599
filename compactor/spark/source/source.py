"""The Spark data source `fragments`: tables in DataFrames and SQL, by PySpark's Python Data Source API.

    from compactor.spark import register

    register(spark)
    logs = spark.read.format("fragments").load("s3://bucket/logs")
    rows.write.format("fragments").mode("append").save("s3://bucket/logs")
    more = spark.readStream.format("fragments").load("s3://bucket/logs")
    rows.writeStream.format("fragments").option("checkpointLocation", place).start("s3://bucket/logs")

Spark unpickles these objects in its own processes, so none lives longer than one call, except for the reader
of a stream. A DataFrame stays at the table version at which it was loaded.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from compactor.errors import CompactorError, UsageError
from compactor.spark.procedures import register_procedures
from compactor.spark.source.origin import with_origin, with_rows
from compactor.spark.source.read import (
    FragmentsReader,
    Opened,
    SingleUseReader,
    opened,
    schema_of,
)
from compactor.spark.source.source_options import CallOptions
from compactor.spark.source.write import BatchWriter, StreamWriter
from compactor.spark.workers import freeze_worker, registered_with_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REGISTERED: Final[WeakSet[SparkSession]] = WeakSet()


def register(spark: SparkSession) -> None:
    """Registers the format `fragments` with a session, for `read`, `write`, `writeStream` and SQL's USING;
    and the functions of `compactor.spark.procedures`. Once for each session: Spark warns of others."""
    if spark not in _REGISTERED:
        with registered_with_this_python(spark):
            spark.dataSource.register(FragmentsDataSource)
            register_procedures(spark)
        _REGISTERED.add(spark)


class FragmentsDataSource(DataSource):
    """The data source of one `load` or write. Spark creates it in one process and pickles it to others."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Records the table's version. Spark skips `schema` if the user gives one, and creates a reader for
        each query plan."""
        freeze_worker()
        super().__init__(options)
        self._version: int | None = None
        self._columns: tuple[str, ...] = ()
        self._table: Opened | None = None
        self._error: CompactorError | None = None
        try:
            self._table = opened(self._call, None)
            self._version = self._table.snapshot.version
            self._columns = tuple(self._table.snapshot.table.shown_schema.names)
        except CompactorError as error:
            # A write may be creating the table.
            self._error = error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    @classmethod
    def name(cls) -> str:
        return "fragments"

    def schema(self) -> StructType:
        """Returns the table's schema.

        Raises `UsageError`, `TableNotFoundError`, `VersionNotFoundError`, `StoreError`.
        """
        table, options = self._opened(), self._call.read()
        schema = with_rows(schema_of(table, options), table.snapshot)
        if not options.moment.is_newest:
            # A pinned version carries no origin: overwriting the table with it restores it.
            return schema
        return with_origin(schema, table.url, table.snapshot)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader. schema: of the table or the user. Raises as `schema`."""
        freeze_worker()
        options = self._call.read()
        options.check_used_by(is_stream=False)
        reader = SingleUseReader if options.single_use else FragmentsReader
        return reader(self._opened(), options, schema)

    def _opened(self) -> Opened:
        """Returns the table at the loaded version."""
        if self._error is not None:
            raise self._error
        return self._table or opened(self._call, self._version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns a reader of a stream. schema: of the table or the user. Raises as `schema`."""
        try:
            # Imported here, since PySpark 4.1 lacks a part of the interface.
            from compactor.spark.source.stream_read import FragmentsStreamReader
        except ImportError as error:
            raise UsageError(
                f"fragments: reading a stream needs PySpark 4.2 or newer ({error}): "
                "pip install 'pyspark>=4.2'"
            ) from error
        if self._error is not None:
            raise self._error
        options = self._call.read()
        options.check_used_by(is_stream=True)
        return FragmentsStreamReader(self._call.path, options, schema, self._columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a writer. Raises what `compactor.write.ingest.plan_ingest` raises."""
        freeze_worker()
        return BatchWriter(self._call, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Returns a writer of a stream. Raises what `writer` raises."""
        return StreamWriter(self._call, schema, overwrite)

    @property
    def _call(self) -> CallOptions:
        return CallOptions({name.lower(): text for name, text in self.options.items()})
