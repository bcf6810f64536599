"""Rows that are read as a stream of Arrow batches, as often as asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa


class RowStream(ABC):
    """Batches of one schema, read lazily. It implements Arrow's stream interface."""

    schema: pa.Schema

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a stream of batches from the beginning."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Reads all rows into memory."""
        return self.to_reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a stream from the beginning, cast to the requested types if possible."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()
