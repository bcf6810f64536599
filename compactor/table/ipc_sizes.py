"""Computes the unpacked size of an Arrow IPC stream from its messages alone.

Arrow allocates as much as a compressed buffer claims, without a bound. The messages are FlatBuffers, of
which only a few fields count here.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from compactor.common.flat_buffers import FlatTable, number_at, target_at

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
    message = FlatTable(metadata, target_at(metadata, 0))
    if message.number("<h", _FORMAT) != _V5:
        raise ValueError("its stream is of another format than V5 of Arrow's")
    kind = message.number("<B", _HEADER_TYPE)
    if kind == _SCHEMA:
        return 0
    batch = message.table(_HEADER) if kind == _RECORD_BATCH else None
    if batch is None:
        raise ValueError("its stream has other messages than record batches")
    start = batch.target(_BUFFERS)
    if start is None or body is None:
        return 0
    count = number_at("<I", metadata, start)
    is_compressed = batch.place(_COMPRESSION) is not None
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, start + 4 + 16 * number)
        if offset < 0 or length < 0 or offset + length > body.size:
            raise ValueError("a buffer lies outside of its message")
        size = length
        if is_compressed and length:
            stated = number_at("<q", memoryview(body), offset)
            size = length if stated == _NOT_COMPRESSED else stated
            if size < 0:
                raise ValueError("a buffer states a length below 0")
        total += size
    return total
