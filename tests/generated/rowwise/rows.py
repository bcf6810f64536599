"""Rows between two nodes, and random expressions over them with their meaning in Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field

OBJECT: Final = pa.struct([("a", pa.int64()), ("deep", pa.struct([("t", pa.string())]))])
ARROW: Final = {
    "int": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "object": OBJECT,
    "list": pa.list_(pa.int64()),
    "lists": pa.list_(pa.list_(pa.string())),
    "repeats": pa.list_(
        pa.struct([("element", pa.int64()), ("components", pa.list_(pa.string()))])
    ),
}
"""The kinds of columns."""
FLAT: Final = ("int", "real", "text")
_REALS: Final = (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.25, -3.5, 1e300)
TEXTS: Final = ("a", "b", "Zoë", "say 'x'", "x,y", "12", "漢字")


class FailedError(Exception):
    """An expression has no value for a row."""


class Row(Struct, frozen=True):
    """A row with the place where it came from."""

    cells: dict[str, Any]
    origin: tuple[str, int]
    group: str | None = None
    others: dict[str, Any] = field(default_factory=dict)
    """The fields that its source does not declare."""


class Edge(Struct, frozen=True):
    """The rows of a node or a branch."""

    name: str
    columns: dict[str, str]
    """Kind by name."""
    rows: list[Row]
    is_wide: bool = False
    """Whether rows have fields of their own."""
    file: str = ""
    """The file of segments that has just these rows."""

    def of_kind(self, *kinds: str) -> list[str]:
        return [column for column, kind in self.columns.items() if kind in kinds]


class Said(Struct, frozen=True):
    """An expression in SQL, and its value for the cells of a row."""

    sql: str
    value: Callable[[dict[str, Any]], Any]


def random_value(rng: random.Random, kind: str) -> Any:
    """Returns a value of a kind, null at times."""
    if rng.random() < 0.15:
        return None
    match kind:
        case "int":
            return rng.randint(-5, 9)
        case "real":
            return rng.choice(_REALS)
        case "text":
            return rng.choice(TEXTS)
        case "object":
            deep = None if rng.random() < 0.2 else {"t": random_value(rng, "text")}
            return {"a": random_value(rng, "int"), "deep": deep}
    return [random_value(rng, "int") for _ in range(rng.randint(0, 3))]


def condition(rng: random.Random, edge: Edge) -> Said:
    """Returns a condition that is true, false or null (None)."""
    column = rng.choice([c for c, kind in edge.columns.items() if kind != "repeats"])
    if rng.random() < 0.2:
        return Said(f"{column} IS NOT NULL", lambda cells: cells[column] is not None)
    given = plain(rng, edge, column)
    if edge.columns[column] in ("text", "lists"):
        text = rng.choice((*TEXTS, "LIN", "UNH", "1"))
        quoted = text.replace("'", "''")
        return Said(f"{given.sql} <> '{quoted}'", _known(given, lambda value: value != text))
    number, sign = rng.randint(-4, 8), rng.choice(("<", ">=", "<>"))
    return Said(
        f"{given.sql} {sign} {number}", _known(given, lambda value: _compared(value, sign, number))
    )


def _compared(value: float, sign: str, number: int) -> bool:
    if math.isnan(value):
        return False
    return {"<": value < number, ">=": value >= number, "<>": value != number}[sign]


def plain(rng: random.Random, edge: Edge, column: str) -> Said:
    """Returns a plain value of a column: the column, or a part of a nested one."""
    match edge.columns[column]:
        case "object":
            if rng.random() < 0.5:
                return Said(f"{column}.a", lambda cells: _part(cells[column], "a"))
            deep = f"length({column}.deep.t)"
            return Said(deep, lambda cells: _length(_part(_part(cells[column], "deep"), "t")))
        case "list":
            at = rng.choice((1, 2, -1))
            return Said(f"{column}[{at}]", lambda cells: _element(cells[column], at))
        case "lists":
            at, inner = rng.choice((1, 2, 3)), rng.choice((1, 2))
            return Said(
                f"{column}[{at}][{inner}]",
                lambda cells: _element(_element(cells[column], at), inner),
            )
    return Said(column, lambda cells: cells[column])


def number(rng: random.Random, edge: Edge) -> tuple[str, Said]:
    """Returns the kind of a computed column, and its expression, which may fail."""
    kinds = [c for c, kind in edge.columns.items() if kind in ("int", "real", "object", "list")]
    if not kinds:
        return "int", Said("length(tag)", lambda cells: _length(cells["tag"]))
    column = rng.choice(kinds)
    given, added = plain(rng, edge, column), rng.randint(-3, 3)
    is_real = edge.columns[column] == "real"
    if is_real or rng.random() < 0.5:
        said = Said(f"{given.sql} + {added}", _known(given, lambda value: value + added))
        return "real" if is_real else "int", said
    return "int", Said(
        f"100 / ({given.sql} - {added})", _known(given, lambda value: _quotient(100, value - added))
    )


def _quotient(one: int, other: int) -> int:
    if other == 0:
        raise FailedError
    return math.trunc(one / other)


def _known(given: Said, of: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
    def value(cells: dict[str, Any]) -> Any:
        found = given.value(cells)
        return None if found is None else of(found)

    return value


def _part(value: dict[str, Any] | None, name: str) -> Any:
    return None if value is None else value[name]


def _length(text: str | None) -> int | None:
    return None if text is None else len(text)


def _element(values: list[Any] | None, at: int) -> Any:
    if values is None or abs(at) > len(values):
        return None
    return values[at - 1 if at > 0 else at]
