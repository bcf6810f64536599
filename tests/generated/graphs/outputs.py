"""Outputs of every kind, and what readers of other libraries find in them."""

from __future__ import annotations

import csv
import io
import json
import lzma
import random
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from msgspec import Struct

from compactor import Table
from tests.generated.graphs.edges import Edge, Row
from tests.generated.graphs.files import COMPRESSED

_WIDTH: Final = 40
csv.field_size_limit(sys.maxsize)  # some texts are heavy
_DELIMITERS: Final = (",", ",", ";", "\t")


class Place(Struct, frozen=True):
    """An output of an edge: its settings, and how to read it back."""

    edge: Edge
    settings: dict[str, Any]
    read: Callable[[Path, Mapping[str, str]], list[Row]]
    has_order: bool = True
    """Whether it keeps the order of the edge."""

    def rows(self, folder: Path) -> list[Row]:
        """Returns the rows of the output, of all its files in order of their names."""
        given = self.settings.get("path") or self.settings["table"]
        found = sorted(folder.glob(given.replace("{}", "*")))
        if "{}" not in given and len(found) != 1:
            raise AssertionError(f"{given} is not there")
        return [row for path in found for row in self.read(path, self.edge.columns)]


def random_output(rng: random.Random, edge: Edge, name: str, *, is_split: bool) -> Place:
    """Returns an output of a random kind that takes the rows of an edge."""
    kinds = [_csv, _ndjson, _parquet, _arrow, _xml, _table]
    if not edge.of_kind("text") and not is_split:
        kinds.append(_fixed)
    place = rng.choice(kinds)(rng, edge, name)
    if not is_split or "table" in place.settings or rng.random() > 0.2:
        return place
    by: dict[str, Any] = {"rows": 7}
    named = edge.of_kind("int", "flag", "date")  # texts may be too long for names
    if named and rng.random() < 0.5:
        by = {"by": rng.choice(named)}
    settings = place.settings | {
        "split": by,
        "path": place.settings["path"].replace(name, name + "-{}"),
    }
    return Place(edge, settings, place.read, place.has_order and "rows" in by)


# --- kinds ---


def _csv(rng: random.Random, edge: Edge, name: str) -> Place:
    delimiter = rng.choice(_DELIMITERS)
    settings: dict[str, Any] = {"path": f"{name}.csv{rng.choice(list(COMPRESSED))}"}
    if delimiter != ",":
        settings["csv"] = {"delimiter": delimiter}

    def read(path: Path, columns: Mapping[str, str]) -> list[Row]:
        lines = _csv_rows(_text_of(path), delimiter)
        return [
            tuple(_parsed(cell, kind) for cell, kind in zip(row, columns.values(), strict=True))
            for row in lines
        ]

    return Place(edge, settings, read)


def _ndjson(rng: random.Random, edge: Edge, name: str) -> Place:
    return Place(edge, {"path": f"{name}.ndjson{rng.choice(list(COMPRESSED))}"}, _read_ndjson)


def _read_ndjson(path: Path, columns: Mapping[str, str]) -> list[Row]:
    rows = [json.loads(line, parse_float=str) for line in _text_of(path).splitlines()]
    return [tuple(_of_json(row[name], kind) for name, kind in columns.items()) for row in rows]


def _parquet(_rng: random.Random, edge: Edge, name: str) -> Place:
    return Place(edge, {"path": f"{name}.parquet"}, lambda path, c: _rows(pq.read_table(path), c))


def _arrow(_rng: random.Random, edge: Edge, name: str) -> Place:
    return Place(
        edge, {"path": f"{name}.arrow"}, lambda path, c: _rows(feather.read_table(str(path)), c)
    )


def _table(rng: random.Random, edge: Edge, name: str) -> Place:
    by = rng.choice(list(edge.columns))
    return Place(
        edge,
        {"table": name, "sort_by": by},
        lambda path, c: _rows(Table.open(str(path)).scan().to_table(), c),
        has_order=False,
    )


def _xml(rng: random.Random, edge: Edge, name: str) -> Place:
    return Place(edge, {"path": f"{name}.xml{rng.choice(list(COMPRESSED))}"}, _read_xml)


def _read_xml(path: Path, columns: Mapping[str, str]) -> list[Row]:
    rows = []
    for element in ElementTree.fromstring(_text_of(path)):
        cells = {child.tag: child.text or "" for child in element}
        rows.append(tuple(_parsed(cells.get(name), kind) for name, kind in columns.items()))
    return rows


def _fixed(_rng: random.Random, edge: Edge, name: str) -> Place:
    layout = [{"name": column, "width": _WIDTH} for column in edge.columns]

    def read(path: Path, columns: Mapping[str, str]) -> list[Row]:
        rows = []
        for line in _text_of(path).splitlines():
            cells = [line[at : at + _WIDTH].strip() or None for at in range(0, len(line), _WIDTH)]
            rows.append(tuple(map(_parsed, cells, columns.values())))
        return rows

    return Place(edge, {"path": f"{name}.txt", "fixed": {"columns": layout}}, read)


# --- reading ---


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix in (".gz", ".bz2", ".zst"):
        with pa.input_stream(str(path)) as stream:
            data = stream.read()
    elif path.suffix == ".xz":
        data = lzma.decompress(data)
    return data.decode()


def _rows(table: pa.Table, columns: Mapping[str, str]) -> list[Row]:
    if list(table.schema.names) != list(columns):
        raise AssertionError(f"columns {table.schema.names}, not {list(columns)}")
    return [tuple(row.values()) for row in table.to_pylist()]


def _csv_rows(data: str, delimiter: str) -> Iterator[list[str | None]]:
    """Yields the cells below the header; None for one without quotes and text."""
    lines = iter(
        csv.reader(io.StringIO(_kept_empty(data, delimiter), newline=""), delimiter=delimiter)
    )
    next(lines)
    for cells in lines:
        yield [None if cell == "" else cell.removeprefix("\1") for cell in cells or [""]]


def _kept_empty(data: str, delimiter: str) -> str:
    """Marks quoted cells, which Python's reader cannot tell from null ones when they are empty."""
    out, quoted = [], False
    for character in data:
        out.append(character)
        if character == '"':
            quoted = not quoted
            if quoted and (len(out) < 2 or out[-2] in (delimiter, "\n")):
                out.append("\1")
    return "".join(out)


def _parsed(cell: str | None, kind: str) -> Any:
    if cell is None:
        return None
    match kind:
        case "int":
            return int(cell)
        case "real":
            return float(cell)
        case "flag":
            return {"true": True, "false": False}[cell]
        case "time":
            return datetime.fromisoformat(cell)
        case "date":
            return date.fromisoformat(cell)
        case "money":
            return Decimal(cell)
    return cell


def _of_json(value: Any, kind: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return _parsed(str(value), kind)
