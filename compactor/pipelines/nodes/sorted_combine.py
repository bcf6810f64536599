"""Joins two nodes in sort order: sort-merge, range and as-of joins. Sorts each side that the graph does not
guarantee to be sorted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Final

import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.asof_join import AsofJoin
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.classify import merge_order, order_of
from compactor.pipelines.config import Combine, RangeCondition, keys_of
from compactor.pipelines.join_keys import JoinKeys, Ordered, SideKeys
from compactor.pipelines.key_types import common_order_type
from compactor.pipelines.merge_join import MergeJoin
from compactor.pipelines.nodes.hash_combine import keyed
from compactor.pipelines.pairing import How, Joined
from compactor.pipelines.provenance import Batches
from compactor.pipelines.range_join import Closed, Intervals, RangeJoin, interval_order
from compactor.pipelines.sorted_rows import Room, SortedRows
from compactor.pipelines.sorting import Sorter
from compactor.pipelines.work import RunContext
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema
from lsm_fragment.names import names_text

_NO_ORDER: Final = (pt.is_null, pt.is_nested, pt.is_interval, pt.is_float16)


def ordered(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> list[Ordered]:
    """Returns the columns of intervals or times. Raises `ConfigError` naming the column."""
    sides = probe, build
    if node.range is not None:
        bounds = [("range.from", node.range.begin), ("range.to", node.range.end)]
        return [_ordered(("range.column", node.range.column), bounds, sides, what)]
    times = (node.at or {}).items()
    return [_ordered(("at", mine), [("at", theirs)], sides, what) for mine, theirs in times]


def rows(work: RunContext, name: str, node: Combine, keys: JoinKeys) -> Batches:
    with _Sides(work, name, node, keys) as sides:
        joined = Joined(work.schemas[name], work.schemas[node.probe], keys.shared)
        if node.range is not None:
            yield from _range_join(node, node.range, sides, joined)
        elif node.at is not None:
            yield from _asof_join(node, sides, joined)
        else:
            yield from _merge_join(node, merge_order(node, work.nodes), sides, joined)


def _merge_join(node: Combine, order: SortSchema, sides: _Sides, joined: Joined) -> Batches:
    at = {left: place for place, (left, _) in enumerate(keys_of(node))}
    left, right = (
        side(tuple(replace(part, column=names[at[part.column]]) for part in order))
        for side, names in (
            (sides.probe, sides.keys.probe.names), (sides.build, sides.keys.build.names)
        )
    )  # fmt: skip
    return MergeJoin(left, right, joined, How(node.how)).rows()


def _range_join(node: Combine, interval: RangeCondition, sides: _Sides, joined: Joined) -> Batches:
    *keys, begin, end = sides.keys.build.names
    points = sides.probe(_ascending(sides.keys.probe.names))
    intervals = sides.build(interval_order(_ascending(keys), begin))
    what = Intervals(tuple(keys), begin, end, Closed(interval.closed))
    return RangeJoin(points, intervals, what, joined, keeps_all=node.how == "left").rows()


def _asof_join(node: Combine, sides: _Sides, joined: Joined) -> Batches:
    left = sides.probe(_ascending(sides.keys.probe.names))
    right = sides.build(_ascending(sides.keys.build.names))
    return AsofJoin(left, right, joined, keeps_all=node.how == "left").rows()


def _ascending(columns: Sequence[str]) -> SortSchema:
    return tuple(map(SortColumn, columns))


class _Sides:
    """Both inputs of a join in order, with its buffers, charged to one node."""

    def __init__(self, work: RunContext, name: str, node: Combine, keys: JoinKeys) -> None:
        self._work = work
        self._name = name
        self._node = node
        self.keys = keys
        self._sorters: list[Sorter] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Sides:
        self._work.budget.spill_by(self._name, self._spill)
        return self

    def __exit__(self, *_: object) -> None:
        self._work.report.spills += sum(sorter.spills for sorter in self._sorters)
        self._stack.close()

    def probe(self, order: SortSchema) -> SortedRows:
        return self._sorted(self._node.probe, self.keys.probe, order)

    def build(self, order: SortSchema) -> SortedRows:
        return self._sorted(self._node.build, self.keys.build, order)

    def _sorted(self, edge: str, side: SideKeys, order: SortSchema) -> SortedRows:
        """Returns the rows of the edge in this order, with keys and without the hidden columns."""
        work, schema = self._work, side.schema
        rows = keyed(work, self._name, side, work.rows(edge))
        batches: Batches = (batch.select(schema.names) for batch in rows)
        if order_of(edge, work.nodes)[: len(order)] != order:
            batches = self._put_in_order(batches, schema, order)
        room = Room(work.budget, self._name, self._buffer)
        found = SortedRows(batches, schema, [part.column for part in order], order, room)
        self._stack.callback(found.close)
        return found

    def _put_in_order(self, batches: Batches, schema: pa.Schema, order: SortSchema) -> Batches:
        work = self._work
        sorter = Sorter(
            schema,
            order,
            work.batch_size,
            work.budget,
            self._name,
            work.disk,
            at_once=2,
            pool=work.pool,
        )
        self._stack.enter_context(closing(sorter))
        self._sorters.append(sorter)
        for batch in batches:
            sorter.append(batch)
        return sorter.sorted()

    def _buffer(self, schema: pa.Schema) -> BatchBuffer:
        buffer = BatchBuffer(schema, self._work.budget, self._name, self._work.disk)
        self._work.keep(self._name, buffer)
        return buffer

    def _spill(self, size: int) -> int:
        freed = sum(sorter.spill(size) for sorter in self._sorters)
        return freed + self._work.spill_buffers(self._name, size)


def _ordered(
    first: tuple[str, str],
    others: Sequence[tuple[str, str]],
    sides: tuple[pa.Schema, pa.Schema],
    what: str,
) -> Ordered:
    """Finds the type in which columns of both sides compare. Raises `ConfigError` naming the column.

    first: setting and column of the probe side. others: those of the build side.
    """
    types: list[pa.DataType] = []
    for setting, name in (first, *others):
        side, schema = ("build", sides[1]) if types else ("probe", sides[0])
        if name not in schema.names:
            there = names_text(schema.names)
            raise ConfigError(
                f"{what}: {setting}: the {side} side has no column {name!r}; it has: {there}"
            )
        dtype = storage_type(schema.field(name).type)
        if any(is_odd(dtype) for is_odd in _NO_ORDER):
            raise ConfigError(f"{what}: {setting}: {name!r} is {dtype}, which has no order")
        types.append(dtype)
        if (common := common_order_type(types)) is None:
            raise ConfigError(
                f"{what}: {setting}: {name!r} is {dtype}, {first[1]!r} of the probe side is {types[0]}: "
                "cast one in a transform"
            )
    return Ordered(first[1], [name for _, name in others], common)
