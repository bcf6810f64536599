"""The Spark data source `fragments`: tables in DataFrames and SQL, by PySpark's Python Data Source API.

    from compactor.spark import register

    register(spark)
    logs = spark.read.format("fragments").load("s3://bucket/logs")
    rows.write.format("fragments").mode("append").save("s3://bucket/logs")
    rows.writeStream.format("fragments").option("checkpointLocation", place).start("s3://bucket/logs")

Spark makes these objects in processes of its own, by their pickled class: nothing here lives longer than a
call. A DataFrame stays at the version of the table at which it was loaded.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from compactor.errors import CompactorError, UsageError
from compactor.spark.source.options import CallOptions
from compactor.spark.source.origin import with_origin
from compactor.spark.source.read import (
    FragmentsReader,
    Opened,
    SingleUseReader,
    opened,
    schema_of,
)
from compactor.spark.source.write import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes the format `fragments` known to a session: to `read`, `write`, `writeStream` and SQL's USING."""
    spark.dataSource.register(FragmentsDataSource)


class FragmentsDataSource(DataSource):
    """Made by Spark for each `load` or write, in a process that sends it on pickled."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Notes at which version the table is: Spark asks for no schema where the user gives one, and makes a
        reader whenever it plans a query."""
        super().__init__(options)
        self._version: int | None = None
        self._table: Opened | None = None
        self._error: CompactorError | None = None
        try:
            self._table = opened(self._call, None)
            self._version = self._table.snapshot.version
        except CompactorError as error:
            # Of no interest to a write, from which this cannot be told yet.
            self._error = error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    @classmethod
    def name(cls) -> str:
        return "fragments"

    def schema(self) -> StructType:
        """Of the table. Raises `UsageError`, `TableNotFoundError`, `VersionNotFoundError`, `StoreError`."""
        table, options = self._opened(), self._call.read()
        schema = schema_of(table, options)
        if options.version is not None or options.as_of is not None:
            # Who names a version means it: a table is set back by writing an old one over it.
            return schema
        return with_origin(schema, table.url, table.snapshot)

    def reader(self, schema: StructType) -> DataSourceReader:
        """schema: the table's, or what the user gave. Raises as `schema`."""
        options = self._call.read()
        reader = SingleUseReader if options.single_use else FragmentsReader
        return reader(self._opened(), options, schema)

    def _opened(self) -> Opened:
        """The table at the version at which it was loaded."""
        if self._error is not None:
            raise self._error
        return self._table or opened(self._call, self._version)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Raises `UsageError`: there is none."""
        raise UsageError(
            "fragments: there is no streaming read: load the table by spark.read, which may name a version "
            "(a stream can be written, by writeStream)"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises as `compactor.write.ingest.plan_ingest`."""
        return BatchWriter(self._call, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Raises as `writer`."""
        return StreamWriter(self._call, schema, overwrite)

    @property
    def _call(self) -> CallOptions:
        return CallOptions({name.lower(): text for name, text in self.options.items()})
