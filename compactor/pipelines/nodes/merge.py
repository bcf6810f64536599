"""Merges several nodes: concatenated, as they arrive, round-robin, in random order, or by key."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from compactor.files.source import sliced
from compactor.pipelines.binding import common_schema, fitted, sort_schema
from compactor.pipelines.channel import Channel
from compactor.pipelines.classify import Form
from compactor.pipelines.config import Merge, MergeMode
from compactor.pipelines.merging import InterleavedRows, by_key
from compactor.pipelines.provenance import Batches, boundary_batch, boundary_of
from compactor.pipelines.work import RunContext, taken

_HELD_BYTES: Final = 256 << 10
"""Read size for an input that is held whole."""
_DIVISOR: Final = 8
"""Reading from all inputs takes at most 1/8 of the soft limit."""


def bound(node: Merge, given: Sequence[pa.Schema], what: str) -> pa.Schema:
    if node.mode is MergeMode.ENTITY:
        from compactor.pipelines.nodes import entity

        return entity.bound(node, given, what)
    schema = common_schema(node.inputs, given, what)
    if node.sort_by is not None:
        sort_schema(node.sort_by, schema, what)
    return schema


def rows(work: RunContext, name: str, node: Merge) -> Batches:
    match node.mode:
        case MergeMode.KEY:
            return _sorted(work, name, node)
        case MergeMode.ENTITY:
            from compactor.pipelines.nodes import entity

            return entity.rows(work, name, node)
        case MergeMode.CONCAT:
            return _concatenated(work, name, node)
    if node.interleave_seed is None and work.forms[name].form is Form.FUSED:
        return _polled(work, name, node)
    return _interleaved(work, name, node)


def _sorted(work: RunContext, name: str, node: Merge) -> Batches:
    assert node.sort_by is not None
    schema = work.schemas[name]
    sort = sort_schema(node.sort_by, schema, f"node {name!r}")
    inputs = [(f"node {name!r}: {i}", _aligned(work, work.rows(i), schema)) for i in node.inputs]

    def place_of(index: int, number: int, row: pa.RecordBatch) -> str:
        own = f"row {number} of {node.inputs[index]!r}"
        origin = work.dead_letters.origin_of(row)
        return origin if origin.split(" (")[0] == own else f"{own}, from {origin},"

    full = work.full(schema)
    return by_key(inputs, full, sort, work.batch_size, work.budget, work.disk, work.pool, place_of)


def _interleaved(work: RunContext, name: str, node: Merge) -> Batches:
    schema = work.schemas[name]
    buffers = [work.buffer(name, schema) for _ in node.inputs]
    # One batch per input will be in memory at a time.
    max_bytes = min(_HELD_BYTES, work.budget.soft_bytes // (_DIVISOR * len(buffers)))
    for i, buffer in zip(node.inputs, buffers, strict=True):
        for batch in _aligned(work, work.rows(i), schema):
            for piece in sliced(batch, max_bytes):
                buffer.append(piece)
    inputs = [buffer.drain() for buffer in buffers]
    with closing(InterleavedRows(inputs, work.budget, name)) as rows:
        if node.interleave_seed is None:
            yield from rows.in_turn()
        else:
            yield from rows.drawn([buffer.rows for buffer in buffers], node.interleave_seed)


def _concatenated(work: RunContext, name: str, node: Merge) -> Batches:
    """Concatenates the inputs and their documents; later ones without a buffer read ahead into channels."""
    schema = work.schemas[name]
    ahead = {
        i: work.reading_ahead(name, i)
        for i in node.inputs[1:]
        if work.is_fused_chain(i.split(".")[0])
    }
    for i in node.inputs:
        batches = taken(ahead[i]) if i in ahead else work.stream(i)
        yield from _aligned(work, batches, schema)


def _polled(work: RunContext, name: str, node: Merge) -> Batches:
    """Yields whatever is ready at any source, so that a slow source does not hold up the others."""
    changed = threading.Condition()
    schema = work.schemas[name]
    channels = [work.reading_ahead(name, i, changed) for i in node.inputs]
    first = 0
    while channels:
        _wait_for_any(channels, changed)
        for offset in range(len(channels)):
            channel = channels[(first + offset) % len(channels)]
            batch = channel.poll()
            if batch is not None and batch.num_rows:
                first = (channels.index(channel) + 1) % len(channels)
                yield from _aligned(work, iter([batch]), schema)
                break
        channels = [channel for channel in channels if not channel.is_done]


def _wait_for_any(channels: Sequence[Channel], changed: threading.Condition) -> None:
    with changed:
        changed.wait_for(lambda: any(channel.has_something for channel in channels))


def _aligned(work: RunContext, batches: Batches, schema: pa.Schema) -> Batches:
    full = work.full(schema)
    for batch in batches:
        boundary = boundary_of(batch)
        yield fitted(batch, full) if boundary is None else boundary_batch(boundary, full)
