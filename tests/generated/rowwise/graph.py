"""One random graph of nodes that handle each row by itself, and what Python says of its rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.generated.rowwise.rows import Edge, FailedError, Row, Said, condition, number
from tests.generated.rowwise.sources import is_flat, random_source

Letter = tuple[str, int, str]
"""Source, row from 0 and node of a dead letter."""


class Graph:
    """A random graph."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self._rng = rng
        self._folder = folder
        self.may_fail = rng.random() < 0.7
        self.has_groups = rng.random() < 0.4
        self._max_group = rng.choice((3, 1_000)) if self.has_groups and self.may_fail else 10_000
        self._nodes: dict[str, Any] = {}
        self._edges: list[Edge] = []
        self._outputs: dict[str, tuple[str, Edge]] = {}
        """Path and rows by name."""
        self._init: list[str] = []
        self._letters: Counter[Letter] = Counter()
        """Those of rows that are bad themselves."""
        self._failed: set[str] = set()
        """Groups with a bad row, or too many."""

    def grow(self) -> None:
        """Adds sources, steps and outputs."""
        rng = self._rng
        for _ in range(rng.randint(1, 2)):
            self._source()
        for _ in range(rng.randint(1, 5)):
            rng.choice((self._transform, self._transform, self._route, self._merge))()
        taken = {
            name
            for node in self._nodes.values()
            for settings in node.values()
            for name in (settings.get("input"), *settings.get("inputs", ()))
        }
        for edge in list(self._edges):
            if edge.name not in taken or rng.random() < 0.3:
                self._output(edge)
        if not self.has_groups and not self.may_fail and rng.random() < 0.3:
            self._read_in_the_second_phase()

    def document(self) -> dict[str, Any]:
        """Returns the pipeline."""
        rng = self._rng
        found: dict[str, Any] = {"memory": {"limit": rng.choice(("512MiB", "16MiB"))}}
        found["batch_size"] = rng.choice((7, 100, 16_384))
        if self.may_fail:
            found |= {"on_error": "continue", "dead_letter": str(self._folder / "dead.ndjson")}
        if self.has_groups:
            found["max_group_buffer"] = self._max_group
        if self._init:
            found["init"] = self._init
        return found | {"nodes": self._nodes}

    def expected(self) -> Iterator[tuple[str, Edge]]:
        """Yields the path and the rows of each output."""
        failed = self._all_failed()
        for path, edge in self._outputs.values():
            rows = [row for row in edge.rows if row.group not in failed]
            yield path, replace(edge, rows=rows)

    def dead_letters(self) -> Counter[Letter]:
        """Returns the dead letters; a sound row of a failed group is one of the first output it comes to."""
        failed = self._all_failed()
        seen = {(source, row) for source, row, _ in self._letters}
        found = Counter(self._letters)
        for name, (_, edge) in self._outputs.items():
            for row in edge.rows:
                if row.group in failed and row.origin not in seen:
                    seen.add(row.origin)
                    found[(*row.origin, name)] += 1
        return found

    def _all_failed(self) -> set[str]:
        failed = set(self._failed)
        for _, edge in self._outputs.values():
            rows = Counter(row.group for row in edge.rows if row.group is not None)
            failed |= {group for group, held in rows.items() if held > self._max_group}
        return failed

    # --- nodes ---

    def _name(self, letter: str) -> str:
        return f"{letter}{len(self._nodes)}"

    def _source(self) -> None:
        name = self._name("s")
        made = random_source(
            self._rng, self._folder / name, name, has_groups=self.has_groups, has_bad=self.may_fail
        )
        self._nodes[name] = {"source": made.settings}
        self._edges.append(made.edge)
        good = {row.origin[1] for row in made.edge.rows}
        rows = len(good) + len(made.bad_groups)
        self._letters.update((name, at, name) for at in range(rows) if at not in good)
        self._failed |= {group for group in made.bad_groups if group is not None}

    def _transform(self) -> None:
        rng, name, edge = self._rng, self._name("t"), self._rng.choice(self._edges)
        settings: dict[str, Any] = {"input": edge.name}
        where = Said("true", lambda cells: True)
        if rng.random() < 0.6:
            where = condition(rng, edge)
            settings["filter"] = where.sql
        columns, made = dict(edge.columns), {}
        if not edge.is_wide and rng.random() < 0.6:
            kept = [c for c in columns if rng.random() < 0.8] or list(columns)
            kind, said = number(rng, edge)
            if "100 /" not in said.sql or self.may_fail:
                made = {f"x{len(self._nodes)}": said}
                columns = {c: columns[c] for c in kept} | dict.fromkeys(made, kind)
                settings["columns"] = {c: c for c in kept} | {c: s.sql for c, s in made.items()}
        rows = [row for row in edge.rows if where.value(row.cells)]
        found = [new for row in rows if (new := self._computed(row, columns, made, name))]
        self._nodes[name] = {"transform": settings}
        self._edges.append(Edge(name, columns, found, edge.is_wide))

    def _computed(
        self, row: Row, columns: dict[str, str], made: dict[str, Said], node: str
    ) -> Row | None:
        """Returns the row with its new cells; None if it is bad."""
        try:
            cells = {c: made[c].value(row.cells) if c in made else row.cells[c] for c in columns}
        except FailedError:
            self._letters[(*row.origin, node)] += 1
            if row.group is not None:
                self._failed.add(row.group)
            return None
        return Row(cells, row.origin, row.group, row.others)

    def _route(self) -> None:
        name, edge = self._name("r"), self._rng.choice(self._edges)
        first = condition(self._rng, edge)
        settings = {"input": edge.name, "branches": {"yes": first.sql}, "otherwise": "no"}
        self._nodes[name] = {"route": settings}
        for branch in ("yes", "no"):
            rows = [r for r in edge.rows if bool(first.value(r.cells)) == (branch == "yes")]
            self._edges.append(Edge(f"{name}.{branch}", edge.columns, rows, edge.is_wide))

    def _merge(self) -> None:
        name, first = self._name("m"), self._rng.choice(self._edges)
        alike = [
            edge
            for edge in self._edges
            if edge.columns == first.columns and edge.is_wide == first.is_wide and edge is not first
        ]
        edges = [first, *self._rng.sample(alike, min(len(alike), 1))]
        self._nodes[name] = {"merge": {"inputs": [edge.name for edge in edges]}}
        rows = [row for edge in edges for row in edge.rows]
        self._edges.append(Edge(name, first.columns, rows, first.is_wide))

    def _output(self, edge: Edge) -> None:
        name, rng = self._name("o"), self._rng
        endings = [".ndjson"] if edge.is_wide else [".ndjson", ".parquet"]
        endings += [".csv"] if is_flat(edge) else []
        endings += [Path(edge.file).suffix] if edge.file else []
        path = str(self._folder / f"{name}{rng.choice(endings)}")
        settings: dict[str, Any] = {"input": edge.name}
        if edge.is_wide and rng.random() < 0.3:
            settings["drop_widened"] = True
            rows = [Row(row.cells, row.origin, row.group) for row in edge.rows]
            edge = replace(edge, rows=rows, is_wide=False)
        self._nodes[name] = {"output": settings | {"path": path}}
        self._outputs[name] = (path, edge)

    def _read_in_the_second_phase(self) -> None:
        """Adds a source of what an output of the init phase wrote."""
        plain = {n: o for n, o in self._outputs.items() if o[0].endswith(".parquet")}
        if not plain:
            return
        name = self._rng.choice(list(plain))
        path, edge = plain[name]
        self._init.append(name)
        again = self._name("s")
        self._nodes[again] = {"source": {"path": path}}
        rows = [Row(row.cells, (again, at)) for at, row in enumerate(edge.rows)]
        self._edges.append(Edge(again, edge.columns, rows))
        self._output(self._edges[-1])
