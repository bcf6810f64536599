"""What a table has to hold: the model beside which the crash loop reads the table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

Row = tuple[int, int]
"""The id of a row, which is its key, and its value."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Rows, properties and tags of one version."""

    merges: bool
    """Whether the newest row of a key replaces the others."""
    rows: Counter[Row] = field(default_factory=Counter)
    properties: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)

    def added(self, rows: Iterable[Row]) -> Self:
        new = list(rows)
        if not self.merges:
            return replace(self, rows=self.rows + Counter(new))
        newest = dict(new)
        kept = Counter({row: 1 for row in self.rows if row[0] not in newest})
        return replace(self, rows=kept + Counter(newest.items()))

    def without(self, matches: Callable[[int], bool]) -> Self:
        """Leaves out the rows whose ids match."""
        left = {row: count for row, count in self.rows.items() if not matches(row[0])}
        return replace(self, rows=Counter(left))

    def updated(self, matches: Callable[[int], bool], by: int) -> Self:
        """Adds a number to the values of the rows whose ids match."""
        rows: Counter[Row] = Counter()
        for (key, value), count in self.rows.items():
            rows[key, value + by if matches(key) else value] += count
        return replace(self, rows=rows)

    def altered(self, changes: Mapping[str, Any]) -> Self:
        """Sets properties; None unsets one."""
        values = {**self.properties, **changes}
        values = {name: value for name, value in values.items() if value is not None}
        return replace(self, properties=values)

    def tagged(self, name: str, version: int | None) -> Self:
        """Sets a tag; None ends it."""
        tags = {known: of for known, of in self.tags.items() if known != name}
        return replace(self, tags=tags if version is None else {**tags, name: version})

    def differs(self, found: State) -> str:
        """Says how a state that was found differs from this one; an empty text if it does not."""
        lost, extra = self.rows - found.rows, found.rows - self.rows
        if lost or extra:
            return f"{lost.total()} rows lost, {extra.total()} too many"
        if self.properties != found.properties:
            return f"properties {found.properties}, not {self.properties}"
        return f"tags {found.tags}, not {self.tags}" if self.tags != found.tags else ""


def applied(rows: Counter[Row], changes: Iterable[tuple[Row, str]]) -> Counter[Row]:
    """Returns the rows after changes, each with its kind. Raises ValueError for a row that goes unseen."""
    result = Counter(rows)
    for row, kind in changes:
        if kind in ("insert", "update_after"):
            result[row] += 1
        elif result[row] > 0:
            result[row] -= 1
        else:
            raise ValueError(f"{kind} of {row}, which is not there")
    return +result
