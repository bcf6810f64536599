"""Parquet and Arrow IPC files: they carry their own types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.files.source import BATCH_ROWS, readable


class ParquetBatches:
    """A Parquet file, by batches of up to 65,536 rows."""

    def __init__(self, path: str) -> None:
        self.path = path
        with readable(path):
            self.bytes_total = Path(path).stat().st_size
            self._file = pq.ParquetFile(path)
            self.schema: pa.Schema = self._file.schema_arrow.remove_metadata()
            self._rows_total: int = self._file.metadata.num_rows
        self._rows = 0

    @property
    def bytes_consumed(self) -> int:
        return self.bytes_total * self._rows // max(1, self._rows_total)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = self._file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
        while (batch := _next(batches, self.path)) is not None:
            self._rows += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


class ArrowBatches:
    """An Arrow IPC file or stream, told apart by its first bytes."""

    def __init__(self, path: str) -> None:
        self.path = path
        with readable(path):
            self.bytes_total = Path(path).stat().st_size
            self._source = pa.OSFile(path)
            is_file = self._source.read(6) == b"ARROW1"
            self._source.seek(0)
            self._file: Any = pa.ipc.open_file(self._source) if is_file else None
            self._stream: Any = None if is_file else pa.ipc.open_stream(self._source)
            opened: Any = self._file if is_file else self._stream
            self.schema: pa.Schema = opened.schema.remove_metadata()

    @property
    def bytes_consumed(self) -> int:
        return 0 if self._source.closed else int(self._source.tell())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._file is not None:
            batches: Iterator[Any] = (
                self._file.get_batch(index) for index in range(self._file.num_record_batches)
            )
        else:
            batches = iter(self._stream)
        while (batch := _next(batches, self.path)) is not None:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._source.close()


def _next(batches: Iterator[Any], path: str) -> Any:
    with readable(path):
        return next(batches, None)
