"""Files of every kind that a source reads, written from rows without any code of the product's."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from msgspec import Struct, field

from compactor import Table
from tests.generated.graphs.edges import ARROW, SQL, Row

COMPRESSED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
"""How text files are compressed, by their ending."""
_NUMBER: Final = re.compile(r"-?\d+")
_FILES: Final = 4


class Written(Struct):
    """The settings of a source, and the rows that a reader finds."""

    settings: dict[str, Any]
    rows: list[Row]


class _Part(Struct):
    """One of the files of a source."""

    names: list[str]
    """Its columns, in its order."""
    rows: list[Row]
    is_whole: bool = False
    """Whether floats are written as integers."""

    def values(self, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Returns its rows by name; a column of no other file is always known."""
        extra = dict.fromkeys(set(self.names) - set(columns), 7)
        return [
            {name: row[columns.index(name)] for name in self.names if name in columns} | extra
            for row in self.rows
        ]


class Kind(Struct, kw_only=True):
    """One way to write text files."""

    ending: str
    settings: dict[str, Any]
    write: Callable[[_Part, list[str], dict[str, str]], str]
    encoding: str = "utf-8"
    is_declared: bool = False
    """Whether `fields` have to name all columns, in order."""
    has_names: bool = True
    """Whether a file names its columns, so that files may differ in them."""
    as_read: Callable[[Any], Any] = field(default=lambda cell: cell)
    """What a reader finds of a text."""
    takes: Callable[[str], bool] = field(default=lambda text: True)
    """Whether a text can be in such a file."""


def write_source(
    rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row], *, in_stages: bool
) -> Written:
    """Writes rows to files of a random kind; the first column is unique, ascending and never null.

    in_stages: leaves out what Spark's stages do not read.
    """
    makers = [_parquet, _arrow, _table, *([_text] * 5)]
    if rows and not in_stages:
        makers.append(_fragment)
    return rng.choice(makers)(rng, place, columns, rows)


# --- columnar ---


def _arrow_table(columns: Mapping[str, str], rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            column: pa.array([row[at] for row in rows], ARROW[kind])
            for at, (column, kind) in enumerate(columns.items())
        }
    )


def _parquet(rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row]) -> Written:
    parts = _parts(rng, columns, rows)
    for number, part in enumerate(parts):
        table = _arrow_table(columns, part.rows).select([n for n in part.names if n in columns])
        pq.write_table(
            table,
            f"{place}-{number}.parquet",
            row_group_size=rng.choice((3, 20, 1000)),
            compression=rng.choice(("none", "zstd", "snappy")),
            use_dictionary=rng.random() < 0.5,
        )
    return Written(
        {"path": f"{place}-*.parquet", "fields": _sql(columns)}, _as_read(parts, columns)
    )


def _arrow(rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row]) -> Written:
    table, ending = _arrow_table(columns, rows), rng.choice(("arrow", "feather", "ipc"))
    path = f"{place}.{ending}"
    if ending == "ipc":
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=20)
    else:
        feather.write_feather(
            table, path, compression=rng.choice(("uncompressed", "lz4", "zstd")), chunksize=20
        )
    return Written({"path": path}, rows)


def _table(rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row]) -> Written:
    """A table in several fragments, sorted by the first column; a fragment of it at times."""
    first = next(iter(columns))
    table = Table.create(str(place), _arrow_table(columns, rows[: len(rows) // 2]), sort_by=first)
    if rows[len(rows) // 2 :]:
        table.append(_arrow_table(columns, rows[len(rows) // 2 :]))
    return Written({"table": str(place)}, rows)


def _fragment(rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row]) -> Written:
    _table(rng, place, columns, rows)
    path = f"{place}.frag"
    Table.open(str(place)).scan().to_file(path)
    return Written({"path": path}, rows)


# --- text ---


def _text(rng: random.Random, place: Path, columns: dict[str, str], rows: list[Row]) -> Written:
    kind = rng.choice((_csv, _csv, _ndjson, _array, _lines, _fixed, _xml))(rng, columns)
    rows = [tuple(_fitting(cell, kind) for cell in row) for row in rows]
    parts = _parts(rng, columns, rows) if kind.has_names else [_Part(list(columns), rows)]
    if kind.ending == "xml":  # a file without elements has no columns to be found
        parts = [part for part in parts if part.rows] or parts[:1]
    ending = kind.ending + rng.choice(("", "", *COMPRESSED))
    for number, part in enumerate(parts):
        data = kind.write(part, list(columns), columns).encode(kind.encoding)
        compressed = COMPRESSED["." + ending.partition(".")[2] if "." in ending else ""]
        Path(f"{place}-{number}.{ending}").write_bytes(compressed(data))
    settings = {"path": f"{place}-*.{ending}", **kind.settings}
    if kind.encoding not in ("utf-8", "utf-8-sig"):
        settings["encoding"] = kind.encoding
    found = _as_read(parts, columns)
    needed = columns if kind.is_declared or rng.random() < 0.5 else _unknowable(parts, columns)
    if needed:
        settings["fields"] = {column: SQL[columns[column]] for column in needed}
    has_other_order = kind.has_names and (kind.ending != "csv" or not parts[0].rows)
    if has_other_order or any("extra" in part.names for part in parts) or rng.random() < 0.3:
        settings["columns"] = list(columns)
    return Written(settings, found)


def _fitting(cell: Any, kind: Kind) -> Any:
    if not isinstance(cell, str):
        return cell
    return kind.as_read(cell if kind.takes(cell) else "a")


def _unknowable(parts: Sequence[_Part], columns: Mapping[str, str]) -> list[str]:
    """Returns the columns whose types cannot be found from their values, or that the first file lacks."""
    names = list(columns)
    rows = [row for part in parts for row in part.values(names)]
    first = set(parts[0].names) if parts[0].rows else set()
    return [
        name
        for name, kind in columns.items()
        if name not in first or kind == "money" or not _is_clear(kind, [r.get(name) for r in rows])
        or any(not _is_clear(kind, [r.get(name) for r in part.values(names)]) for part in parts)
    ]  # fmt: skip


def _is_clear(kind: str, cells: Sequence[Any]) -> bool:
    known = [cell for cell in cells if cell is not None]
    if kind == "text":
        return any(cell != "" and not _NUMBER.fullmatch(cell) for cell in known)
    return bool(known)


def _parts(rng: random.Random, columns: dict[str, str], rows: list[Row]) -> list[_Part]:
    """Divides rows into files that drift: another order of columns, columns missing and added, no rows."""
    if rng.random() < 0.4:
        return [_Part(list(columns), rows)]
    cuts = sorted(rng.randint(0, len(rows)) for _ in range(rng.randint(1, _FILES - 1)))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        names = list(columns)
        if start > 0:
            names = [n for n in names if n == names[0] or rng.random() < 0.85]
            rng.shuffle(names)
            names += ["extra"] if rng.random() < 0.3 else []
        is_whole = all(_is_quarterless(row) for row in rows[start:end]) and rng.random() < 0.5
        parts.append(_Part(names, rows[start:end], is_whole))
    return parts


def _is_quarterless(row: Row) -> bool:
    return all(not isinstance(cell, float) or cell.is_integer() for cell in row)


def _as_read(parts: Sequence[_Part], columns: Mapping[str, str]) -> list[Row]:
    names = list(columns)
    return [tuple(row.get(name) for name in names) for part in parts for row in part.values(names)]


def _sql(columns: Mapping[str, str]) -> dict[str, str]:
    return {column: SQL[kind] for column, kind in columns.items()}


def _shown(cell: Any, *, is_whole: bool = False) -> str:
    """Returns a value as text files have it."""
    match cell:
        case bool():
            return str(cell).lower()
        case float():
            return str(int(cell)) if is_whole else repr(cell)
        case datetime():
            return cell.isoformat()
    return str(cell)


def _csv(rng: random.Random, columns: dict[str, str]) -> Kind:
    delimiter, quote = rng.choice((",", ",", ";", "\t", "|")), rng.choice(('"', '"', "'"))
    decimal = "," if delimiter != "," and rng.random() < 0.4 else "."
    encoding = rng.choice(("utf-8", "utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"))
    has_header, has_comments = rng.random() < 0.8, rng.random() < 0.3

    def cell_text(cell: Any, kind: str, part: _Part) -> str:
        if cell is None:
            return ""
        text = _shown(cell, is_whole=part.is_whole)
        if kind in ("real", "money"):
            text = text.replace(".", decimal)
        if not text or (kind == "text" and (
            any(c in text for c in (delimiter, quote, "\n", "\r")) or rng.random() < 0.2
        )):  # fmt: skip
            return quote + text.replace(quote, quote * 2) + quote
        return text

    def write(part: _Part, _names: list[str], columns: dict[str, str]) -> str:
        if not part.rows and rng.random() < 0.3 and not has_header:
            return ""
        lines = [delimiter.join(part.names)] if has_header else []
        for row in part.values(list(columns)):
            if has_comments and rng.random() < 0.1:
                lines.append("# a remark")
            cells = [
                cell_text(row.get(name), columns.get(name, "int"), part) for name in part.names
            ]
            lines.append(delimiter.join(cells))
        return "".join(f"{line}\n" for line in lines)

    csv: dict[str, Any] = {"delimiter": delimiter, "quote": quote, "decimal": decimal}
    csv |= {} if has_header else {"header": False}
    csv |= {"comment": "#"} if has_comments else {}
    is_plain = csv == {"delimiter": ",", "quote": '"', "decimal": "."}
    return Kind(
        ending="csv",
        settings={} if is_plain else {"csv": csv},
        write=write,
        encoding=encoding,
        is_declared=not has_header,
        has_names=has_header,
        takes=lambda text: _can_encode(text, encoding),
    )


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _json_object(row: Mapping[str, Any], part: _Part, rng: random.Random) -> str:
    pairs = []
    for name in part.names:
        cell = row.get(name)
        if cell is None:
            if rng.random() < 0.5 or name not in row:
                continue
            shown = "null"
        elif isinstance(cell, str):
            shown = json.dumps(cell, ensure_ascii=rng.random() < 0.5)
        elif isinstance(cell, bool | int | float) or not hasattr(cell, "isoformat"):
            shown = _shown(cell, is_whole=part.is_whole)
        else:
            shown = f'"{_shown(cell)}"'
        pairs.append(f"{json.dumps(name)}: {shown}")
    return "{" + ", ".join(pairs) + "}"


def _ndjson(rng: random.Random, _columns: dict[str, str]) -> Kind:
    def write(part: _Part, names: list[str], _kinds: dict[str, str]) -> str:
        return "".join(f"{_json_object(row, part, rng)}\n" for row in part.values(names))

    return Kind(ending=rng.choice(("ndjson", "jsonl", "json")), settings={}, write=write)


def _array(rng: random.Random, _columns: dict[str, str]) -> Kind:
    def write(part: _Part, names: list[str], _kinds: dict[str, str]) -> str:
        joint = rng.choice((",\n", ", ", " ,"))
        return f"[{joint.join(_json_object(row, part, rng) for row in part.values(names))}]\n"

    return Kind(ending="json", settings={}, write=write)


def _lines(rng: random.Random, columns: dict[str, str]) -> Kind:
    """Records with cells between bars; those of several lines begin with an @."""
    is_multiline = rng.random() < 0.5
    start = "@" if is_multiline else ""
    pattern = start + r"\|".join(f"(?P<{column}>[^|]*)" for column in columns)
    lines: dict[str, Any] = {"pattern": pattern}
    lines |= {"multiline": {"starts_with": "@"}} if is_multiline else {}

    def write(part: _Part, _names: list[str], columns: dict[str, str]) -> str:
        cells = (["" if cell is None else _shown(cell) for cell in row] for row in part.rows)
        return "".join(f"{start}{'|'.join(row)}\n" for row in cells)

    forbidden = "|" if is_multiline else "|\n"
    return Kind(
        ending=rng.choice(("log", "txt")),
        settings={"lines": lines},
        write=write,
        has_names=False,
        as_read=lambda text: text or None,
        takes=lambda text: not any(c in text for c in forbidden),
    )


def _fixed(rng: random.Random, columns: dict[str, str]) -> Kind:
    widths = {
        column: {"int": 6, "real": 9, "text": 310, "flag": 5, "time": 26, "date": 10, "money": 9}[
            kind
        ]
        for column, kind in columns.items()
    }
    aligned = {
        column: rng.choice(("left", "right")) if kind == "text" else "right"
        for column, kind in columns.items()
    }
    is_declared = rng.random() < 0.5
    layout = [
        {"name": column, "width": widths[column], "align": aligned[column]}
        | ({"type": SQL[columns[column]]} if is_declared else {})
        for column in columns
    ]

    def write(part: _Part, _names: list[str], _kinds: dict[str, str]) -> str:
        lines = []
        for row in part.rows:
            cells = ("" if cell is None else _shown(cell) for cell in row)
            lines.append(
                "".join(
                    cell.ljust(widths[c]) if aligned[c] == "left" else cell.rjust(widths[c])
                    for c, cell in zip(columns, cells, strict=True)
                )
            )
        return "".join(f"{line}\n" for line in lines)

    return Kind(
        ending="txt",
        settings={"fixed": {"columns": layout}},
        write=write,
        has_names=False,
        as_read=lambda text: text.strip() or None,
        takes=lambda text: "\n" not in text and len(text) <= 310,
    )


def _xml(rng: random.Random, _columns: dict[str, str]) -> Kind:
    has_path = rng.random() < 0.5

    def write(part: _Part, names: list[str], _kinds: dict[str, str]) -> str:
        rows = []
        for row in part.values(names):
            cells = (
                f"<{name}>{escape(_shown(row[name], is_whole=part.is_whole))}</{name}>"
                for name in part.names
                if row.get(name) is not None
            )
            rows.append(f"<row>{''.join(cells)}</row>")
        body = "\n".join(rows)
        return f"<all><some>{body}</some><some/></all>" if has_path else f"<all>{body}</all>"

    settings = {"xml": {"row": "some/row"}} if has_path else {}
    return Kind(ending="xml", settings=settings, write=write)
