"""Random graphs of pipelines over files of every kind, held against DuckDB's answer to the same graph.

`python -m tests.generated.graphs --count 5000 --processes 2`; `--seed 4711` tries one again.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq

from compactor.errors import CompactorError
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import run_pipeline
from compactor.resources.errors import MemoryLimitError
from tests.generated.pool import count, main

TIMEOUT_S: Final = 60.0
_KINDS: Final = {
    "int": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "flag": pa.bool_(),
    "time": pa.timestamp("us"),
}
_FIELDS: Final = {
    "int": "BIGINT",
    "real": "DOUBLE",
    "text": "TEXT",
    "flag": "BOOLEAN",
    "time": "TIMESTAMP",
}
_TEXTS: Final = (
    "",
    "a",
    "b",
    "Zoë",
    'say "x"',
    "a,b",
    "two\nlines",
    "%",
    "_",
    "NULL",
    "漢字",
    "h" * 300,
)
_EPOCH: Final = datetime(2026, 1, 1)
_SHOWN_ROWS: Final = 3
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows of a node or a branch."""

    name: str
    columns: dict[str, str]
    """Kind by name."""
    sources: frozenset[str]
    """Where its ids come from; an id is unique unless two inputs share a source."""
    key: str | None
    """A column that is unique and never null."""
    order: str | None = None
    """A column that the rows are sorted by, which is unique."""

    @property
    def view(self) -> str:
        """The table of DuckDB with the same rows."""
        return self.name.replace(".", "_")


class Graph:
    """One random graph: its nodes, and DuckDB's tables of the same rows."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self._rng = rng
        self._folder = folder
        self.nodes: dict[str, Any] = {}
        self.database = duckdb.connect(config={"threads": 1})
        self._edges: list[Edge] = []
        self._numbers = 0

    def grow(self) -> None:
        rng = self._rng
        for _ in range(rng.randint(1, 3)):
            self._source()
        steps = (self._transform, self._transform, self._route, self._merge, self._sort, self._aggregate,
                 self._join, self._join, self._window)  # fmt: skip
        for _ in range(rng.randint(1, 7)):
            rng.choice(steps)()

    def outputs(self) -> list[tuple[Edge, Path]]:
        """Adds an output for each edge that has no consumer, and for some that have."""
        found, consumed = [], set(self._consumed())
        for edge in list(self._edges):
            if edge.name in consumed and self._rng.random() > 0.15:
                continue
            kind = self._rng.choice(("csv", "ndjson", "parquet", "arrow", "csv.gz", "ndjson.zst"))
            place = self._folder / f"{self._name('out')}.{kind}"
            self.nodes[place.name.partition(".")[0]] = {
                "output": {"input": edge.name, "path": str(place)}
            }
            found.append((edge, place))
        return found

    # --- nodes ---

    def _source(self) -> None:
        rng, name = self._rng, self._name("s")
        rows = rng.choice((0, 1, 2, 17, 17, 60, 200))
        kinds = {"id": "int", "k": "int", "n": "int", "g": "text"}
        kinds |= {f"c{i}": rng.choice(list(_KINDS)) for i in range(rng.randint(0, 3))}
        kinds = {self._column(column): kind for column, kind in kinds.items()}
        names = list(kinds)
        start = 1_000 * self._numbers
        arrays = {
            column: pa.array(
                range(start, start + rows)
                if at == 0
                else [self._value(at, kind) for _ in range(rows)],
                _KINDS[kind],
            )
            for at, (column, kind) in enumerate(kinds.items())
        }
        table = pa.table(arrays)
        place = self._folder / f"{name}.{rng.choice(('csv', 'ndjson', 'parquet', 'arrow'))}"
        _write(table, place)
        settings: dict[str, Any] = {"path": str(place)}
        is_text = place.suffix in (".csv", ".ndjson")
        if is_text:  # types of columns without values can't be found
            settings["fields"] = {column: _FIELDS[kind] for column, kind in kinds.items()}
        self.nodes[name] = {"source": settings}
        self.database.register("given", table)
        self._add(Edge(name, kinds, frozenset([name]), names[0]), "SELECT * FROM given")

    def _transform(self) -> None:
        rng, edge, name = self._rng, self._input(), self._name("t")
        settings: dict[str, Any] = {"input": edge.name}
        sql, columns, key = "*", edge.columns, edge.key
        if rng.random() < 0.7:
            settings["filter"] = self._condition(edge)
        if rng.random() < 0.6:
            kept = [c for c in edge.columns if c == edge.key or rng.random() < 0.7] or list(
                edge.columns
            )[:1]
            made = {column: column for column in kept}
            columns = {column: edge.columns[column] for column in kept}
            for _ in range(rng.randint(0, 2)):
                kind, text = self._expression(edge)
                column = self._column("x")
                made[column], columns[column] = text, kind
            settings["columns"] = made
            sql = ", ".join(f"{text} AS {column}" for column, text in made.items())
        self.nodes[name] = {"transform": settings}
        order = edge.order if edge.order in columns else None
        where = settings.get("filter", "true")
        self._add(
            Edge(name, columns, edge.sources, key, order),
            f"SELECT {sql} FROM {edge.view} WHERE {where}",
        )

    def _route(self) -> None:
        edge, name = self._input(), self._name("r")
        first, second = self._condition(edge), self._condition(edge)
        branches = {"one": first, "two": second}
        self.nodes[name] = {
            "route": {"input": edge.name, "branches": branches, "otherwise": "rest"}
        }
        taken = f"coalesce({first}, false)"
        wheres = {
            "one": taken,
            "two": f"NOT {taken} AND coalesce({second}, false)",
            "rest": f"NOT {taken} AND NOT coalesce({second}, false)",
        }
        for branch, where in wheres.items():
            self._add(
                Edge(
                    f"{name}.{branch}",
                    edge.columns,
                    edge.sources,
                    edge.key,
                    edge.order,
                ),
                f"SELECT * FROM {edge.view} WHERE {where}",
            )

    def _merge(self) -> None:
        rng, first, name = self._rng, self._input(), self._name("m")
        alike = [e for e in self._edges if list(e.columns.values()) == list(first.columns.values())]
        others = rng.sample(alike, min(len(alike), rng.randint(1, 3)))
        edges = [first, *(e for e in others if e is not first)]
        inputs = [first.name]
        inputs += [
            self._renamed(edge, dict(zip(edge.columns, first.columns, strict=True)))
            for edge in edges[1:]
        ]
        modes: list[dict[str, Any]] = [
            {"mode": "concat"},
            {"mode": "interleave"},
            {"mode": "interleave", "interleave_seed": 7},
        ]
        self.nodes[name] = {"merge": {"inputs": inputs, **rng.choice(modes)}}
        sources = [e.sources for e in edges]
        is_unique = sum(map(len, sources)) == len(frozenset().union(*sources)) and all(
            e.key for e in edges
        )
        same_key = {list(e.columns).index(e.key) for e in edges if e.key is not None}
        key = first.key if is_unique and len(same_key) == 1 else None
        union = " UNION ALL ".join(f"SELECT * FROM {e.view}" for e in edges)
        self._add(Edge(name, first.columns, frozenset().union(*sources), key), union)

    def _sort(self) -> None:
        edge, name = self._input(), self._name("o")
        by = edge.key or self._rng.choice(list(edge.columns))
        down = self._rng.choice(("", ":desc"))
        self.nodes[name] = {"sort": {"input": edge.name, "by": f"{by}{down}"}}
        order = edge.key and f"{by}{down}"
        self._add(
            Edge(name, edge.columns, edge.sources, edge.key, order),
            f"SELECT * FROM {edge.view}",
        )

    def _aggregate(self) -> None:
        rng, edge, name = self._rng, self._input(), self._name("a")
        groups = rng.sample(list(edge.columns), rng.randint(1, min(2, len(edge.columns))))
        columns = {column: edge.columns[column] for column in groups}
        made = {self._column("n"): "count"}
        sql = ["count(*)"]
        for column, kind in edge.columns.items():
            if rng.random() < 0.5:
                function = rng.choice(
                    ("count", "min", "max", *(["sum"] if kind in ("int", "real") else []))
                )
                made[self._column("x")] = text = f"{function}({column})"
                sql.append(text)
        for column, text in made.items():
            of = text.partition("(")[2].rstrip(")")
            columns[column] = "int" if text.startswith("count") else edge.columns[of]
        self.nodes[name] = {"aggregate": {"input": edge.name, "group_by": groups, "columns": made}}
        shown = [*groups, *(f"{text} AS {column}" for text, column in zip(sql, made, strict=True))]
        shown = [
            _as_kind(text, column, columns[column])
            for text, column in zip(shown, columns, strict=True)
        ]
        key = groups[0] if groups == [edge.key] else None
        self._add(
            Edge(name, columns, edge.sources, key),
            f"SELECT {', '.join(shown)} FROM {edge.view} GROUP BY {', '.join(groups)}",
        )

    def _join(self) -> None:
        rng, probe, other, name = self._rng, self._input(), self._input(), self._name("j")
        pairs = [
            (left, right)
            for left, kind in probe.columns.items()
            for right, of in other.columns.items()
            if kind == of and kind != "real"
        ]
        if not pairs or self._rows(probe) * self._rows(other) > 40_000:
            return
        renamed = {column: self._column("b") for column in other.columns}
        build = self._renamed(other, renamed)
        left, right = rng.choice(pairs)
        key = renamed[right]
        method, how = rng.choice(
            [
                ("hash", "inner"),
                ("hash", "left"),
                *(("sort_merge", h) for h in ("inner", "left", "right", "full")),
            ]
        )
        settings = {"probe": probe.name, "build": build, "on": {left: key}, "how": how}
        self.nodes[name] = {"combine": settings | ({} if method == "hash" else {"method": method})}
        columns = probe.columns | {
            renamed[c]: kind for c, kind in other.columns.items() if c != right
        }
        shown = [
            f"coalesce(p.{c}, d.{key}) AS {c}" if c == left else f"p.{c}" for c in probe.columns
        ]
        shown += [f"d.{renamed[c]}" for c in other.columns if c != right]
        inner = ", ".join(f"{c} AS {renamed[c]}" for c in other.columns)
        self._add(
            Edge(name, columns, probe.sources | other.sources, None),
            f"SELECT {', '.join(shown)} FROM {probe.view} p {how.upper()} JOIN "
            f"(SELECT {inner} FROM {other.view}) d ON p.{left} = d.{key}",
        )

    def _window(self) -> None:
        edge, name = self._input(), self._name("w")
        others = [column for column in edge.columns if column != edge.key]
        if edge.key is None or not others:
            return
        partition = self._rng.choice(others)
        ints = [column for column, kind in edge.columns.items() if kind == "int"]
        calls = [
            "row_number()",
            f"sum({self._rng.choice(ints)})",
            f"lag({self._rng.choice(ints)})",
            "count(*)",
        ]
        call, column = self._rng.choice(calls), self._column("w")
        kept = {c: c for c in edge.columns}
        self.nodes[name] = {
            "transform": {
                "input": edge.name,
                "window": {"partition_by": [partition], "order_by": edge.key},
                "columns": {**kept, column: call},
            }
        }
        over = f"{call} OVER (PARTITION BY {partition} ORDER BY {edge.key}" + (
            ")" if call.startswith(("row", "lag")) else " ROWS UNBOUNDED PRECEDING)"
        )
        self._add(
            Edge(name, edge.columns | {column: "int"}, edge.sources, edge.key),
            f"SELECT *, CAST({over} AS BIGINT) AS {column} FROM {edge.view}",
        )

    # --- parts ---

    def _input(self) -> Edge:
        return self._rng.choice(self._edges[-4:] if self._rng.random() < 0.7 else self._edges)

    def _consumed(self) -> Iterator[str]:
        for node in self.nodes.values():
            [settings] = node.values()
            yield from (settings[name] for name in ("input", "probe", "build") if name in settings)
            yield from settings.get("inputs", ())

    def _renamed(self, edge: Edge, names: dict[str, str]) -> str:
        """Adds a transform that gives columns other names; returns its name."""
        name = self._name("n")
        columns = {new: old for old, new in names.items()}
        self.nodes[name] = {"transform": {"input": edge.name, "columns": columns}}
        return name

    def _add(self, edge: Edge, sql: str) -> None:
        self.database.execute(f"CREATE TABLE {edge.view} AS {sql}")
        self._edges.append(edge)

    def _rows(self, edge: Edge) -> int:
        [(rows,)] = self.database.execute(f"SELECT count(*) FROM {edge.view}").fetchall()
        return int(rows)

    def _name(self, letter: str) -> str:
        self._numbers += 1
        return f"{letter}{self._numbers}"

    def _column(self, start: str) -> str:
        return self._name(f"{start}_")

    def _value(self, at: int, kind: str) -> Any:
        rng = self._rng
        if rng.random() < 0.15:
            return None
        match kind:
            case "int":
                return rng.randint(-3, 12) if at == 1 else rng.randint(-1_000, 1_000)
            case "real":  # sums of quarters are exact in any order
                return rng.randint(-4_000, 4_000) / 4
            case "text":
                return rng.choice(_TEXTS[:6] if at == 3 else _TEXTS)
            case "flag":
                return rng.random() < 0.5
            case _:
                return _EPOCH + timedelta(microseconds=rng.randint(0, 10**12))

    def _condition(self, edge: Edge, depth: int = 0) -> str:
        rng = self._rng
        if depth < 2 and rng.random() < 0.35:
            joint = rng.choice(("AND", "OR"))
            sides = (
                f"({self._condition(edge, depth + 1)} {joint} {self._condition(edge, depth + 1)})"
            )
            return f"NOT {sides}" if rng.random() < 0.2 else sides
        column, kind = rng.choice(list(edge.columns.items()))
        if rng.random() < 0.15:
            return f"{column} IS {rng.choice(('', 'NOT '))}NULL"
        operator = rng.choice(("=", "<>", "<", "<=", ">", ">="))
        match kind:
            case "int" | "real":
                low = rng.randint(-500, 500) if rng.random() < 0.5 else rng.randint(-3, 12)
                high = low + rng.randint(0, 400)
                return rng.choice(
                    (f"{column} {operator} {low}", f"{column} BETWEEN {low} AND {high}",
                     f"{column} IN ({low}, {high}, 3)")
                )  # fmt: skip
            case "text":
                return rng.choice(
                    (
                        f"{column} {operator} 'a'",
                        f"{column} LIKE '%a%'",
                        f"{column} IN ('a', 'b', '')",
                    )
                )
            case "flag":
                return f"{column} = {rng.choice(('true', 'false'))}"
            case _:
                return f"{column} {operator} '2026-01-0{rng.randint(2, 9)} 00:00:00'"

    def _expression(self, edge: Edge) -> tuple[str, str]:
        """Returns the kind and the text of an expression that both understand in the same way."""
        rng = self._rng
        column, kind = rng.choice(list(edge.columns.items()))
        match kind:
            case "int" | "real":
                case = f"CASE WHEN {column} > 3 THEN {column} ELSE 0 END"
                plain = (f"{column} + 7", f"{column} * 2 - 1", f"-{column}", f"abs({column})")
                text = rng.choice((*plain, f"coalesce({column}, 0)", case))
                return kind, text
            case "text":
                call = rng.choice(
                    (
                        f"upper({column})",
                        f"CAST(length({column}) AS BIGINT)",
                        f"{column} || '!'",
                        f"coalesce({column}, 'none')",
                    )
                )
                return ("int" if call.startswith("CAST") else "text"), call
            case "flag":
                return (
                    "text",
                    f"CASE WHEN {column} THEN 'yes' WHEN NOT {column} THEN 'no' ELSE 'none' END",
                )
            case _:
                return "flag", f"{column} IS NULL"


def _as_kind(text: str, column: str, kind: str) -> str:
    """Returns SQL that gives whole numbers 64 bits; DuckDB adds them in 128."""
    name = text.partition(" AS ")[0]
    return f"CAST({name} AS BIGINT) AS {column}" if kind == "int" else text


def _write(table: pa.Table, place: Path) -> None:
    match place.suffix:
        case ".csv":
            pa_csv.write_csv(table, place)
        case ".parquet":
            pq.write_table(table, place, row_group_size=20)
        case ".arrow":
            feather.write_feather(table, str(place), compression="uncompressed", chunksize=20)
        case _:
            with place.open("w", encoding="utf-8") as file:
                for row in table.to_pylist():
                    file.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")


def _rows_of(place: Path, columns: dict[str, str]) -> list[Row]:
    """Reads an output back, with values as Python has them."""
    suffix = "".join(place.suffixes)
    if suffix.startswith((".csv", ".ndjson")):
        with pa.input_stream(str(place)) as stream:
            data = stream.read().decode()
        if suffix.startswith(".csv"):
            return [
                tuple(_parsed(cell, kind) for cell, kind in zip(row, columns.values(), strict=True))
                for row in _csv_rows(data)
            ]
        rows = [json.loads(line) for line in data.splitlines()]
        return [tuple(_of_json(row[c], kind) for c, kind in columns.items()) for row in rows]
    table = pq.read_table(place) if place.suffix == ".parquet" else feather.read_table(str(place))
    if list(table.schema.names) != list(columns):
        raise AssertionError(f"{place.name} has columns {table.schema.names}, not {list(columns)}")
    return [tuple(row.values()) for row in table.to_pylist()]


def _csv_rows(data: str) -> Iterator[list[str | None]]:
    """Yields the cells below the header; None for one without quotes and text."""
    lines = iter(csv.reader(_kept_empty(data)))
    next(lines)
    for cells in lines:
        yield [None if cell == "" else cell.removeprefix("\1") for cell in cells]


def _kept_empty(data: str) -> Iterator[str]:
    """Marks quoted cells, which Python's reader cannot tell from null ones when they are empty."""
    out, quoted = [], False
    for character in data:
        out.append(character)
        if character == '"':
            quoted = not quoted
            if quoted and (len(out) < 2 or out[-2] in ",\n"):
                out.append("\1")
    yield from "".join(out).splitlines(keepends=True)


def _parsed(cell: str | None, kind: str) -> Any:
    if cell is None:
        return None
    match kind:
        case "int":
            return int(cell)
        case "real":
            return float(cell)
        case "flag":
            return cell == "true"
        case "time":
            return datetime.fromisoformat(cell)
        case _:
            return cell


def _of_json(value: Any, kind: str) -> Any:
    return datetime.fromisoformat(value) if kind == "time" and value is not None else value


def check(seed: int) -> str | None:
    """Returns what is wrong with the graph of a seed."""
    rng = random.Random(f"graphs {seed}")
    with tempfile.TemporaryDirectory(prefix="graphs-") as name:
        graph = Graph(rng, Path(name))
        graph.grow()
        outputs = graph.outputs()
        limit = rng.choice(("512MiB", "64MiB", "16MiB"))
        document: dict[str, Any] = {"memory": {"limit": limit}, "nodes": graph.nodes}
        if rng.random() < 0.5:
            document["batch_size"] = rng.choice((1, 7, 100))
        text = json.dumps(document, indent=1)
        try:
            run_pipeline(parse_pipeline(text, "graph.json"))
        except MemoryLimitError:
            count("refused for memory")
            return None
        except CompactorError as error:
            return f"{type(error).__name__}: {error}\n{text}"
        count("outputs", len(outputs))
        for edge, place in outputs:
            if fault := _compared(graph, edge, place):
                return f"{edge.name}: {fault}\n{text}"
    return None


def _compared(graph: Graph, edge: Edge, place: Path) -> str | None:
    shown = ", ".join(edge.columns)
    order = ""
    if edge.order is not None:
        column, _, down = edge.order.partition(":")
        order = f" ORDER BY {column} {down}"
    expected = graph.database.execute(f"SELECT {shown} FROM {edge.view}{order}").fetchall()
    found = _rows_of(place, edge.columns)
    if edge.order is not None and Counter(found) == Counter(expected) and found != expected:
        return f"the order is not that of {edge.order}: {_first(found)}"
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if missing or extra:
        return (
            f"{len(found):,} rows, not {len(expected):,}; missing {_first(list(missing))}, "
            f"too many {_first(list(extra))}"
        )
    return None


def _first(rows: Sequence[Row]) -> str:
    return ", ".join(map(repr, rows[:_SHOWN_ROWS]))


if __name__ == "__main__":
    sys.exit(main(check, __doc__ or "", "tests.generated.graphs", TIMEOUT_S, noun="graphs"))
