"""Converts entities, and lines about them, to batches, and stages them at home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import field

from compactor.entities.entities import DELETED, SIGNATURE, SINCE, U64, Entities
from compactor.entities.expressions import ID, IDS
from compactor.entities.matching import starts_of
from compactor.entities.tasks.context import IS_NEW, LABEL, NODE, ROOT, Context, Partition
from compactor.entities.texts import I64, TEXT
from compactor.spark.shuffle.task import PLACE_BITS, TaskInput
from compactor.stores.open import open_store
from compactor.stores.parts import LazyPart, part_rows
from lsm_fragment.arrays.batches import one_array

STAGED_ROWS: Final = 1 << 16


PROPERTY: Final = "."


CLUSTER: Final = pa.schema(
    [
        (ID, TEXT),
        (SIGNATURE, pa.int64()),
        (DELETED, pa.bool_()),
        ("dataset", pa.int32()),
        (LABEL, pa.int64()),
        (NODE, pa.large_list(pa.int64())),
    ]
)


def cluster_schema(context: Context) -> pa.Schema:
    """Returns the columns of clusters as they are compared with the table."""
    if not context.numbers:
        return CLUSTER
    ages = (SINCE, pa.large_list(pa.int64()))
    return pa.schema([*CLUSTER, ages, (IS_NEW, pa.bool_()), (ROOT, TEXT)])


class EntityLines(Entities, frozen=True, dict=True):
    """Entities reduced to what their clusters need."""

    known_hashes: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    def hashes(self) -> U64:
        return self.known_hashes

    @classmethod
    def of(cls, lines: pa.Table) -> EntityLines:
        deleted = np.asarray(lines.column(DELETED))
        return cls(array_of(lines, ID), deleted, None, {}, np.asarray(lines.column("hash")))


def lines_of(datasets: Sequence[Entities]) -> pa.RecordBatch:
    offsets = np.repeat(np.arange(len(datasets), dtype=np.int32), np.diff(starts_of(datasets)))
    return pa.RecordBatch.from_pydict(
        {
            "dataset": offsets,
            ID: pa.concat_arrays([d.ids for d in datasets]),
            DELETED: np.concatenate([d.deleted for d in datasets]),
            "hash": np.concatenate([d.hashes() for d in datasets]),
        }
    )


def as_batch(entities: Entities) -> pa.RecordBatch:
    columns = {ID: entities.ids}
    if entities.carried is not None:
        columns[IDS] = entities.carried
    columns |= {PROPERTY + name: column for name, column in entities.properties.items()}
    return pa.RecordBatch.from_pydict(columns)


def from_batch(batch: pa.RecordBatch) -> Entities:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Entities(
        columns[ID],
        np.zeros(batch.num_rows, np.bool_),
        columns.get(IDS),
        {name[1:]: c for name, c in columns.items() if name.startswith(PROPERTY)},
    )


def new_part(context: Context, part: int, stack: ExitStack) -> LazyPart:
    """Returns the staging part of a home's attempt."""
    return LazyPart(open_store(context.staging), f"{context.run_id}/{part:07d}", stack)


def staged(context: Context, part: int, batch: pa.RecordBatch) -> str | None:
    """Stages rows of a home. Returns their key; None without rows."""
    with ExitStack() as stack:
        kept = new_part(context, part, stack)
        for piece in pieces_of(batch):
            kept.write(piece)
    return kept.key


def pieces_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(start, STAGED_ROWS) for start in range(0, batch.num_rows, STAGED_ROWS)]


def number_of(part: int, places: I64) -> I64:
    return places + (part << PLACE_BITS)


def all_rows(context: Context, given: TaskInput) -> pa.Table:
    [batches] = by_input(context, ((0, batch) for _, batch in given), 1)
    return pa.Table.from_batches(batches).combine_chunks()


def by_input(context: Context, given: TaskInput, count: int) -> list[list[pa.RecordBatch]]:
    """Returns the batches of each of `count` inputs."""
    charge = context.memory()
    found: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for number, batch in given:
        charge(batch.nbytes)
        found[number].append(batch)
    return found


def entities_at(
    context: Context, home: Partition, places: I64
) -> Iterator[tuple[int, slice, pa.RecordBatch]]:
    """Yields entities of a home by batches: their dataset, which of the places they have, and their columns.

    places: ascending, each once.
    """
    start = 0
    for dataset, (key, count) in enumerate(zip(home.entities, home.rows, strict=True)):
        at = start
        for batch in [] if key is None else part_rows(open_store(context.staging), key):
            low, high = np.searchsorted(places, [at, at + batch.num_rows]).tolist()
            if high > low:
                yield dataset, slice(low, high), batch.take(pa.array(places[low:high] - at))
            at += batch.num_rows
        start += count


def array_of(table: pa.Table, name: str) -> pa.Array:
    return one_array(table.column(name))


def ints_of(table: pa.Table, name: str) -> I64:
    return np.asarray(table.column(name)).astype(np.int64)
