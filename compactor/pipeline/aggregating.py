"""Groups: what is known of each so far, as one row; on local disk by parts of the keys if memory is short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import ConfigError
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.pipeline.buffer import BatchBuffer
from format.hashing import column_contributions
from format.types import to_storage

_PARTS: Final = 32
_ORDER: Final = "$order"
_CALL: Final = re.compile(r"\s*(\w+)\s*(?:\(\s*(.+?)\s*\))?\s*")
_FUNCTIONS: Final = ("count", "sum", "min", "max", "mean")
_STATES: Final = {
    "count": ("count",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("sum", "count"),
}
_AGAIN: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    function: str
    column: str | None
    """None: rows are counted."""

    @property
    def states(self) -> list[tuple[str, str]]:
        """Names of what is kept of it, and how two of them become one."""
        return [(f"{self.name} {state}", _AGAIN[state]) for state in _STATES[self.function]]


def parse_measures(columns: Mapping[str, str], schema: pa.Schema, what: str) -> list[Measure]:
    """Raises `ConfigError` naming the column."""
    measures = []
    for name, text in columns.items():
        match = _CALL.fullmatch(text)
        function, column = match.groups() if match else ("", None)
        if function not in _FUNCTIONS or (column is None and function != "count"):
            raise ConfigError(
                f"{what}: column {name!r}: {text!r} is none of count, "
                + ", ".join(f"{known}(x)" for known in _FUNCTIONS)
            )
        if column is not None and column not in schema.names:
            there = ", ".join(schema.names[:50])
            raise ConfigError(f"{what}: column {name!r}: no column {column!r}; there are: {there}")
        measures.append(Measure(name, function, column))
    return measures


class Grouper:
    """Takes batches; gives one row a group: in any order, or in that of the groups' first rows."""

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
        """keeps_order: for `finished`; what spills comes in the order of its part."""
        self._keys = list(keys)
        self._measures = [*measures, Measure(_ORDER, "min", _ORDER)] if keeps_order else measures
        self._keeps_order = keeps_order
        self._rows = 0
        self._budget = budget
        self._stage = stage
        self._disk = disk
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._charged = 0
        self._state = self._first_state(pa.Table.from_batches([], schema))
        self.schema = self._result(self._state).schema
        self._parts: list[BatchBuffer] = []
        self.spills = 0

    def append(self, batch: pa.RecordBatch) -> None:
        state = self._first_state(pa.Table.from_batches([batch]))
        self._budget.charge(self._stage, 2 * state.nbytes)
        self._charged += 2 * state.nbytes
        self._waiting.append(state)
        self._waiting_rows += state.num_rows
        # Put together when as many wait as there are: each group is touched a few times only.
        if self._waiting_rows > max(65_536, self._state.num_rows):
            self._settle()

    def finished(self) -> pa.Table:
        """Of sorted input: all groups but the last, which may go on."""
        self._settle()
        self._state = self._state.sort_by(f"{_ORDER} min")
        done = max(0, self._state.num_rows - 1)
        result = self._result(self._state.slice(0, done))
        self._state = self._state.slice(done).combine_chunks()
        self._recharge(self._state.nbytes)
        return result

    def results(self) -> Iterator[pa.Table]:
        """Of each part of the groups."""
        self._settle()
        if not self._parts:
            yield self._result(self._state)
            self._recharge(0)
            return
        self.spill(0)
        for part in self._parts:
            states = list(part.drain())
            if states:
                yield self._result(self._united([pa.Table.from_batches(states)]))

    def spill(self, _size: int) -> int:
        """Moves all groups to disk, divided by their keys."""
        before = self._charged
        self._settle()
        if not self._parts:
            self._parts = [
                BatchBuffer(self._state.schema, self._budget, self._stage, self._disk)
                for _ in range(_PARTS)
            ]
        state, self._state = self._state, self._state.slice(0, 0)
        if state.num_rows:
            number = np.zeros(state.num_rows, dtype=np.uint64)
            for index, name in enumerate(self._keys):
                column = state.column(name).combine_chunks()
                number += column_contributions(str(index), to_storage(column))
            part_of = (number >> np.uint64(40)) % np.uint64(_PARTS)
            for index, part in enumerate(self._parts):
                rows = state.filter(pa.array(part_of == index)).combine_chunks()
                for batch in rows.to_batches():
                    part.append(batch)
                    part.spill(batch.nbytes)
            self.spills += 1
        self._recharge(0)
        return before

    def close(self) -> None:
        self._recharge(0)
        for part in self._parts:
            part.close()

    def _settle(self) -> None:
        if self._waiting:
            self._state = self._united([self._state, *self._waiting])
            self._waiting, self._waiting_rows = [], 0
            self._recharge(self._state.nbytes)

    def _recharge(self, size: int) -> None:
        """What is held is so much now: never more than before."""
        self._budget.discharge(self._stage, self._charged - min(size, self._charged))
        self._charged = min(size, self._charged)

    def _first_state(self, rows: pa.Table) -> pa.Table:
        """Of rows as they come."""
        for place, name in enumerate(rows.column_names):
            if name in self._keys and pa.types.is_floating(rows.schema.field(name).type):
                # -0.0 is 0.0, as it is in every order.
                zero = pa.scalar(0.0, rows.schema.field(name).type)
                rows = rows.set_column(place, name, pc.add(rows.column(name), zero))
        if self._keeps_order:
            # Arrow's own order of groups is that of its hash table.
            numbers = pa.array(np.arange(self._rows, self._rows + rows.num_rows))
            rows = rows.append_column(_ORDER, numbers)
            self._rows += rows.num_rows
        wanted: list[tuple[Any, str, Any]] = []
        for measure in self._measures:
            for state in _STATES[measure.function]:
                if measure.column is None:
                    wanted.append(([], "count_all", None))
                else:
                    mode = pc.CountOptions(mode="only_valid") if state == "count" else None
                    wanted.append((measure.column, state, mode))
        grouped = rows.group_by(self._keys, use_threads=False).aggregate(wanted)
        return _renamed(grouped, self._keys, [name for m in self._measures for name, _ in m.states])

    def _united(self, states: Sequence[pa.Table]) -> pa.Table:
        again = [state for measure in self._measures for state in measure.states]
        table = pa.concat_tables(states)
        grouped = table.group_by(self._keys, use_threads=False).aggregate(again)
        return _renamed(grouped, self._keys, [name for name, _ in again]).cast(states[0].schema)

    def _result(self, state: pa.Table) -> pa.Table:
        columns = {name: state.column(name) for name in self._keys}
        for measure in self._measures:
            if measure.name == _ORDER:
                continue
            found = [state.column(name) for name, _ in measure.states]
            if measure.function == "mean":
                total, count = found
                columns[measure.name] = pc.divide(
                    total.cast(pa.float64()), pc.if_else(pc.equal(count, 0), None, count)
                )
            else:
                columns[measure.name] = found[0]
        return pa.table(columns)


def _renamed(grouped: pa.Table, keys: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Arrow puts the keys first or last, by version; and names results itself."""
    others = [n for n in range(grouped.num_columns) if grouped.column_names[n] not in keys]
    columns = {name: grouped.column(name) for name in keys}
    columns |= {name: grouped.column(n) for name, n in zip(names, others, strict=True)}
    return pa.table(columns)
