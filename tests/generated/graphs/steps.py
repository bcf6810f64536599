"""One random graph: its nodes, and DuckDB's tables of the same rows. Each step adds a node or a few."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from tests.generated.graphs.aggregates import aggregate_call, extreme_call, window_call
from tests.generated.graphs.edges import (
    HEAVY_CHARACTERS,
    SQL,
    Answers,
    By,
    Edge,
    Row,
    value,
)
from tests.generated.graphs.expressions import Expressions, Said, spell
from tests.generated.graphs.files import write_source
from tests.generated.graphs.outputs import Place, random_output

_MAX_ROWS: Final = 5_000
_MAX_SPLIT_ROWS: Final = 100
"""Each file of a split goes to disk by itself."""


class Graph:
    """A random graph. in_stages: only what Spark's stages take."""

    def __init__(self, rng: random.Random, folder: Path, *, in_stages: bool = False) -> None:
        self.rng = rng
        self.in_stages = in_stages
        self._folder = folder
        self.nodes: dict[str, Any] = {}
        self.answers = Answers()
        self.bad_rows = 0
        """Rows for which an expression fails."""
        self.puts_bad_rows_aside = rng.random() < 0.3
        self.has_many_rows = False
        """Whether batches of one row would take too long."""
        self._edges: list[Edge] = []
        self._numbers = 0

    def grow(self) -> None:
        """Adds sources and steps."""
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            self._source()
        # Joins are in a module of their own.
        from tests.generated.graphs.joins import asof_join, equal_join, range_join

        steps: Sequence[Callable[[], None]] = (
            self._transform, self._transform, self._route, self._merge, self._merge_by_key, self._sort,
            self._aggregate, self._aggregate, self._window, self._time_window, self._fan_out,
            *(partial(join, self) for join in (equal_join, equal_join, range_join, asof_join)),
        )  # fmt: skip
        for _ in range(rng.randint(1, 7)):
            rng.choice(steps)()

    def outputs(self) -> list[Place]:
        """Adds an output for each edge that has no consumer, and for some that have."""
        found, consumed = [], set(self._consumed())
        for edge in self._edges:
            if edge.name in consumed and self.rng.random() > 0.15:
                continue
            name = self.name("out")
            is_small = self.answers.number(edge.view) <= _MAX_SPLIT_ROWS
            is_split = is_small and not self.in_stages
            place = random_output(self.rng, edge, name, is_split=is_split)
            self.nodes[name] = {"output": {"input": edge.name, **place.settings}}
            found.append(place)
        return found

    # --- parts ---

    def edge(self) -> Edge:
        """Returns an edge to take rows from."""
        return self.rng.choice(self._edges[-4:] if self.rng.random() < 0.7 else self._edges)

    def name(self, letter: str) -> str:
        """Returns a new name."""
        self._numbers += 1
        return f"{letter}{self._numbers}"

    def column(self, start: str = "x") -> str:
        """Returns a new name of a column."""
        return self.name(f"{start}_")

    def batch_size(self) -> int:
        """Returns a small number of rows for batches."""
        return self.rng.choice((50, 1_000) if self.has_many_rows else (1, 7, 100))

    def expressions(self, edge: Edge) -> Expressions:
        """Returns what makes expressions over an edge."""
        return Expressions(self.rng, edge)

    def _consumed(self) -> Iterator[str]:
        for node in self.nodes.values():
            [settings] = node.values()
            yield from (settings[name] for name in ("input", "probe", "build") if name in settings)
            yield from settings.get("inputs", ())

    def add(self, edge: Edge, values: dict[str, str], of: str, order: str = "_n") -> None:
        """Adds rows that a node gives, as `Answers.add`."""
        self.answers.add(edge, values, of, order)
        self._edges.append(edge)

    def renamed(self, edge: Edge, names: dict[str, str]) -> str:
        """Adds a transform that gives columns other names; returns its name."""
        name = self.name("n")
        columns = {new: old for old, new in names.items()}
        self.nodes[name] = {"transform": {"input": edge.name, "columns": columns}}
        return name

    # --- nodes of one input ---

    def _source(self) -> None:
        rng, name = self.rng, self.name("s")
        rows = rng.choice((0, 1, 2, 17, 17, 60, 60, 200, 200, 3_000))
        self.has_many_rows |= rows > 200
        kinds = {"id": "int", "k": "int", "n": "int", "g": "text"}
        kinds |= {f"c{i}": rng.choice(list(SQL)) for i in range(rng.randint(0, 4))}
        kinds = {self.column(column): kind for column, kind in kinds.items()}
        start = 1_000 * self._numbers
        found: list[Row] = [
            (
                start + n,
                *(
                    value(rng, k, is_few=at % 2 == 0)
                    for at, k in enumerate(list(kinds.values())[1:])
                ),
            )
            for n in range(rows)
        ]
        if rows and rng.random() < 0.1:
            found = _with_heavy_texts(rng, found, list(kinds.values()).index("text"))
        written = write_source(rng, self._folder / name, kinds, found, in_stages=self.in_stages)
        self.nodes[name] = {"source": written.settings}
        edge = Edge(
            name=name,
            columns=kinds,
            sources=frozenset([name]),
            key=next(iter(kinds)),
            is_source=True,
        )
        self.answers.add_rows(edge, written.rows)
        self._edges.append(edge)

    def _transform(self, edge: Edge | None = None) -> None:
        rng, name = self.rng, self.name("t")
        edge = edge or self.edge()
        made = self.expressions(edge)
        settings: dict[str, Any] = {"input": edge.name}
        columns, values, where = edge.columns, {c: c for c in edge.columns}, "true"
        if rng.random() < 0.7:
            said = made.condition()
            settings["filter"], where = said.ours, said.duckdb
        if rng.random() < 0.2:
            settings["batch_size"] = self.batch_size()
        order = edge.order
        choice = rng.random()
        if choice < 0.75:
            kept = [c for c in edge.columns if c == edge.key or rng.random() < 0.7]
            kept = kept or list(edge.columns)[:1]
            order = tuple(takewhile(lambda by: by.column in kept, order))
            columns = {column: edge.columns[column] for column in kept}
            if choice < 0.6:
                ours = {column: column for column in kept}
                bad = "false"
                for _ in range(rng.randint(0, 3)):
                    kind = rng.choice(list(SQL))
                    said, column = made.of(kind), self.column()
                    if self.puts_bad_rows_aside and rng.random() < 0.3:
                        kind, (said, bad) = "int", self._quotient(edge, bad)
                    ours[column], values[column], columns[column] = said.ours, said.duckdb, kind
                settings["columns"], order = ours, ()
                where = self._without_bad_rows(edge, where, bad)
            else:
                settings["columns"] = kept
        self.nodes[name] = {"transform": settings}
        made_edge = replace(edge, name=name, columns=columns, order=order, is_source=False)
        self.add(made_edge, values, f"{edge.view} WHERE {where}")

    def _without_bad_rows(self, edge: Edge, where: str, bad: str) -> str:
        if bad == "false":
            return where
        self.bad_rows += self.answers.number(f"{edge.view} WHERE ({where}) AND ({bad})")
        return f"({where}) AND NOT coalesce({bad}, false)"

    def _quotient(self, edge: Edge, bad: str) -> tuple[Said, str]:
        """Returns a division that fails for some rows, and the condition for any such one."""
        by = self.expressions(edge).of("int", 2)
        if ints := edge.of_kind("int"):  # a constant that fails is refused
            by = spell("({} - {})", Said.same(self.rng.choice(ints)), by)
        else:
            by = Said.same("1")
        said = spell("(1000 / {})", by, duckdb="(1000 // nullif({}, 0))")
        return said, f"({bad} OR {by.duckdb} = 0)"

    def _fan_out(self) -> None:
        edge = self.edge()
        for _ in range(self.rng.randint(3, 12)):
            self._transform(edge)

    def _route(self) -> None:
        edge, name = self.edge(), self.name("r")
        made = self.expressions(edge)
        conditions = {f"b{n}": made.condition() for n in range(self.rng.randint(1, 3))}
        settings: dict[str, Any] = {
            "input": edge.name,
            "branches": {branch: said.ours for branch, said in conditions.items()},
        }
        wheres = {branch: f"coalesce({said.duckdb}, false)" for branch, said in conditions.items()}
        if self.rng.random() < 0.7:
            settings["otherwise"] = "rest"
            wheres["rest"] = "true"
        self.nodes[name] = {"route": settings}
        earlier = "true"
        for branch, where in wheres.items():
            made_edge = replace(edge, name=f"{name}.{branch}", is_source=False)
            values = {column: column for column in edge.columns}
            self.add(made_edge, values, f"{edge.view} WHERE {earlier} AND {where}")
            earlier += f" AND NOT {where}"

    def _sort(self) -> None:
        edge = self.edge()
        self._sorted(edge, self._random_order(edge))

    def _sorted(self, edge: Edge, by: tuple[By, ...]) -> str:
        name = self.name("o")
        self.nodes[name] = {
            "sort": {"input": edge.name, "by": ",".join(part.setting for part in by)}
        }
        has_order = edge.has_order or any(part.column == edge.key for part in by)
        made = replace(edge, name=name, has_order=has_order, order=by, is_source=False)
        order = ", ".join([*(part.sql for part in by), "_n"])
        self.add(made, {column: column for column in edge.columns}, edge.view, order)
        return name

    def _random_order(self, edge: Edge) -> tuple[By, ...]:
        rng = self.rng
        columns = rng.sample(list(edge.columns), min(len(edge.columns), rng.randint(1, 2)))
        if edge.key is not None and not edge.has_order and edge.key not in columns:
            columns.append(edge.key)
        return tuple(By(c, rng.random() < 0.4, rng.random() < 0.3) for c in columns)

    def _aggregate(self) -> None:
        rng, edge, name = self.rng, self.edge(), self.name("a")
        groups = rng.sample(list(edge.columns), rng.randint(0, min(2, len(edge.columns))))
        if edge.order and rng.random() < 0.6:
            groups = [by.column for by in edge.order]
        calls = {self.column(): self._aggregate_call(edge) for _ in range(rng.randint(1, 4))}
        settings = {"input": edge.name, "columns": {c: said.ours for c, (_, said) in calls.items()}}
        if groups:
            settings["group_by"] = groups
        self.nodes[name] = {"aggregate": settings}
        columns = {column: edge.columns[column] for column in groups}
        columns |= {column: kind for column, (kind, _) in calls.items()}
        values = {column: column for column in columns}
        shown = [*groups, *(f"{said.duckdb} AS {column}" for column, (_, said) in calls.items())]
        by = f"GROUP BY {', '.join(groups)}" if groups else ""
        first = edge.order[: len(groups)]
        is_sorted = bool(groups) and {part.column for part in first} == set(groups)
        order = "_first" if is_sorted else ", ".join(By(c).sql for c in groups) or "true"
        key = groups[0] if groups == [edge.key] else None
        self.add(
            Edge(
                name=name,
                columns=columns,
                sources=edge.sources,
                key=key,
                has_order=edge.has_order or not is_sorted,
            ),
            values,
            f"(SELECT {', '.join(shown)}, min(_n) AS _first FROM {edge.view} {by})",
            order,
        )

    def _aggregate_call(self, edge: Edge) -> tuple[str, Said]:
        if edge.has_order and self.rng.random() < 0.15:
            return extreme_call(self.rng, edge)
        return aggregate_call(self.rng, edge)

    def _window(self) -> None:
        rng, edge, name = self.rng, self.edge(), self.name("w")
        if not edge.has_order:
            return
        partition = rng.sample(list(edge.columns), rng.randint(0, min(2, len(edge.columns))))
        by = self._random_order(edge)
        window: dict[str, Any] = {"order_by": ",".join(part.setting for part in by)}
        window |= {"partition_by": partition} if partition else {}
        frame = "ROWS UNBOUNDED PRECEDING"
        if rng.random() < 0.4:
            window["rows"] = rng.choice((1, 2, 30))
            frame = f"ROWS BETWEEN {window['rows'] - 1} PRECEDING AND CURRENT ROW"
        calls = {self.column("w"): window_call(rng, edge) for _ in range(rng.randint(1, 3))}
        kept = {column: column for column in edge.columns}
        settings: dict[str, Any] = {"input": edge.name, "window": window}
        settings["columns"] = kept | {c: said.ours for c, (_, said, _) in calls.items()}
        where = "true"
        if rng.random() < 0.3:
            said = self.expressions(edge).condition()
            settings["filter"], where = said.ours, said.duckdb
        self.nodes[name] = {"transform": settings}
        within = tuple(part for part in by if part.column not in partition)
        order = (*(By(column) for column in partition), *within)
        whole = f"ORDER BY {', '.join([*(part.sql for part in by), '_n'])}"
        divided = f"PARTITION BY {', '.join(partition)}" if partition else ""
        values = kept | {
            c: f"{said.duckdb} OVER ({divided} {whole} {'' if sees_all else frame})"
            for c, (_, said, sees_all) in calls.items()
        }
        columns = edge.columns | {c: kind for c, (kind, _, _) in calls.items()}
        made = replace(edge, name=name, columns=columns, order=order, is_source=False)
        ordered = ", ".join([*(part.sql for part in order), "_n"])
        self.add(made, values, f"{edge.view} WHERE {where}", ordered)

    def _time_window(self) -> None:
        rng, edge, name = self.rng, self.edge(), self.name("v")
        times = edge.of_kind("time")
        if not times or self.answers.number(edge.view) > _MAX_ROWS:
            return
        hours, parts = rng.choice((1, 24, 100)), rng.choice((1, 2, 4))
        column = rng.choice(times)
        names = [c for c in edge.columns if c not in ("window_start", "window_end")]
        groups = rng.sample(names, rng.randint(0, min(1, len(names))))
        calls = {self.column(): self._aggregate_call(edge) for _ in range(rng.randint(1, 2))}
        window = {"column": column, "size": f"{hours}h", "slide": f"{hours * 60 // parts}m"}
        settings: dict[str, Any] = {"input": edge.name, "window": window}
        settings["columns"] = {c: said.ours for c, (_, said) in calls.items()}
        if groups:
            settings["group_by"] = groups
        self.nodes[name] = {"aggregate": settings}
        columns = {"window_start": "time", "window_end": "time"}
        columns |= {c: edge.columns[c] for c in groups} | {
            c: kind for c, (kind, _) in calls.items()
        }
        size = hours * 3_600_000_000
        slide = size // parts
        start = f"(epoch_us({column}) // {slide} - _k) * {slide}"
        shown = [
            f"make_timestamp({start}) AS window_start",
            f"make_timestamp({start} + {size}) AS window_end",
            *groups,
            *(f"{said.duckdb} AS {c}" for c, (_, said) in calls.items()),
        ]
        by = ", ".join(str(n + 1) for n in range(2 + len(groups)))
        self.add(
            Edge(name=name, columns=columns, sources=edge.sources),
            {c: c for c in columns},
            f"(SELECT {', '.join(shown)} FROM {edge.view}, range({parts}) AS r(_k)"
            f" WHERE {column} IS NOT NULL GROUP BY {by})",
            ", ".join(["window_start", *(By(c).sql for c in groups)]),
        )

    # --- nodes of several inputs ---

    def _alike(self, first: Edge) -> list[Edge]:
        """Returns some edges with the same kinds of columns, that one first."""
        alike = [e for e in self._edges if list(e.columns.values()) == list(first.columns.values())]
        others = self.rng.sample(alike, min(len(alike), self.rng.randint(1, 3)))
        return [first, *(edge for edge in others if edge is not first)]

    def _merge(self) -> None:
        rng, name = self.rng, self.name("m")
        edges = self._alike(self.edge())
        first = edges[0]
        inputs = [first.name]
        inputs += [
            self.renamed(edge, dict(zip(edge.columns, first.columns, strict=True)))
            for edge in edges[1:]
        ]
        modes: list[dict[str, Any]] = [
            {},
            {"mode": "concat"},
            {"mode": "interleave"},
            {"mode": "interleave", "interleave_seed": rng.randint(0, 9)},
        ]
        mode = rng.choice(modes)
        self.nodes[name] = {"merge": {"inputs": inputs, **mode}}
        is_random = "interleave_seed" in mode or (
            self.in_stages and mode.get("mode") == "interleave"
        )
        order = "_n, _i" if mode.get("mode") == "interleave" else "_i, _n"
        made = Edge(
            name=name,
            columns=first.columns,
            sources=frozenset().union(*(e.sources for e in edges)),
            key=_key_of(edges),
        )
        if not all(edge.has_order for edge in edges) or (is_random and len(edges) > 1):
            made = made.without_order()
        self.add(made, {c: c for c in first.columns}, _union(edges), order)

    def _merge_by_key(self) -> None:
        name = self.name("m")
        edges = [edge for edge in self._alike(self.edge()) if edge.has_order]
        if not edges:
            return
        by = self._random_order(edges[0])
        inputs = []
        for edge in edges:
            names = dict(zip(edge.columns, edges[0].columns, strict=True))
            back = {new: old for old, new in names.items()}
            given = self._sorted(
                edge, tuple(replace(part, column=back[part.column]) for part in by)
            )
            inputs.append(
                given if edge is edges[0] else self.renamed(replace(edge, name=given), names)
            )
        setting = ",".join(part.setting for part in by)
        # Nothing is known of the order of renamed columns.
        inputs[1:] = [self._sorted_again(given, setting) for given in inputs[1:]]
        self.nodes[name] = {"merge": {"inputs": inputs, "mode": "key", "sort_by": setting}}
        sources = frozenset().union(*(e.sources for e in edges))
        made = Edge(
            name=name, columns=edges[0].columns, sources=sources, key=_key_of(edges), order=by
        )
        order = ", ".join([*(part.sql for part in by), "_i", "_n"])
        self.add(made, {c: c for c in edges[0].columns}, _union(edges), order)

    def _sorted_again(self, given: str, setting: str) -> str:
        name = self.name("o")
        self.nodes[name] = {"sort": {"input": given, "by": setting}}
        return name


def _with_heavy_texts(rng: random.Random, rows: list[Row], at: int) -> list[Row]:
    """Gives some rows a text of a hundred thousand characters."""
    heavy = rng.sample(range(len(rows)), min(rng.choice((3, 12)), len(rows)))
    text = "heavy " * (HEAVY_CHARACTERS // 6)
    return [
        (*row[:at], f"{text}{n}", *row[at + 1 :]) if n in heavy else row
        for n, row in enumerate(rows)
    ]


def _key_of(edges: Sequence[Edge]) -> str | None:
    """Returns the column that is unique in all rows of these edges together, by its name in the first."""
    sources = [edge.sources for edge in edges]
    is_unique = sum(map(len, sources)) == len(frozenset().union(*sources))
    places = {
        list(edge.columns).index(edge.key) if edge.key is not None else None for edge in edges
    }
    return edges[0].key if is_unique and len(places) == 1 else None


def _union(edges: Sequence[Edge]) -> str:
    parts = (f"SELECT *, {n} AS _i FROM {edge.view}" for n, edge in enumerate(edges))
    return f"({' UNION ALL '.join(parts)})"
