"""Rows between two nodes: their columns, and what is promised of their order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import duckdb
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

ARROW: Final = {
    "int": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "flag": pa.bool_(),
    "time": pa.timestamp("us"),
    "date": pa.date32(),
    "money": pa.decimal128(12, 2),
}
"""The kinds of columns."""
SQL: Final = {
    "int": "BIGINT",
    "real": "DOUBLE",
    "text": "TEXT",
    "flag": "BOOLEAN",
    "time": "TIMESTAMP",
    "date": "DATE",
    "money": "DECIMAL(12, 2)",
}
TEXTS: Final = (
    "",
    "a",
    "b",
    "Zoë",
    'say "x"',
    "a,b;c|d",
    "12",
    "two\nlines",
    "%",
    "_",
    "NULL",
    "it's <b> & c",
    "漢字",
    "h" * 300,
)
HEAVY_CHARACTERS: Final = 100_000
_EPOCH: Final = datetime(2026, 1, 1)
_FEW_TEXTS: Final = 7
Row = tuple[Any, ...]


class By(Struct, frozen=True):
    """One column of an order, as `--sort-by` has it."""

    column: str
    is_descending: bool = False
    has_nulls_first: bool = False

    @property
    def setting(self) -> str:
        marks = (":desc" if self.is_descending else "") + (
            ":nulls_first" if self.has_nulls_first else ""
        )
        return self.column + marks

    @property
    def sql(self) -> str:
        direction = "DESC" if self.is_descending else "ASC"
        return f"{self.column} {direction} NULLS {'FIRST' if self.has_nulls_first else 'LAST'}"


class Edge(Struct, frozen=True, kw_only=True):
    """Rows of a node or a branch; DuckDB has them in a table with their number, `_n`."""

    name: str
    columns: dict[str, str]
    """Kind by name."""
    sources: frozenset[str]
    """The sources of its key, which is unique unless two inputs share a source."""
    key: str | None = None
    """A column that is unique and never null."""
    has_order: bool = True
    """Whether `_n` is the order of the rows."""
    order: tuple[By, ...] = ()
    """The columns by which the graph guarantees that rows are sorted."""
    is_source: bool = False

    @property
    def view(self) -> str:
        """The table of DuckDB with the same rows."""
        return self.name.replace(".", "_")

    def of_kind(self, *kinds: str) -> list[str]:
        """Returns the columns of these kinds."""
        return [column for column, kind in self.columns.items() if kind in kinds]

    def without_order(self) -> Edge:
        """Returns the edge with nothing promised of the order of its rows."""
        return replace(self, has_order=False, order=())


class Answers:
    """DuckDB's tables of the rows of each edge."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        self._database.execute("SET TimeZone = 'UTC'")
        # It turns some conditions with nullif into others, and fails on some constants.
        self._database.execute("PRAGMA disable_optimizer")

    def add_rows(self, edge: Edge, rows: Sequence[Row]) -> None:
        """Adds the rows of a source, in order."""
        arrays = {
            column: pa.array([row[at] for row in rows], ARROW[kind])
            for at, (column, kind) in enumerate(edge.columns.items())
        }
        given = pa.table({**arrays, "_n": pa.array(range(1, len(rows) + 1), pa.int64())})
        self._database.register("given", given)
        self._database.execute(f"CREATE TABLE {edge.view} AS SELECT * FROM given")
        self._database.unregister("given")

    def add(self, edge: Edge, values: Mapping[str, str], of: str, order: str = "_n") -> None:
        """Adds rows that a query gives: the value of each column, what follows FROM, and their order."""
        shown = ", ".join(
            f"CAST({values[column]} AS {SQL[kind]}) AS {column}"
            for column, kind in edge.columns.items()
        )
        number = f"row_number() OVER (ORDER BY {order}) AS _n"
        self._database.execute(f"CREATE TABLE {edge.view} AS SELECT {shown}, {number} FROM {of}")

    def rows(self, edge: Edge, order: str = "_n") -> list[Row]:
        """Returns the rows of an edge."""
        shown = ", ".join(edge.columns)
        return self._database.execute(
            f"SELECT {shown} FROM {edge.view} ORDER BY {order}"
        ).fetchall()

    def number(self, of: str) -> int:
        """Returns the number of rows of what follows FROM."""
        [(rows,)] = self._database.execute(f"SELECT count(*) FROM {of}").fetchall()
        return int(rows)

    def characters(self, edge: Edge) -> int:
        """Returns the characters of all texts of an edge."""
        total = " + ".join(["0", *(f"coalesce(sum(length({c})), 0)" for c in edge.of_kind("text"))])
        [(found,)] = self._database.execute(
            f"SELECT 0 * count(*) + {total} FROM {edge.view}"
        ).fetchall()
        return int(found)


def value(rng: random.Random, kind: str, *, is_few: bool) -> Any:
    """Returns a value of a kind, null at times; one of few, so that rows agree in it."""
    if rng.random() < 0.15:
        return None
    match kind:
        case "int":
            return rng.randint(-3, 12) if is_few else rng.randint(-1_000, 1_000)
        case "real":  # sums of quarters are exact in any order
            return rng.randint(-4_000, 4_000) / 4
        case "text":
            return rng.choice(TEXTS[:_FEW_TEXTS] if is_few else TEXTS)
        case "flag":
            return rng.random() < 0.5
        case "date":
            return (_EPOCH + timedelta(days=rng.randint(-400, 400))).date()
        case "money":
            return Decimal(rng.randint(-100_000, 100_000)).scaleb(-2)
        case _:
            return _EPOCH + timedelta(microseconds=rng.randint(0, 10**12))


def literal(rng: random.Random, kind: str) -> str:
    """Returns a value of a kind as SQL."""
    given = None
    while given is None:
        given = value(rng, kind, is_few=rng.random() < 0.5)
    match given:
        case bool():
            return str(given).lower()
        case str():
            text = given.replace("'", "''")
            return f"'{text}'"
        case datetime():
            return f"CAST('{given}' AS TIMESTAMP)"
        case date():
            return f"CAST('{given}' AS DATE)"
        case float() | Decimal():
            return f"CAST({given} AS {SQL[kind]})"
    return str(given)
