"""Joins two nodes in sort order: sort-merge, range and as-of joins. Sorts each side that the graph does not
guarantee to be sorted."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.asof_join import AsofJoin
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.classify import merge_order, order_of, point_order
from compactor.pipelines.combining import joined_schema
from compactor.pipelines.config import Combine, RangeCondition, keys_of
from compactor.pipelines.merge_join import How, MergeJoin
from compactor.pipelines.pairing import Joined
from compactor.pipelines.provenance import Batches
from compactor.pipelines.range_join import Closed, Intervals, RangeJoin, interval_order
from compactor.pipelines.sorted_rows import Room, SortedRows
from compactor.pipelines.sorting import Sorter
from compactor.pipelines.work import RunContext
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.sort_schema import SortColumn, SortSchema
from lsm_fragment.names import names_text

_NO_ORDER: Final = (pt.is_null, pt.is_nested, pt.is_interval, pt.is_float16)


def bound(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> pa.Schema:
    """Returns the schema of the result. Raises `ConfigError` naming the column."""
    schema = joined_schema(probe, build, keys_of(node), what)
    if node.range is not None:
        bounds = {"range.from": node.range.begin, "range.to": node.range.end}
        _check_order(("range.column", node.range.column), bounds, (probe, build), what)
    for mine, theirs in (node.at or {}).items():
        _check_order(("at", mine), {"at": theirs}, (probe, build), what)
    return schema


def rows(work: RunContext, name: str, node: Combine) -> Batches:
    with _Sides(work, name) as sides:
        joined = Joined(work.schemas[name], work.schemas[node.probe], keys_of(node))
        if node.range is not None:
            yield from _range_join(node, node.range, sides, joined)
        elif node.at is not None:
            yield from _asof_join(node, node.at, sides, joined)
        else:
            yield from _merge_join(node, merge_order(node, work.nodes), sides, joined)


def _merge_join(node: Combine, order: SortSchema, sides: _Sides, joined: Joined) -> Batches:
    names = dict(keys_of(node))
    left = sides.sorted(node.probe, order)
    right = sides.sorted(
        node.build, tuple(replace(part, column=names[part.column]) for part in order)
    )
    return MergeJoin(left, right, joined, How(node.how)).rows()


def _range_join(node: Combine, interval: RangeCondition, sides: _Sides, joined: Joined) -> Batches:
    keys = tuple(right for _, right in keys_of(node))
    points = sides.sorted(node.probe, point_order(node))
    build_order = interval_order(tuple(SortColumn(key) for key in keys), interval.begin)
    intervals = sides.sorted(node.build, build_order)
    what = Intervals(keys, interval.begin, interval.end, Closed(interval.closed))
    return RangeJoin(points, intervals, what, joined, keeps_all=node.how == "left").rows()


def _asof_join(node: Combine, at: dict[str, str], sides: _Sides, joined: Joined) -> Batches:
    names = [right for _, right in keys_of(node)] + list(at.values())
    left = sides.sorted(node.probe, point_order(node))
    right = sides.sorted(node.build, tuple(SortColumn(name) for name in names))
    return AsofJoin(left, right, joined, keeps_all=node.how == "left").rows()


class _Sides:
    """Both inputs of a join in order, with its buffers, charged to one node."""

    def __init__(self, work: RunContext, name: str) -> None:
        self._work = work
        self._name = name
        self._sorters: list[Sorter] = []
        self._stack = ExitStack()

    def __enter__(self) -> _Sides:
        self._work.budget.spill_by(self._name, self._spill)
        return self

    def __exit__(self, *_: object) -> None:
        self._work.report.spills += sum(sorter.spills for sorter in self._sorters)
        self._stack.close()

    def sorted(self, edge: str, order: SortSchema) -> SortedRows:
        """Returns the rows of the edge in this order, without the hidden columns."""
        work = self._work
        schema = work.schemas[edge]
        batches: Batches = (batch.select(schema.names) for batch in work.rows(edge))
        if order_of(edge, work.nodes)[: len(order)] != order:
            batches = self._put_in_order(batches, schema, order)
        room = Room(work.budget, self._name, self._buffer)
        found = SortedRows(batches, schema, [part.column for part in order], order, room)
        self._stack.callback(found.close)
        return found

    def _put_in_order(self, batches: Batches, schema: pa.Schema, order: SortSchema) -> Batches:
        work = self._work
        sorter = Sorter(
            schema, order, work.batch_rows, work.budget, self._name, work.disk, at_once=2
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


def _check_order(
    first: tuple[str, str], others: dict[str, str], sides: tuple[pa.Schema, pa.Schema], what: str
) -> None:
    """Checks that columns of both sides are comparable. Raises `ConfigError` naming the column.

    first: setting and column of the probe side. others: build-side columns by setting.
    """
    types: list[pa.DataType] = []
    for setting, name in (first, *others.items()):
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
        if dtype != types[0]:
            raise ConfigError(
                f"{what}: {setting}: {name!r} is {dtype}, {first[1]!r} of the probe side is {types[0]}: "
                "cast one in a transform"
            )
