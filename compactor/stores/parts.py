"""Parts: rows that a task passes to the driver through a store, each an Arrow IPC stream in one object."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from compactor.common.clock import random_id
from compactor.common.ipc import READING, writing
from compactor.stores.base import ByteStream, Store, UploadFile

_READ_BYTES = 1 << 20


class BatchSink(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> Any: ...


@contextmanager
def writing_part(store: Store, key: str, schema: pa.Schema) -> Iterator[BatchSink]:
    """Writes a part, which becomes visible when the block ends without an error. key: unique per attempt."""
    with store.start_upload(key) as upload:
        options = writing("lz4")
        with pa.ipc.new_stream(
            pa.PythonFile(UploadFile(upload)), schema, options=options
        ) as writer:
            yield writer
        upload.complete()


class LazyPart:
    """A part that its first rows create, under a unique key."""

    def __init__(self, store: Store, prefix: str, stack: ExitStack) -> None:
        """stack: completes the part when it closes."""
        self._store, self._prefix, self._stack = store, prefix, stack
        self._sink: BatchSink | None = None
        self.key: str | None = None
        """None before the first rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sink is None:
            self.key = f"{self._prefix}-{random_id()}.arrow"
            part = writing_part(self._store, self.key, batch.schema)
            self._sink = self._stack.enter_context(part)
        self._sink.write_batch(batch)


def part_rows(store: Store, key: str) -> Iterator[pa.RecordBatch]:
    """Streams the rows of a part by one GET."""
    stream = store.open_stream(key)
    try:
        with pa.ipc.open_stream(
            pa.PythonFile(io.BufferedReader(_ReadableStream(stream), _READ_BYTES)),
            options=READING,
        ) as rows:
            yield from rows
    finally:
        stream.close()


def remove_parts(store: Store, prefix: str) -> None:
    """Removes all parts with this prefix, including those of abandoned attempts."""
    for found in list(store.list(prefix)):
        store.delete(found.key)


class _ReadableStream(io.RawIOBase):
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
