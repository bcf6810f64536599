"""What rows of one key come to, by plain Python: what every policy is held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compactor.rows.policy import RowFunction, RowKind, RowPolicy

Row = dict[str, Any]


class Model:
    """A table as a dictionary of histories. Knows neither fragments nor compactions."""

    def __init__(self, policy: RowPolicy, key: Sequence[str], columns: Sequence[str]) -> None:
        self._policy = policy
        self._key = key
        self._columns = columns
        self._histories: dict[tuple[Any, ...], list[Row]] = {}

    def append(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = tuple(row[name] for name in self._key)
            self._histories.setdefault(key, []).append(row)

    def delete(self, where: Callable[[Row], bool]) -> int:
        """Returns the number of merged rows that are gone."""
        gone = [key for key, row in self._merged().items() if where(row)]
        for key in gone:
            del self._histories[key]
        return len(gone)

    def rows(self) -> list[Row]:
        merged = self._merged()
        return [merged[key] for key in sorted(merged)]

    def _merged(self) -> dict[tuple[Any, ...], Row]:
        found = {key: self._one(history) for key, history in self._histories.items()}
        return {key: row for key, row in found.items() if row is not None}

    def _one(self, history: list[Row]) -> Row | None:
        policy = self._policy
        if policy.sequence is not None:
            name = policy.sequence
            history = sorted(history, key=lambda row: (row[name] is not None, row[name] or 0))
        alive: list[Row] = []
        for row in history:
            if policy.delete_marker is not None and row[policy.delete_marker]:
                alive = []
            else:
                alive.append(row)
        if not alive:
            return None
        match policy.kind:
            case RowKind.LAST:
                return alive[-1]
            case RowKind.FIRST:
                return alive[0]
        return {
            name: alive[-1][name]
            if name in self._key
            else _fold(policy.function(name), [row[name] for row in alive])
            for name in self._columns
        }


def _fold(function: RowFunction, values: list[Any]) -> Any:
    present = [value for value in values if value is not None]
    if function is RowFunction.COUNT:
        return len(present)
    if not present:
        return None
    match function:
        case RowFunction.LAST:
            return present[-1]
        case RowFunction.FIRST:
            return present[0]
        case RowFunction.SUM:
            return sum(present)
        case RowFunction.MIN | RowFunction.BOOL_AND:
            return min(present)
        case RowFunction.MAX | RowFunction.BOOL_OR:
            return max(present)
        case RowFunction.LIST:
            return [item for value in present for item in value]
        case RowFunction.SET:
            return list(dict.fromkeys(item for value in present for item in value))
    raise AssertionError(function)
