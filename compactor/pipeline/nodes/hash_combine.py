"""Hash join of two nodes: the build side is held, complete before the first row of the probe side is looked
up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.pipeline.buffer import BatchBuffer
from compactor.pipeline.combining import BuildTable, joined_schema, part_by_keys
from compactor.pipeline.config import Combine, keys_of
from compactor.pipeline.provenance import Batches
from compactor.pipeline.sorting import Sorter
from compactor.pipeline.work import Work
from format.schema import parse_sort_schema

_SEQUENCE: Final = "$sequence"
_PARTS: Final = 32
_BUILD_COPIES: Final = 3
"""Of a build side, while its table is made: rows, rows end to end, hashes and positions."""


def bound(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> pa.Schema:
    return joined_schema(probe, build, keys_of(node), what)


def rows(work: Work, name: str, node: Combine) -> Batches:
    build, names = work.schemas[node.build], work.schemas[name].names
    held = work.buffer(name, build)
    size = 0
    for batch in work.rows(node.build):
        size += batch.nbytes
        held.append(batch)
    joined = (
        _joined(work, name, node, held, size)
        if work.budget.has_room(_BUILD_COPIES * size)
        else _joined_in_parts(work, name, node, held)
    )
    for found in joined:
        yield found.select(names)


def _joined(work: Work, name: str, node: Combine, held: BatchBuffer, size: int) -> Batches:
    """The build side at once; then the probe side, in a thread of its own."""
    with work.budget.holding(name, _BUILD_COPIES * size):
        table = _build_table(work, node, held)
        held.close()
        columns, keys = work.schemas[node.probe].names, [left for left, _ in keys_of(node)]
        for batch in work.taken_ahead(name, node.probe):
            yield from table.probe(batch.select(columns), keys, keeps_all=node.how == "left")


def _joined_in_parts(work: Work, name: str, node: Combine, held: BatchBuffer) -> Batches:
    """Both sides on local disk, divided by the hash of their keys; rows in the probe side's order."""
    on, probe = keys_of(node), work.schemas[node.probe]
    sequenced = pa.schema([*probe, (_SEQUENCE, pa.int64())])
    lefts = [BatchBuffer(sequenced, work.budget, name, work.disk) for _ in range(_PARTS)]
    rights = [BatchBuffer(held.schema, work.budget, name, work.disk) for _ in range(_PARTS)]
    work.keep(name, *lefts, *rights)
    _divide(held.drain(), [right for _, right in on], rights)
    _divide(_sequenced(work.rows(node.probe), probe.names), [left for left, _ in on], lefts)
    full = joined_schema(sequenced, work.schemas[node.build], on, f"node {name!r}")
    order = parse_sort_schema(_SEQUENCE)
    with closing(Sorter(full, order, work.batch_rows, work.budget, name, work.disk)) as sorter:
        for left, right in zip(lefts, rights, strict=True):
            size = sum(batch.nbytes for batch in right)
            with work.budget.holding(name, _BUILD_COPIES * size):
                table = _build_table(work, node, right)
                right.close()
                for batch in left.drain():
                    keys = [key for key, _ in on]
                    for found in table.probe(batch, keys, keeps_all=node.how == "left"):
                        sorter.append(found.select(full.names))
        work.report.spills += sorter.spills
        yield from sorter.sorted()


def _build_table(work: Work, node: Combine, held: BatchBuffer) -> BuildTable:
    schema = work.schemas[node.build]
    table = pa.Table.from_batches(held, held.schema).select(schema.names)
    return BuildTable(table, [right for _, right in keys_of(node)])


def _sequenced(batches: Batches, names: Sequence[str]) -> Batches:
    """These columns, and the number of each row."""
    row = 0
    for batch in batches:
        numbers = pa.array(np.arange(row, row + batch.num_rows))
        row += batch.num_rows
        yield batch.select(names).append_column(_SEQUENCE, numbers)


def _divide(batches: Batches, keys: Sequence[str], parts: Sequence[BatchBuffer]) -> None:
    """Rows of equal keys into the same part, on disk."""
    for batch in batches:
        part_of = part_by_keys(batch, keys, len(parts))
        for number, part in enumerate(parts):
            some = batch.filter(pa.array(part_of == number))
            part.append(some)
            part.spill(some.nbytes)
