"""Files with rows of every kind that DuckDB does not read as the product does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.generated.rowwise.rows import ARROW, FLAT, Edge, Row, random_value
from tests.generated.rowwise.segments import write_segments

SQL: Final = {"int": "BIGINT", "real": "DOUBLE", "text": "TEXT"}
_OTHERS: Final = ("new", "more", "x y", "Ω")
_KEYS: Final = ("k1", "k2", "k3", "k4", "k5", None)


class Source:
    """A source: its settings, its rows, and those that its reader sets aside."""

    def __init__(self, settings: dict[str, Any], edge: Edge) -> None:
        self.settings = settings
        self.edge = edge
        self.bad_groups: list[str | None] = []
        """The group of each bad row, None if it has none or is unknown."""


def random_source(
    rng: random.Random, place: Path, name: str, *, has_groups: bool, has_bad: bool
) -> Source:
    """Writes a file of a random kind. has_groups: whether it declares a correlation key."""
    makers: list[Callable[..., Source]] = [_parquet, _ndjson, _ndjson, _csv]
    if not has_groups:
        makers.append(_segments)
    made = rng.choice(makers)(rng, place, name, has_bad)
    if has_groups:
        made.settings["correlation_key"] = "key"
        for at, row in enumerate(made.edge.rows):
            made.edge.rows[at] = Row(row.cells, row.origin, row.cells["key"], row.others)
    else:
        made.bad_groups = [None] * len(made.bad_groups)
    return made


def _columns(rng: random.Random, kinds: tuple[str, ...]) -> dict[str, str]:
    columns = {"id": "int", "key": "text", "n": "int"}
    return columns | {f"c{at}": rng.choice(kinds) for at in range(rng.randint(0, 3))}


def _random_rows(rng: random.Random, name: str, columns: dict[str, str]) -> list[Row]:
    rows = []
    for number in range(rng.choice((0, 1, 5, 40, 40, 300))):
        cells = {c: random_value(rng, kind) for c, kind in columns.items()}
        cells |= {"id": number, "key": rng.choice(_KEYS)}
        rows.append(Row(cells, (name, number)))
    return rows


def _parquet(rng: random.Random, place: Path, name: str, _has_bad: bool) -> Source:
    columns = _columns(rng, tuple(ARROW)[:5])
    rows = _random_rows(rng, name, columns)
    arrays = {c: pa.array([r.cells[c] for r in rows], ARROW[k]) for c, k in columns.items()}
    pq.write_table(pa.table(arrays), f"{place}.parquet", row_group_size=30)
    return Source({"path": f"{place}.parquet"}, Edge(name, columns, rows))


def _ndjson(rng: random.Random, place: Path, name: str, has_bad: bool) -> Source:
    """Lines with fields that are not declared, some of them bad."""
    columns = _columns(rng, ("int", "text"))
    source = Source({"path": f"{place}.ndjson"}, Edge(name, columns, [], is_wide=True))
    lines = []
    for row in _random_rows(rng, name, columns):
        others = {o: _other(rng, o) for o in _OTHERS if rng.random() < 0.4}
        cells = {
            c: value for c, value in row.cells.items() if value is not None or rng.random() < 0.5
        }
        if has_bad and rng.random() < 0.05:
            source.bad_groups.append(row.cells["key"])
            cells["n"] = rng.choice(("no", [1], {}))
        else:
            source.edge.rows.append(Row(row.cells, row.origin, None, others))
        pairs = list((cells | others).items())
        rng.shuffle(pairs)
        lines.append(json.dumps(dict(pairs), ensure_ascii=rng.random() < 0.5))
    Path(f"{place}.ndjson").write_text("".join(f"{line}\n" for line in lines))
    source.settings |= {"fields": {c: SQL[k] for c, k in columns.items()}, "only_fields": True}
    return source


def _other(rng: random.Random, name: str) -> Any:
    """Returns a value of a field that is not declared: each has values of one kind, for there is one type."""
    match name:
        case "new":
            return [rng.randint(0, 9) for _ in range(rng.randint(0, 3))]
        case "more":
            return rng.choice((None, "text", "\U0001f600", ""))
        case "x y":
            return {"a": rng.choice((None, 1)), "b": [{"c": "d"}]}
    return rng.randint(-9, 9)


def _csv(rng: random.Random, place: Path, name: str, has_bad: bool) -> Source:
    columns = _columns(rng, ("int", "text"))
    source = Source({"path": f"{place}.csv"}, Edge(name, columns, []))
    lines = [",".join(columns)]
    for row in _random_rows(rng, name, columns):
        cells = ["" if value is None else _cell(str(value)) for value in row.cells.values()]
        kind = rng.choice(("type", "cells")) if has_bad and rng.random() < 0.05 else ""
        if kind == "type":
            cells[2] = "1x"
        elif kind == "cells":
            cells.pop()
        if kind:
            is_known = kind == "type"
            source.bad_groups.append(row.cells["key"] if is_known else None)
        else:
            source.edge.rows.append(row)
        lines.append(",".join(cells))
    Path(f"{place}.csv").write_text("".join(f"{line}\n" for line in lines))
    # Values of columns that the graph does not use are not checked.
    source.settings |= {"fields": {c: SQL[k] for c, k in columns.items()}, "columns": list(columns)}
    return source


def _cell(text: str) -> str:
    return f'"{text}"' if "," in text else text


def _segments(rng: random.Random, place: Path, name: str, _has_bad: bool) -> Source:
    path, found = write_segments(rng, place)
    columns = {"message": "int", "segment": "int", "tag": "text", "elements": "lists"}
    columns["repeats"] = "repeats"
    rows = [
        Row(dict(zip(columns, cells, strict=True)), (name, at)) for at, cells in enumerate(found)
    ]
    return Source({"path": path}, Edge(name, columns, rows, file=path))


def is_flat(edge: Edge) -> bool:
    """Returns whether a file of CSV can have the rows."""
    return not edge.is_wide and all(kind in FLAT for kind in edge.columns.values())
