"""Rows that are in memory already, or come from another library, as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.problems import reading
from compactor.files.sortedness import said_sort_schema
from compactor.files.source import FileBatches

NAME: Final = "appended rows"
"""Stands for a path in errors."""


class StreamBatches(FileBatches):
    """Anything with Arrow's stream interface: tables, readers, data frames of Polars, pandas, DuckDB."""

    def __init__(self, rows: Any, batch_bytes: int) -> None:
        """Raises `InputError` for an object that is no stream of rows."""
        self.path = NAME
        self.bytes_total = 0
        self._batch_bytes = batch_bytes
        self._reader = _reader(rows)
        self.schema = self._reader.schema
        self.sort = said_sort_schema(self.schema.metadata, self.schema.names)

    @property
    def bytes_consumed(self) -> int:
        return 0

    def close(self) -> None:
        self._reader.close()

    def _reading(self) -> AbstractContextManager[None]:
        return _reading()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            batch.validate(full=True)  # whoever made it, nobody else has looked
            yield batch


def _reader(rows: Any) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            f"{NAME}: {type(rows).__name__} has no Arrow stream (__arrow_c_stream__): give a table, "
            "record batch or reader of Arrow (of a dataset: scanner().to_reader()), or a data frame (of a "
            "lazy one: collect())"
        )
    with _reading():
        return pa.RecordBatchReader.from_stream(rows)


def _reading() -> AbstractContextManager[None]:
    return reading(NAME, "cast the column, or leave it out")
