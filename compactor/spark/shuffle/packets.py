"""Sends rows through Spark in packets: Arrow batches as binary values of a DataFrame, routed to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from compactor.spark.shuffle.exchange import (
    PartOf,
    divided,
    from_bytes,
    packet_bytes,
    part_by_keys,
    part_by_range,
    to_bytes,
)
from format.schema import SortSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKETS: Final = "kind int, feed int, place bigint, batch binary"
SENT: Final = "feed int, place bigint, part int, batch binary"
PACKET_SCHEMA: Final = pa.schema(
    [("kind", pa.int32()), ("feed", pa.int32()), ("place", pa.int64()), ("batch", pa.binary())]
)
_SENT_SCHEMA: Final = pa.schema(
    [("feed", pa.int32()), ("place", pa.int64()), ("part", pa.int32()), ("batch", pa.binary())]
)
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}
"""Session setting of 16 packets for each batch to Python, about 16 MiB: Spark counts rows, not bytes."""
_PENDING_SHARE: Final = 16
"""Rows that wait to be sent may take this part of the memory limit, so that packets are not too small."""

Batches = Iterator[pa.RecordBatch]
ROWS, SAMPLE, REPORT = range(3)
"""Kinds of packets."""


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows, a sample or a report of one task."""

    kind: int
    feed: int
    place: int
    """Position, ascending in the row order of a feed over all tasks."""
    data: pa.Buffer


class Dividing(Protocol):
    """A rule that says which task each row goes to. Picklable."""

    def part_of(self) -> PartOf: ...


@dataclass(frozen=True, slots=True)
class Divider:
    """A rule that sends each row to a task by bounds of key ranges, or by the hash of its keys."""

    parts: int
    bounds: pa.RecordBatch | None = None
    sort: SortSchema | None = None
    keys: tuple[str, ...] = ()

    def part_of(self) -> PartOf:
        if self.bounds is not None and self.sort is not None:
            return part_by_range(self.bounds, self.sort)
        return lambda batch: part_by_keys(batch, self.keys, self.parts)


def send(
    batches: Batches,
    rank_of: Mapping[int, int],
    dividers: Sequence[Dividing | None],
    limit_bytes: int,
) -> Batches:
    """Divides packets by target task and combines the rows for one task into larger packets.

    rank_of: rank of each feed. dividers: by rank; None sends the whole feed to part 0. limit_bytes: the
    memory limit.
    """
    part_of = {n: None if (d := dividers[r]) is None else d.part_of() for n, r in rank_of.items()}
    waiting = _Waiting(packet_bytes(limit_bytes))
    for feed, place, data in _packets(batches):
        divide, rank = part_of[feed], rank_of[feed]
        if divide is None:
            yield _sent_row(rank, place, 0, data)
            continue
        if rank != waiting.rank:
            yield from waiting.leave()
        waiting.rank = rank
        batch = from_bytes(data)
        waiting.put(place, divided(batch, divide(batch)))
        if waiting.bytes >= limit_bytes // _PENDING_SHARE:
            yield from waiting.leave()
    yield from waiting.leave()


class _Waiting:
    """Rows of one feed that wait to be sent, by target task."""

    def __init__(self, packet_bytes: int) -> None:
        self._packet_bytes = packet_bytes
        self._parts: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        self.rank = -1
        """Rank of the feed."""
        self.bytes = 0

    def put(self, place: int, rows: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        for part, some in rows:
            self._parts.setdefault(part, []).append((place, some))
            self.bytes += some.nbytes

    def leave(self) -> Batches:
        """Yields the rows in packets, each with the unique place of its first rows, which keeps the order."""
        for part, waiting in self._parts.items():
            together: list[pa.RecordBatch] = []
            size = first = 0
            for place, some in waiting:
                if together and size + some.nbytes > self._packet_bytes:
                    yield _sent_row(self.rank, first, part, to_bytes(together))
                    together, size = [], 0
                if not together:
                    first = place
                together.append(some)
                size += some.nbytes
            yield _sent_row(self.rank, first, part, to_bytes(together))
        self._parts, self.bytes = {}, 0


def _packets(batches: Batches) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Yields feed, place and data of each packet."""
    for feed, place, data in values_of(batches, ["feed", "place", "batch"]):
        yield feed.as_py(), place.as_py(), data.as_buffer()


def received(batches: Batches) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yields part, rank of the feed and rows of each packet."""
    for part, feed, data in values_of(batches, ["part", "feed", "batch"]):
        yield part.as_py(), feed.as_py(), from_bytes(data.as_buffer())


def values_of(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yields the scalars of these columns for each packet."""
    for batch in batches:
        yield from zip(*(batch.column(name) for name in names), strict=True)


def _sent_row(rank: int, place: int, part: int, data: pa.Buffer) -> pa.RecordBatch:
    values = [[rank], [place], [part]]
    arrays = [pa.array(v, f.type) for v, f in zip(values, _SENT_SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, _binary(data)], schema=_SENT_SCHEMA)


def as_rows(packets: Iterator[Packet]) -> Batches:
    for packet in packets:
        values = [[packet.kind], [packet.feed], [packet.place]]
        arrays = [pa.array(v, f.type) for v, f in zip(values, PACKET_SCHEMA, strict=False)]
        yield pa.RecordBatch.from_arrays([*arrays, _binary(packet.data)], schema=PACKET_SCHEMA)


def _binary(data: pa.Buffer) -> pa.Array:
    """Returns an array of one value, without a copy."""
    offsets = pa.py_buffer(np.array([0, data.size], dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])


def chained(
    first: tuple[int, pa.RecordBatch], rest: Iterator[tuple[int, pa.RecordBatch]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    yield first
    yield from rest


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Applies settings to the session and restores the old ones on exit."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
