"""A version of a table as a frame of Daft. Import it only where Daft is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import daft
import pyarrow as pa
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from compactor.api.divided import DividedTable, RowsOfTask
from compactor.errors import UsageError
from compactor.resources.cores import usable_cores

_NOT_TRANSLATED: Final = (
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    pa.ArrowException,
)
"""What Daft raises for an expression that PyArrow lacks."""


def daft_frame(table: DividedTable) -> daft.DataFrame:
    """Returns the rows of a version, read once Daft asks for them. Raises `UsageError` for a type that Daft
    lacks."""
    for field in table.schema:
        empty = pa.record_batch([pa.nulls(0, field.type)], [field.name])
        try:
            RecordBatch.from_arrow_record_batches([empty], empty.schema)
        except daft.exceptions.DaftCoreException:
            raise UsageError(
                f"{table.url}: column {field.name!r} is {field.type}, which Daft has no type for: read "
                "the others by daft.from_arrow(table.scan([...]).to_table())"
            ) from None
    return _Source(table).read()


class _Source(DataSource):  # type: ignore[misc]
    def __init__(self, table: DividedTable) -> None:
        self._table = table

    @property
    def name(self) -> str:
        return "lsm-compactor"

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._table.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """Daft applies the filter again, so its columns have to be there, too."""
        names, asked = self._table.schema.names, pushdowns.columns
        if asked is not None:
            wanted = {*asked, *pushdowns.filter_required_column_names()}
            names = [name for name in names if name in wanted] or names[:1]
        filter = None if pushdowns.filters is None else _as_arrow(pushdowns.filters)
        for rows in self._table.tasks(names, filter, usable_cores()):
            yield _Task(rows, pa.schema([self._table.schema.field(name) for name in names]))


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, rows: RowsOfTask, schema: pa.Schema) -> None:
        self._rows, self._schema = rows, schema

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        for batch in self._rows.batches():
            yield RecordBatch.from_arrow_record_batches([batch], self._schema)


def _as_arrow(filter: Any) -> Any:
    """Returns a filter as an expression of PyArrow; None if PyArrow lacks a part of it."""
    try:
        return filter.to_arrow_expr()
    except _NOT_TRANSLATED:
        return None
