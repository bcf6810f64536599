"""What a table must say, in plain Python: rows as they came, sorted anew at each question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from lsm_fragment.keys.sort_schema import Nulls, Order
from tests.generated.bits import Value

Row = dict[int, Value]
"""Values by the number of their column; one that is not there is null."""


class Model(Struct):
    """A table of which all rows stay until they are deleted."""

    sort: Sequence[tuple[int, Order, Nulls]]
    columns: dict[str, int] = field(default_factory=dict)
    """Numbers of columns by the names that they have now, in their order."""
    rows: list[Row] = field(default_factory=list)
    """In the order in which they came."""
    next_number: int = 0

    def add_column(self, name: str) -> int:
        """Returns the number of the column of that name, which is new unless there is one."""
        if name not in self.columns:
            self.columns[name] = self.next_number
            self.next_number += 1
        return self.columns[name]

    def append(self, columns: Mapping[str, Sequence[Value]], rows: int) -> None:
        """Adds rows given by columns; new ones come last."""
        numbers = [self.add_column(name) for name in columns]
        values = list(columns.values())
        for row in range(rows):
            self.rows.append({n: column[row] for n, column in zip(numbers, values, strict=True)})

    def delete(self, holds: Callable[[Row], bool]) -> int:
        """Removes rows; returns how many."""
        before = len(self.rows)
        self.rows = [row for row in self.rows if not holds(row)]
        return before - len(self.rows)

    def sorted_rows(self) -> list[Row]:
        """Returns the rows in sort order, equal keys in the order in which they came."""
        rows = list(self.rows)
        for number, order, nulls in reversed(self.sort):

            def value(row: Row, number: int = number) -> Any:
                return sortable(row.get(number))

            is_null = [row for row in rows if row.get(number) is None]
            others = [row for row in rows if row.get(number) is not None]
            others.sort(key=value, reverse=order is Order.DESC)
            rows = is_null + others if nulls is Nulls.FIRST else others + is_null
        return rows

    def copy(self) -> Model:
        """Returns the table as it is now; rows are shared, since they never change."""
        return Model(self.sort, dict(self.columns), list(self.rows), self.next_number)


def sortable(value: Value) -> Any:
    """Returns what Python sorts as the format does: -0.0 as 0.0, NaN behind every number, and whole numbers
    among floats, since a writer may have those."""
    if isinstance(value, int):
        return (0, value)
    if not isinstance(value, str):
        return value
    return (1, 0.0) if value.startswith("nan") else (0, float.fromhex(value))
