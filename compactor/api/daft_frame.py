"""A version of a table as a frame of Daft. Import it only where Daft is installed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import daft
import pyarrow as pa
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from compactor.api.divided import DividedTable, RowsOfTask
from compactor.errors import UsageError
from compactor.resources.cores import usable_cores
from compactor.table.snapshot import Snapshot

_NOT_UNDERSTOOD: Final = (
    *(ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError),
    pa.ArrowException,
)
"""What Daft raises for an expression of which PyArrow, or its own visitor, lacks a part."""


def daft_frame(url: str, snapshot: Snapshot) -> daft.DataFrame:
    """Returns the rows of a version, read once Daft asks for them. Raises `UsageError` for a type that Daft
    lacks."""
    table = DividedTable(url, snapshot)
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
        names, filter = self._table.schema.names, None
        with contextlib.suppress(*_NOT_UNDERSTOOD):  # then more is read than is needed
            if pushdowns.columns is not None:
                wanted = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
                names = [name for name in names if name in wanted] or names[:1]
            if pushdowns.filters is not None:
                filter = pushdowns.filters.to_arrow_expr()
        for rows in self._table.tasks(names, filter, usable_cores()):
            yield _Task(rows)


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, rows: RowsOfTask) -> None:
        self._rows = rows

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._rows.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Reads in threads: Daft runs its tasks in one loop of events."""
        batches = self._rows.batches()
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)
