"""Hash aggregation with one state row per group; spills states, partitioned by key, when memory is short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.errors import ConfigError, DataError
from compactor.pipelines.buffer import BatchBuffer
from compactor.pipelines.dividing import PartitionBuffers, gathered_bytes
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import one_batch
from lsm_fragment.arrays.hashing import add_column
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.names import names_text

_PARTS: Final = 32
_BITS: Final = 5
_FIRST_BIT: Final = 40
_MAX_DEPTH: Final = 8
_WORK_COPIES: Final = 4
"""Copies of the states that a merge holds: concatenated, hash table, result."""
_CALL: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*")
_FUNCTIONS: Final = ("count", "sum", "min", "max", "mean")
_STATES: Final = {
    "count": ("count",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("sum", "count"),
}
_MERGES: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate function on a column."""

    name: str
    function: str
    column: str | None
    """None counts rows."""


def parse_measures(columns: Mapping[str, str], schema: pa.Schema, what: str) -> list[Measure]:
    """Parses aggregate calls by result name. Raises `ConfigError` naming the column."""
    measures = []
    for name, text in columns.items():
        match = _CALL.fullmatch(text)
        function, column = match.groups() if match else ("", None)
        if function not in _FUNCTIONS or (column is None and function != "count"):
            raise ConfigError(
                f"{what}: column {name!r}: {text!r} is not one of count, "
                + ", ".join(f"{known}(x)" for known in _FUNCTIONS)
            )
        if column is not None and column not in schema.names:
            there = names_text(schema.names)
            raise ConfigError(f"{what}: column {name!r}: no column {column!r}; there are: {there}")
        measures.append(Measure(name, function, column))
    return measures


class Grouper:
    """A hash aggregation: takes batches, returns one row per group, unordered or in order of first
    appearance."""

    def __init__(
        self,
        keys: Sequence[str],
        measures: Sequence[Measure],
        schema: pa.Schema,
        budget: MemoryBudget,
        stage: str,
        disk: LocalDisk,
        *,
        keeps_order: bool = False,
    ) -> None:
        """keeps_order: keep groups in order of first appearance, for `finished`. Spilled groups come out by
        partition."""
        self._keys = list(keys)
        self._measures = [*measures, Measure("", "min", None)] if keeps_order else list(measures)
        self._keeps_order = keeps_order
        self._rows = 0
        self._budget = budget
        self._stage = stage
        self._disk = disk
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._memory = Reservation(budget, stage)
        self._types = {
            m.name: schema.field(m.column).type for m in measures if m.column is not None
        }
        self._state = self._first_state(pa.Table.from_batches([], schema))
        self.schema = self._result(self._state).schema
        self._parts: list[BatchBuffer] = []
        self.spills = 0

    def append(self, batch: pa.RecordBatch) -> None:
        state = self._first_state(pa.Table.from_batches([batch]))
        self._memory.grow(_WORK_COPIES * state.nbytes)
        self._waiting.append(state)
        self._waiting_rows += state.num_rows
        # Merge once the waiting states outnumber the groups, so that each group is merged only a few times.
        if self._waiting_rows > max(65_536, self._state.num_rows):
            self._settle()

    def finished(self) -> pa.Table:
        """Returns and drops all groups but the last, which may continue. The input must be sorted."""
        self._settle()
        self._state = self._state.sort_by(self._state.column_names[-1])
        done = max(0, self._state.num_rows - 1)
        result = self._result(self._state.slice(0, done))
        self._state = pa.Table.from_batches([one_batch(self._state.slice(done))])
        self._shrink_to(_WORK_COPIES * self._state.nbytes)
        return result

    def results(self) -> Iterator[pa.Table]:
        """Yields the results, one table per partition."""
        self._settle()
        if not self._parts:
            result = self._result(self._state)
            self._state = self._no_state
            self._shrink_to(result.nbytes)
            yield result
            self._shrink_to(0)
            return
        self.spill(0)
        for part in self._parts:
            for state in self._united_part(part, depth=1):
                yield self._result(state)

    def _united_part(self, part: BatchBuffer, depth: int) -> Iterator[pa.Table]:
        """Yields the merged groups of a partition, dividing it further if it does not fit into memory."""
        size = _WORK_COPIES * part.bytes
        if depth < _MAX_DEPTH and not self._budget.make_room(size):
            smaller = self._new_parts()
            max_bytes = gathered_bytes(self._budget, _PARTS)
            with Reservation(self._budget, self._stage, max_bytes):
                self._divide(part.drain(), smaller, depth, max_bytes)
            for each in smaller:
                yield from self._united_part(each, depth + 1)
        elif part.rows:
            with Reservation(self._budget, self._stage, size - part.held_bytes):
                united = self._united([pa.Table.from_batches(list(part.drain()))])
            # From here on, hold only the result: the caller may use the rest.
            with Reservation(self._budget, self._stage, united.nbytes):
                yield united

    def _new_parts(self) -> list[BatchBuffer]:
        return [
            BatchBuffer(self._state.schema, self._budget, self._stage, self._disk)
            for _ in range(_PARTS)
        ]

    def _divide(
        self,
        states: Iterable[pa.RecordBatch],
        parts: Sequence[BatchBuffer],
        depth: int,
        max_bytes: int,
    ) -> None:
        """Partitions groups onto disk by `_BITS` bits of their hash, different bits at each depth.

        max_bytes: see `PartitionBuffers`.
        """
        divider = PartitionBuffers(parts, max_bytes)
        for state in states:
            number = np.zeros(state.num_rows, dtype=np.uint64)
            for index in range(len(self._keys)):
                add_column(str(index), to_storage(state.column(index)), number)
            part_of = (number >> np.uint64(_FIRST_BIT - _BITS * depth)) % np.uint64(_PARTS)
            divider.put(state, part_of)
        divider.finish()

    def spill(self, _size: int) -> int:
        """Partitions all groups onto disk by key."""
        before = self._memory.size
        self._settle()
        if not self._state.num_rows:
            return 0
        self._parts = self._parts or self._new_parts()
        state, self._state = self._state, self._no_state
        # Each partition gets one piece, which the charge for the state covers.
        self._divide([one_batch(state)], self._parts, 0, max_bytes=0)
        self.spills += 1
        self._shrink_to(0)
        return before

    @property
    def _no_state(self) -> pa.Table:
        return self._state.schema.empty_table()

    def close(self) -> None:
        self._shrink_to(0)
        for part in self._parts:
            part.close()

    def _settle(self) -> None:
        if self._waiting:
            self._state = self._united([self._state, *self._waiting])
            self._waiting, self._waiting_rows = [], 0
            self._shrink_to(_WORK_COPIES * self._state.nbytes)

    def _shrink_to(self, size: int) -> None:
        """Lowers the reservation to `size`; never raises it."""
        self._memory.shrink(max(0, self._memory.size - size))

    def _first_state(self, rows: pa.Table) -> pa.Table:
        """Returns the state of new rows, under internal column names that cannot clash with users' names."""
        columns = {f"k{n}": _as_key(rows.column(key)) for n, key in enumerate(self._keys)}
        wanted: list[tuple[Any, str, Any]] = []
        for number, measure in enumerate(self._measures):
            for state in _STATES[measure.function]:
                if measure.column is None and not self._is_order(measure):
                    wanted.append(([], "count_all", None))
                    continue
                name = f"v{number}{state}"
                columns[name] = (
                    self._numbers(rows.num_rows)
                    if self._is_order(measure)
                    else _combinable(rows.column(measure.column), state)
                )
                mode = pc.CountOptions(mode="only_valid") if state == "count" else None
                wanted.append((name, state, mode))
        keys = [f"k{n}" for n in range(len(self._keys))]
        grouped = pa.table(columns).group_by(keys, use_threads=False).aggregate(wanted)
        return _renamed(grouped, keys)

    def _numbers(self, rows: int) -> pa.ChunkedArray:
        """Numbers rows for ordering the groups: Arrow returns them in hash-table order."""
        numbers = pa.chunked_array([pa.array(np.arange(self._rows, self._rows + rows))])
        self._rows += rows
        return numbers

    def _is_order(self, measure: Measure) -> bool:
        return self._keeps_order and measure is self._measures[-1]

    def _united(self, states: Sequence[pa.Table]) -> pa.Table:
        kinds = [_MERGES[state] for m in self._measures for state in _STATES[m.function]]
        keys = [f"k{n}" for n in range(len(self._keys))]
        again = [(f"s{n}", kind) for n, kind in enumerate(kinds)]
        grouped = pa.concat_tables(states).group_by(keys, use_threads=False).aggregate(again)
        return _renamed(grouped, keys).cast(states[0].schema)

    def _result(self, state: pa.Table) -> pa.Table:
        names, columns = list(self._keys), [state.column(n) for n in range(len(self._keys))]
        place = len(self._keys)
        for measure in self._measures:
            found = [state.column(place + n) for n in range(len(_STATES[measure.function]))]
            place += len(found)
            if self._is_order(measure):
                continue
            names.append(measure.name)
            if measure.function == "mean":
                count = pc.if_else(pc.equal(found[1], 0), None, found[1])
                columns.append(pc.divide(pc.cast(found[0], pa.float64(), safe=False), count))
            elif measure.function == "sum":
                columns.append(self._sum(found[0], measure))
            elif measure.function in ("min", "max"):
                columns.append(found[0].cast(self._types[measure.name]))
            else:
                columns.append(found[0])
        return pa.table(columns, names=names)

    def _sum(self, total: pa.ChunkedArray, measure: Measure) -> pa.ChunkedArray:
        """Casts sums to their declared type. Raises `DataError` on overflow."""
        dtype = _sum_type(self._types[measure.name])
        if not pt.is_decimal(total.type):
            return total
        try:
            return pc.cast(total, dtype)
        except pa.ArrowInvalid:
            raise DataError(
                f"column {measure.name!r}: a sum of {measure.column!r} does not fit into {dtype}"
            ) from None


def _as_key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normalises floats for grouping, as sort orders do: -0.0 equals 0.0, and all NaN are equal."""
    if not pt.is_floating(column.type):
        return column
    # Arrow cannot add float16.
    wide = column.cast(pa.float32()) if pt.is_float16(column.type) else column
    one_zero = pc.add(wide, pa.scalar(0.0, wide.type)).cast(column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), one_zero)


def _combinable(column: pa.ChunkedArray, state: str) -> pa.ChunkedArray:
    """Widens integers and decimals for sums, because Arrow's wrap around, and casts durations to integers for
    min and max, which Arrow lacks for them."""
    if state in ("min", "max") and pt.is_duration(column.type):
        return column.cast(pa.int64())
    if state != "sum":
        return column
    if pt.is_integer(column.type):
        return column.cast(pa.decimal128(38, 0))
    return (
        column.cast(pa.decimal256(76, column.type.scale)) if pt.is_decimal(column.type) else column
    )


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    if pt.is_integer(dtype):
        return pa.uint64() if pt.is_unsigned_integer(dtype) else pa.int64()
    return (
        pa.decimal128(38, dtype.scale) if pt.is_decimal(dtype) and dtype.bit_width <= 128 else dtype
    )


def _renamed(grouped: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Renames columns, keys first: where Arrow puts the keys depends on its version."""
    others = [n for n, name in enumerate(grouped.column_names) if name not in keys]
    columns = [*(grouped.column(name) for name in keys), *(grouped.column(n) for n in others)]
    return pa.table(columns, names=[*keys, *(f"s{n}" for n in range(len(others)))])
