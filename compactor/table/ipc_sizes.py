"""Computes the unpacked size of an Arrow IPC stream from its messages alone.

Arrow allocates as much as a compressed buffer claims, without a bound. The messages are flatbuffers: each of
the few fields that count here is found by its place in the table's list of offsets.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

_RECORD_BATCH: Final = 3
_FORMAT, _HEADER_TYPE, _HEADER = 0, 1, 2
"""Fields of a message."""
_BUFFERS, _COMPRESSION = 2, 3
"""Fields of a record batch."""
_SCHEMA: Final = 1
_V5: Final = 4
"""The message format that Arrow has written since 1.0; older ones may name their compression elsewhere."""
_NOT_COMPRESSED: Final = -1


def unpacked_bytes(stream: pa.Buffer) -> int:
    """Returns the unpacked bytes of all buffers of a stream of record batches.

    Raises ValueError for any other stream, and for one with dictionaries; `pa.ArrowException`.
    """
    messages = pa.ipc.MessageReader.open_stream(stream)
    total = 0
    for message in iter(lambda: _next(messages), None):
        try:
            total += _unpacked(memoryview(message.metadata), message.body)
        except (struct.error, IndexError) as error:
            raise ValueError("a message of its stream is damaged") from error
    return total


def _next(messages: pa.ipc.MessageReader) -> pa.ipc.Message | None:
    try:
        return messages.read_next_message()
    except StopIteration:
        return None


def _unpacked(metadata: memoryview, body: pa.Buffer | None) -> int:
    message = _FlatTable(metadata, _read("<I", metadata, 0))
    place = message.place(_FORMAT)
    if place is None or _read("<h", metadata, place) != _V5:
        raise ValueError("its stream is of another format than V5 of Arrow's")
    place = message.place(_HEADER_TYPE)
    kind = 0 if place is None else _read("<B", metadata, place)
    if kind == _SCHEMA:
        return 0
    header = message.place(_HEADER)
    if kind != _RECORD_BATCH or header is None:
        raise ValueError("its stream has other messages than record batches")
    batch = _FlatTable(metadata, header + _read("<I", metadata, header))
    vector = batch.place(_BUFFERS)
    if vector is None or body is None:
        return 0
    start = vector + _read("<I", metadata, vector)
    count = _read("<I", metadata, start)
    is_compressed = batch.place(_COMPRESSION) is not None
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, start + 4 + 16 * number)
        if offset < 0 or length < 0 or offset + length > body.size:
            raise ValueError("a buffer lies outside of its message")
        size = length
        if is_compressed and length:
            stated = _read("<q", memoryview(body), offset)
            size = length if stated == _NOT_COMPRESSED else stated
            if size < 0:
                raise ValueError("a buffer states a length below 0")
        total += size
    return total


class _FlatTable:
    """A table of a flatbuffer."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._start = start
        self._offsets = start - _read("<i", data, start)
        if self._offsets < 0:
            raise ValueError("a table of its stream begins before the message")
        self._size = _read("<H", data, self._offsets)

    def place(self, field: int) -> int | None:
        """Returns where the field lies; None if it is left out."""
        at = 4 + 2 * field
        if at + 2 > self._size:
            return None
        offset = _read("<H", self._data, self._offsets + at)
        return self._start + offset if offset else None


def _read(form: str, data: memoryview, at: int) -> int:
    (value,) = struct.unpack_from(form, data, at)
    return int(value)
