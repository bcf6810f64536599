"""Sends rows through Spark in packets: Arrow batches as binary values of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.spark.shuffle.exchange import (
    Divider,
    divided,
    from_bytes,
    packet_bytes,
    to_bytes,
)

PACKETS: Final = "kind int, feed int, place bigint, batch binary"
SENT: Final = "feed int, place bigint, part int, batch binary"
PACKET_SCHEMA: Final = pa.schema(
    [("kind", pa.int32()), ("feed", pa.int32()), ("place", pa.int64()), ("batch", pa.binary())]
)
_SENT_SCHEMA: Final = pa.schema(
    [("feed", pa.int32()), ("place", pa.int64()), ("part", pa.int32()), ("batch", pa.binary())]
)
_PENDING_DIVISOR: Final = 16
"""Unsent rows take at most 1/16 of the memory limit, enough to keep packets from being too small."""

Batches = Iterator[pa.RecordBatch]
ROWS, SAMPLE, REPORT = range(3)
"""Packet kinds."""


class Packet(Struct, frozen=True):
    """Rows, a sample or a report, from one task."""

    kind: int
    feed: int
    place: int
    """Position in the row order of the feed, over all tasks."""
    data: pa.Buffer

    @classmethod
    def of_rows(cls, place: int, rows: pa.RecordBatch) -> Packet:
        """Returns a packet of the only feed."""
        return cls(ROWS, 0, place, to_bytes([rows]))


def send(
    batches: Batches, ways: Mapping[int, tuple[int, Divider]], parts: int, limit_bytes: int
) -> Batches:
    """Partitions packets by target task and joins the rows for each task into larger packets.

    ways: rank and partitioning rule of each feed. limit_bytes: the memory limit.
    """
    rank_of = {feed: rank for feed, (rank, _) in ways.items()}
    if parts == 1:
        for feed, place, data in _packets(batches):
            yield _row(_SENT_SCHEMA, rank_of[feed], place, 0, data)
        return
    part_of = {feed: divider.part_of(parts) for feed, (_, divider) in ways.items()}
    waiting = _Waiting(packet_bytes(limit_bytes))
    for feed, place, data in _packets(batches):
        if rank_of[feed] != waiting.rank:
            yield from waiting.leave()
        waiting.rank = rank_of[feed]
        batch = from_bytes(data)
        waiting.put(place, divided(batch, part_of[feed](batch)))
        if waiting.bytes >= limit_bytes // _PENDING_DIVISOR:
            yield from waiting.leave()
    yield from waiting.leave()


class _Waiting:
    """Unsent rows of one feed, by target task."""

    def __init__(self, packet_bytes: int) -> None:
        self._packet_bytes = packet_bytes
        self._parts: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        self.rank = -1
        """The feed's rank."""
        self.bytes = 0

    def put(self, place: int, rows: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        for part, some in rows:
            self._parts.setdefault(part, []).append((place, some))
            self.bytes += some.nbytes

    def leave(self) -> Batches:
        """Yields the rows in packets that carry the position of their first row."""
        for part, waiting in self._parts.items():
            together: list[pa.RecordBatch] = []
            size = first = 0
            for place, some in waiting:
                if together and size + some.nbytes > self._packet_bytes:
                    yield _row(_SENT_SCHEMA, self.rank, first, part, to_bytes(together))
                    together, size = [], 0
                if not together:
                    first = place
                together.append(some)
                size += some.nbytes
            yield _row(_SENT_SCHEMA, self.rank, first, part, to_bytes(together))
        self._parts, self.bytes = {}, 0


def _packets(batches: Batches) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Yields feed, position and data of each packet."""
    for feed, place, data in values_of(batches, ["feed", "place", "batch"]):
        yield feed.as_py(), place.as_py(), data.as_buffer()


def received(batches: Batches) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yields part, feed rank and rows of each packet."""
    for part, feed, data in values_of(batches, ["part", "feed", "batch"]):
        yield part.as_py(), feed.as_py(), from_bytes(data.as_buffer())


def placed_rows(batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields position and rows of each packet."""
    for place, data in values_of(batches, ["place", "batch"]):
        yield place.as_py(), from_bytes(data.as_buffer())


def values_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yields the values of these columns for each packet."""
    for batch in batches:
        yield from zip(*(batch.column(name) for name in names), strict=True)


def as_rows(packets: Iterator[Packet]) -> Batches:
    for packet in packets:
        yield _row(PACKET_SCHEMA, packet.kind, packet.feed, packet.place, packet.data)


def _row(schema: pa.Schema, *values: Any) -> pa.RecordBatch:
    """Returns a batch of one row. Its last value is a buffer, which is not copied."""
    *numbers, data = values
    arrays = [pa.array([n], field.type) for n, field in zip(numbers, schema, strict=False)]
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])
    return pa.RecordBatch.from_arrays([*arrays, binary], schema=schema)
