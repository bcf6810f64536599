"""Hash join of two nodes: holds the whole build side before the first look-up."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.combining import BuildTable, joined_schema
from compactor.pipelines.config import Combine, keys_of
from compactor.pipelines.dividing import PartitionBuffers, gathered_bytes
from compactor.pipelines.provenance import Batches
from compactor.pipelines.sorted_rows import Room
from compactor.pipelines.work import RunContext
from compactor.resources.reservation import Reservation
from compactor.spark.shuffle.exchange import part_by_keys
from lsm_fragment.keys.sort_schema import SortColumn

_PARTS: Final = 32
_BUILD_COPIES: Final = 3
"""Copies of the build side while its table is built: batches, one table, hashes and positions."""


def bound(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> pa.Schema:
    return joined_schema(probe, build, keys_of(node), what)


def rows(work: RunContext, name: str, node: Combine) -> Batches:
    build, names = work.schemas[node.build], work.schemas[name].names
    held = work.buffer(name, build)
    for batch in work.rows(node.build):
        held.append(batch)
    joined = (
        _joined(work, name, node, held)
        if work.budget.has_room(_BUILD_COPIES * held.bytes)
        else _joined_in_parts(work, name, node, held)
    )
    for found in joined:
        yield found.select(names)


def _joined(work: RunContext, name: str, node: Combine, held: BatchBuffer) -> Batches:
    """Holds the build side in memory and reads the probe side in a thread."""
    room = _room(work, name)
    with Reservation(work.budget, name, _BUILD_COPIES * held.bytes), room.working():
        table = _build_table(work, node, held)
        held.close()
        columns, keys = work.schemas[node.probe].names, [left for left, _ in keys_of(node)]
        for batch in work.taken_ahead(name, node.probe):
            yield from table.probe(batch.select(columns), keys, room, keeps_all=node.how == "left")


def _joined_in_parts(work: RunContext, name: str, node: Combine, held: BatchBuffer) -> Batches:
    """Partitions both sides onto local disk by key hash; yields rows in probe order."""
    on, probe, build = keys_of(node), work.schemas[node.probe], work.schemas[node.build]
    sequence = _free_name("$sequence", {*probe.names, *build.names})
    sequenced = pa.schema([*probe, (sequence, pa.int64())])
    lefts = [BatchBuffer(sequenced, work.budget, name, work.disk) for _ in range(_PARTS)]
    rights = [BatchBuffer(held.schema, work.budget, name, work.disk) for _ in range(_PARTS)]
    work.keep(name, *lefts, *rights)
    max_bytes = gathered_bytes(work.budget, _PARTS)
    with Reservation(work.budget, name, max_bytes):
        _divide(held.drain(), [right for _, right in on], PartitionBuffers(rights, max_bytes))
        rows = _sequenced(work.rows(node.probe), probe.names, sequence)
        _divide(rows, [left for left, _ in on], PartitionBuffers(lefts, max_bytes))
    full = joined_schema(sequenced, build, on, f"node {name!r}")
    order, room = (SortColumn(sequence),), _room(work, name)
    with work.sorter(name, full, order) as sorter:
        for left, right in zip(lefts, rights, strict=True):
            with Reservation(work.budget, name, _BUILD_COPIES * right.bytes), room.working():
                table = _build_table(work, node, right)
                right.close()
                for batch in left.drain():
                    keys = [key for key, _ in on]
                    for found in table.probe(batch, keys, room, keeps_all=node.how == "left"):
                        sorter.append(found.select(full.names))
        yield from sorter.sorted()


def _build_table(work: RunContext, node: Combine, held: BatchBuffer) -> BuildTable:
    schema = work.schemas[node.build]
    table = pa.Table.from_batches(held, held.schema).select(schema.names)
    return BuildTable(table, [right for _, right in keys_of(node)])


def _room(work: RunContext, name: str) -> Room:
    return Room(work.budget, name, lambda schema: work.buffer(name, schema))


def _free_name(wanted: str, taken: Container[str]) -> str:
    """Returns an unused column name."""
    while wanted in taken:
        wanted = f"${wanted}"
    return wanted


def _sequenced(batches: Batches, names: Sequence[str], sequence: str) -> Batches:
    """Yields these columns with a row number column."""
    row = 0
    for batch in batches:
        numbers = pa.array(np.arange(row, row + batch.num_rows))
        row += batch.num_rows
        yield batch.select(names).append_column(sequence, numbers)


def _divide(batches: Batches, keys: Sequence[str], divider: PartitionBuffers) -> None:
    """Partitions rows onto disk by key."""
    for batch in batches:
        divider.put(batch, part_by_keys(batch, keys, _PARTS))
    divider.finish()
