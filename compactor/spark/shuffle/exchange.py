"""Partitions rows by key range or hash, and serialises batches.

Ranges follow our own key order and are sampled in the tasks that produce the rows; hashes are those of our
joins. So each task's sort, merge or aggregate gives the result that one process would give for its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.common.ipc import READING, writing
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import concat_rows, one_batch, take_rows
from lsm_fragment.arrays.hashing import add_column
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.keys.normalised import sort_keys, stable_order
from lsm_fragment.keys.sort_schema import SortSchema, ordering

PartOf = Callable[[pa.RecordBatch], npt.NDArray[np.integer]]
"""Maps rows to target tasks. Shape (rows,)."""
_PACKET_BYTES: Final = 1 << 20
_PACKET_DIVISOR: Final = 64
SAMPLED_KEYS: Final = 1024
"""Maximum sampled keys per task and feed."""


def packet_bytes(limit_bytes: int) -> int:
    """Returns the size of a packet, small relative to the receiver's memory limit."""
    return min(_PACKET_BYTES, limit_bytes // _PACKET_DIVISOR)


def to_bytes(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Returns the batches as an Arrow IPC stream of one batch; missing columns become null."""
    batch = batches[0] if len(batches) == 1 else _end_to_end(batches)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=writing()) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _end_to_end(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if all(batch.schema.equals(batches[0].schema) for batch in batches):
        return concat_rows(batches)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return one_batch(pa.concat_tables(tables, promote_options="default"))


def from_bytes(data: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(data, options=READING).read_next_batch()


class KeySample:
    """An even sample of keys: every n-th row, doubling n as rows arrive."""

    def __init__(self, sort: SortSchema) -> None:
        self._names = [column.column for column in ordering(sort)]
        self._taken: list[pa.RecordBatch] = []
        self._count = 0
        self._stride = 1
        self._skip = 0
        """Rows to skip before the next sample."""

    def add(self, batch: pa.RecordBatch) -> None:
        rows = np.arange(self._skip, batch.num_rows, self._stride)
        self._skip += len(rows) * self._stride - batch.num_rows
        if not len(rows):
            return
        self._taken.append(take_rows(batch.select(self._names), rows))
        self._count += len(rows)
        while self._count > SAMPLED_KEYS:
            whole = concat_rows(self._taken)
            kept = take_rows(whole, np.arange(0, whole.num_rows, 2))
            self._skip += self._stride * (whole.num_rows % 2)
            self._taken, self._count, self._stride = [kept], kept.num_rows, 2 * self._stride

    def keys(self) -> pa.RecordBatch | None:
        """Returns the sampled keys; None without rows."""
        return concat_rows(self._taken) if self._taken else None


def splitters(
    samples: Sequence[tuple[pa.RecordBatch, int]], sort: SortSchema, parts: int
) -> pa.RecordBatch | None:
    """Returns keys that split the rows into at most `parts` ranges of similar row counts; None for one range.

    samples: keys, and the number of rows they represent.
    """
    samples = [(keys, rows) for keys, rows in samples if keys.num_rows]
    if not samples or parts < 2:
        return None
    columns = _columns([keys for keys, _ in samples], sort)
    weights = np.concatenate(
        [np.full(keys.num_rows, rows / keys.num_rows) for keys, rows in samples]
    )
    order = stable_order(sort_keys(columns, sort))
    running = np.cumsum(weights[order])
    wanted = running[-1] * np.arange(1, parts) / parts
    places = np.unique(np.minimum(np.searchsorted(running, wanted, "right"), len(order) - 1))
    names = [column.column for column in ordering(sort)]
    chosen = order[places]
    return pa.RecordBatch.from_arrays([take(column, chosen) for column in columns], names=names)


class Divider(Protocol):
    """A rule that assigns rows to `parts` tasks. Picklable."""

    def part_of(self, parts: int, /) -> PartOf: ...


class ByKeys(Struct, frozen=True):
    """Sends rows to tasks by key hash."""

    keys: tuple[str, ...]

    def part_of(self, parts: int) -> PartOf:
        return lambda batch: part_by_keys(batch, self.keys, parts)


class ByRange(Struct, frozen=True):
    """Sends rows to tasks by key range."""

    bounds: pa.RecordBatch | None
    """First keys of the ranges, from `splitters`; None for one range."""
    sort: SortSchema

    def part_of(self, _parts: int) -> PartOf:
        return self._part_of

    def _part_of(self, batch: pa.RecordBatch) -> npt.NDArray[np.integer]:
        if self.bounds is None:
            return np.zeros(batch.num_rows, np.int64)
        order = stable_order(sort_keys(_columns([self.bounds, batch], self.sort), self.sort))
        # Bounds precede the rows, so a stable sort puts rows equal to a bound after it.
        parts = np.empty(len(order), dtype=np.int64)
        parts[order] = np.cumsum(order < self.bounds.num_rows)
        return parts[self.bounds.num_rows :]


class ByNumber(Struct, frozen=True):
    """Sends rows to the task numbers in a column."""

    column: str
    lower_bits: int = 0
    """Number of low bits below the task number."""

    def part_of(self, _parts: int) -> PartOf:
        return lambda batch: np.asarray(batch.column(self.column)) >> self.lower_bits


def divided(
    batch: pa.RecordBatch, parts: npt.NDArray[np.integer]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields each part with its rows, in order."""
    order = np.argsort(parts, kind="stable")
    in_order = parts[order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    rows = take_rows(batch, order)
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(in_order[start]), rows.slice(start, stop - start)


def _columns(batches: Sequence[pa.RecordBatch], sort: SortSchema) -> list[pa.Array]:
    """Concatenates the sort columns of all batches, in storage form."""
    return [
        concat_storage([to_storage(batch.column(column.column)) for batch in batches])
        for column in ordering(sort)
    ]


U64 = npt.NDArray[np.uint64]


def part_by_keys(batch: pa.RecordBatch, keys: Sequence[str], parts: int) -> npt.NDArray[np.uint64]:
    """Hashes each row's keys to a number below `parts`. Shape (rows,)."""
    hashes = key_hashes([to_storage(batch.column(name)) for name in keys])
    return (hashes >> np.uint64(40)) % np.uint64(parts)


def key_hashes(columns: Sequence[pa.Array]) -> U64:
    """Hashes each row's keys; -0.0 and 0.0 are equal. Shape (rows,)."""
    sums: U64 = np.zeros(len(columns[0]), dtype=np.uint64)
    for number, column in enumerate(columns):
        if pt.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))
        add_column(str(number), column, sums)
    return sums
