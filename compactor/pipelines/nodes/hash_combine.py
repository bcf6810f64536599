"""Hash join of two nodes: holds the whole build side before the first look-up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.classify import Form
from compactor.pipelines.combining import BuildTable
from compactor.pipelines.config import Combine
from compactor.pipelines.dividing import PartitionBuffers, gathered_bytes
from compactor.pipelines.join_keys import JoinKeys, SideKeys, free_name
from compactor.pipelines.pairing import How, Joined
from compactor.pipelines.provenance import Batches
from compactor.pipelines.sorted_rows import Room
from compactor.pipelines.work import RunContext
from compactor.resources.reservation import Reservation
from compactor.spark.shuffle.exchange import part_by_keys
from lsm_fragment.arrays.buffers import integer_array
from lsm_fragment.keys.sort_schema import SortColumn

_PARTS: Final = 32
_BUILD_COPIES: Final = 3
"""Copies of the build side while its table is built: batches, one table, hashes and positions."""
_AFTER_ALL: Final = 1 << 62
"""Build rows are numbered from here on, so that they come after all probe rows."""


def rows(work: RunContext, name: str, node: Combine, keys: JoinKeys) -> Batches:
    join = _HashJoin(work, name, node, keys)
    held = work.buffer(name, keys.build.schema)
    for batch in keyed(work, name, keys.build, work.rows(node.build)):
        held.append(batch)
    names = work.schemas[name].names
    is_small = work.budget.has_room(_BUILD_COPIES * held.bytes)
    for found in join.in_memory(held) if is_small else join.in_parts(held):
        yield found.select(names)


class _HashJoin:
    """A hash join of one node."""

    def __init__(self, work: RunContext, name: str, node: Combine, keys: JoinKeys) -> None:
        self._work = work
        self._name = name
        self._probe = node.probe
        self._keys = keys
        self._how = How(node.how)
        self._schema = work.schemas[name]
        self._room = Room(work.budget, name, lambda schema: work.buffer(name, schema))

    def in_memory(self, held: BatchBuffer) -> Batches:
        """Holds the build side in memory, and reads the probe side in a thread if that changes no order."""
        work, probe = self._work, self._keys.probe
        # Where rows pass on as they are made, dead letters of nodes before and behind would mix.
        is_streaming = work.forms[self._name].form is Form.FUSED
        mixes = is_streaming and work.pipeline.on_error == "continue"
        joined = Joined(self._schema, self._lefts(), self._keys.shared)
        with Reservation(work.budget, self._name, _BUILD_COPIES * held.bytes), self._room.working():
            table = self._table(held, self._keys.build.schema, joined)
            held.close()
            rows = work.rows if mixes else partial(work.taken_ahead, self._name)
            given = (batch for batch in rows(self._probe) if batch.num_rows)
            for batch in keyed(work, self._name, probe, given):
                yield from table.probe(batch.select(probe.schema.names), probe.names, self._room)
            yield from table.unmatched(probe.schema, self._room)

    def in_parts(self, held: BatchBuffer) -> Batches:
        """Partitions both sides onto local disk by key hash; yields rows in probe order, and unmatched build
        rows after them."""
        work, name, probe, build = self._work, self._name, self._keys.probe, self._keys.build
        taken = {*probe.schema.names, *build.schema.names}
        sequence = pa.field(free_name("$sequence", taken), pa.int64())
        after = pa.field(free_name("$after", taken), pa.int64())
        given = probe.schema.append(sequence), build.schema.append(after)
        lefts, rights = (
            [BatchBuffer(schema, work.budget, name, work.disk) for _ in range(_PARTS)]
            for schema in given
        )
        work.keep(name, *lefts, *rights)
        max_bytes = gathered_bytes(work.budget, _PARTS)
        with Reservation(work.budget, name, max_bytes):
            numbered = _sequenced(held.drain(), given[1].names, _AFTER_ALL)
            _divide(numbered, build.names, PartitionBuffers(rights, max_bytes))
            rows = keyed(work, name, probe, work.rows(self._probe))
            numbered = _sequenced(rows, given[0].names, 0)
            _divide(numbered, probe.names, PartitionBuffers(lefts, max_bytes))
        left_schema = self._lefts().append(sequence)
        full = pa.schema([*left_schema, *list(self._schema)[len(left_schema) - 1 :]])
        joined = Joined(full, left_schema, [*self._keys.shared, (sequence.name, after.name)])
        with work.sorter(name, full, (SortColumn(sequence.name),)) as sorter:
            for left, right in zip(lefts, rights, strict=True):
                size = _BUILD_COPIES * right.bytes
                with Reservation(work.budget, name, size), self._room.working():
                    table = self._table(right, given[1], joined)
                    right.close()
                    for batch in left.drain():
                        for found in table.probe(batch, probe.names, self._room):
                            sorter.append(found.select(full.names))
                    for found in table.unmatched(given[0], self._room):
                        sorter.append(found)
            yield from sorter.sorted()

    def _lefts(self) -> pa.Schema:
        """Returns the result's columns of the probe side."""
        return self._work.schemas[self._probe]

    def _table(self, held: BatchBuffer, schema: pa.Schema, joined: Joined) -> BuildTable:
        table = pa.Table.from_batches(held, held.schema).select(schema.names)
        return BuildTable(table, self._keys.build.names, joined, self._how)


def keyed(work: RunContext, name: str, side: SideKeys, batches: Batches) -> Batches:
    """Yields rows with their keys as columns."""
    for batch in batches:
        if side.is_computed:
            yield from work.dead_letters.made(side.added, batch, name)
        else:
            yield batch


def _sequenced(batches: Batches, names: Sequence[str], row: int) -> Batches:
    """Yields these columns, the last of them with row numbers from `row` on."""
    for batch in batches:
        numbers = integer_array(np.arange(row, row + batch.num_rows))
        row += batch.num_rows
        yield batch.select(names[:-1]).append_column(names[-1], numbers)


def _divide(batches: Batches, keys: Sequence[str], divider: PartitionBuffers) -> None:
    """Partitions rows onto disk by key."""
    for batch in batches:
        divider.put(batch, part_by_keys(batch, keys, _PARTS))
    divider.finish()
