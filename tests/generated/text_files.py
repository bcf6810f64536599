"""CSV and NDJSON files of odd texts, held against what plain Python reads in them.

`python -m tests.generated.text_files --count 10000 --processes 2`; `--seed 47` tries one again.
"""

from __future__ import annotations

import csv as python_csv
import gzip
import io
import json
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from compactor.errors import InputError
from compactor.files import csv
from compactor.files.read import open_table_file
from tests.generated import pool, text_oracle

Cell = str | None

EDGES = [0, 1, 7, 2**24, 2**31, 2**53, 10**15, 10**16, 10**17, 2**63, 2**64, 10**19, 10**20]


def _integer(r: random.Random) -> str:
    number = r.choice(EDGES) + r.randint(-2, 2) if r.random() < 0.6 else r.randrange(10**18)
    return str(-number if r.random() < 0.2 else number)


def _small(r: random.Random) -> str:
    return str(r.randint(-9, 99))


def _double(r: random.Random) -> str:
    return repr(r.choice([r.random(), r.gauss(0, 1e10), float(_small(r)), r.random() * 1e-300]))


def _fraction(r: random.Random) -> str:
    whole = r.choice(["0", _small(r), _integer(r)])
    return f"{whole}.{r.randrange(10 ** r.randint(1, 20))}"


def _printed(r: random.Random) -> str:
    return f"{r.gauss(0, 10 ** r.randint(-3, 9)):.{r.randint(0, 25)}{r.choice('fe')}}"


def _exponent(r: random.Random) -> str:
    exponent = r.choice([r.randint(-30, 30), r.randint(-340, 320), 400, -400])
    return f"{r.choice(['1', '1.5', '9.999', '0.001'])}{r.choice('eE')}{exponent}"


def _odd_number(r: random.Random) -> str:
    whole = "007 +5 +49301 0x1F 0x1p3 1_000 1,000 -0 -007 ٣ ½ - + --1 +-1"
    return r.choice(f"{whole} 00.5 .5 5. +1.5 1e5 . e5 1e 1. 1d5".split())


def _not_finite(r: random.Random) -> str:
    return r.choice(
        [
            "nan",
            "NaN",
            "NAN",
            "-nan",
            "inf",
            "-inf",
            "+Inf",
            "Infinity",
            "-INFINITY",
            "infinit",
            "nan(1)",
            "na",
            "null",
        ]
    )


def _boolean(r: random.Random) -> str:
    return r.choice(["true", "false", "TRUE", "False", "tRue", "0", "1", "t", "f", "yes"])


def _plain_boolean(r: random.Random) -> str:
    return r.choice(["true", "false"])


def _date(r: random.Random) -> str:
    odd = [
        "2024-1-1",
        "20240101",
        "01/02/2024",
        "2024-02-30",
        "2023-02-29",
        "0001-01-01",
        "9999-12-31",
        "0000-01-01",
        "-0000-01-01",
        "+2024-01-01",
        "12024-01-01",
        "+5881580-07-11",
        "+5881580-07-12",
        _far_date(r),
        _far_date(r),
    ]
    return r.choice([*odd, f"{r.randint(1600, 2300)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"])


def _far_date(r: random.Random) -> str:
    """A date outside of the years 0000 to 9999."""
    year = r.choice(["-0001", "-0004", "-4713", "+10000", "+12000", "-10000", "+294246", "-290307"])
    return f"{year}-{r.randint(1, 12):02}-{r.randint(1, 29):02}"


def _plain_date(r: random.Random) -> str:
    if r.random() < 0.05:
        return _far_date(r)
    return f"20{r.randint(10, 99)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"


def _time(r: random.Random) -> str:
    text = _plain_date(r) + r.choice("T ") + f"{r.randint(0, 24):02}"
    text += r.choice(
        ["", f":{r.randint(0, 60):02}", f":{r.randint(0, 59):02}:{r.randint(0, 60):02}"]
    )
    if text.count(":") == 2 and r.random() < 0.5:
        text += f".{r.randrange(10**9):09}"[: r.choice([2, 4, 7, 8, 10])]
    return text + r.choice(["", "", "Z", "+02", "-0330", "+05:45", " UTC"])


def _plain_time(r: random.Random) -> str:
    return f"{_plain_date(r)}T{r.randint(0, 23):02}:00:00"


def _zoned_time(r: random.Random) -> str:
    return _plain_time(r) + r.choice(["Z", "+02:00"])


def _text(r: random.Random) -> str:
    texts = [
        "a",
        "ö\u2028",
        "two\nlines",
        "a,b",
        'q"q',
        "\ttab",
        "  ",
        "x\r\ny",
        "NULL",
        "a\0b",
        "'",
        "\\",
        "🙂",
    ]
    return r.choice(texts)


KINDS: Sequence[Callable[[random.Random], str]] = (
    _integer, _small, _double, _fraction, _printed, _exponent, _odd_number, _not_finite, _boolean,
    _plain_boolean, _date, _plain_date, _time, _plain_time, _zoned_time, _text,
)  # fmt: skip
NUMBERS = (_integer, _small, _double, _printed, _fraction, _exponent)


def _column(
    r: random.Random, rows: int, kinds: Sequence[Callable[[random.Random], str]]
) -> list[Cell]:
    """Mostly of one kind, which may change on the way, with nulls and spaces."""
    main, other = r.choice(kinds), r.choice(kinds)
    odd = r.choice([0.0, 0.0, 0.1, 0.5])
    nulls, spaces = (
        r.choice([0.0, 0.2, 1.0 if r.random() < 0.1 else 0.0]),
        r.choice([0.0, 0.0, 0.3]),
    )
    cells: list[Cell] = []
    for _ in range(rows):
        text = (other if r.random() < odd else main)(r)
        if r.random() < spaces:
            text = r.choice(["", " ", "\t"]) + text + r.choice(["", " "])
        cells.append(None if r.random() < nulls else text)
    return cells


def check(seed: int) -> str | None:
    """Returns what is wrong with how the files of a seed are read."""
    r = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        return (_check_csv if r.random() < 0.6 else _check_ndjson)(r, Path(folder))


# --- CSV ------------------------------------------------------------------------------------


def _check_csv(r: random.Random, folder: Path) -> str | None:
    rows, width = r.randint(1, 14), r.randint(1, 4)
    names = r.sample(["a", "b c", "d", "e,f", "ü", 'g"h'], width)
    columns = [_column(r, rows, KINDS) for _ in names]
    if r.random() < 0.3:
        columns = [
            [r.choice(["", c]) if c is not None else c for c in column] for column in columns
        ]
    given = _given(r, names, columns) if r.random() < 0.5 else {}
    damage = r.choice(["ragged", "twice", "utf8"]) if width > 1 and r.random() < 0.1 else ""
    content, where = _csv_bytes(r, names, columns, damage)
    path = _put(folder, r, "t.csv", content)
    with patch.object(csv, "MAX_ROW_BYTES", r.choice([2_000, 4 << 20])):
        outcome = _outcome(path, pa.schema(list(given.items())) if given else None, 1 << 20)
    if damage:
        return _expect_refusal(outcome, f", {where}: ", content)
    bad = {
        name: first
        for name, dtype in given.items()
        if (first := text_oracle.first_unreadable(columns[names.index(name)], dtype)) is not None
    }
    if bad:
        places = [f", row {first + 1}: column {name!r}: " for name, first in bad.items()]
        return (
            None
            if any(place in str(outcome) for place in places)
            else _report(outcome, places, content)
        )
    expected = {
        name: (given[name], text_oracle.read_as(cells, given[name]))
        if name in given
        else text_oracle.of_cells(cells)
        for name, cells in zip(names, columns, strict=True)
    }
    return _compare(outcome, expected, content)


def _given(r: random.Random, names: list[str], columns: list[list[Cell]]) -> dict[str, pa.DataType]:
    """Types of a table for some columns: mostly those of the first cells, as if an earlier file had them."""
    given = {}
    for name, cells in zip(names, columns, strict=True):
        types = [text_oracle.of_cells(cells[: r.randint(1, len(cells))])[0]]
        types += [pa.string(), r.choice([dtype for dtype, _ in text_oracle.SCALARS])]
        dtype = r.choices(types, [6, 1, 1])[0]
        # A table's column takes times with and without a zone, which a file's own types keep apart.
        if r.random() < 0.6 and not pa.types.is_null(dtype) and not pa.types.is_timestamp(dtype):
            given[name] = dtype
    return given


def _csv_bytes(
    r: random.Random, names: list[str], columns: list[list[Cell]], damage: str
) -> tuple[bytes, str]:
    """A file, and what is damaged."""
    end = r.choice(["\n", "\r\n"])
    quoted = r.choice([0.0, 0.3, 1.0])
    lines = [",".join(_quoted(name, r.random() < quoted) for name in names)]
    lines += [
        ",".join("" if c is None else _quoted(c, r.random() < quoted) for c in cells)
        for cells in zip(*columns, strict=True)
    ]
    where = "header"
    if damage == "twice":
        lines[0] = ",".join([_quoted(names[0], False)] * len(names))
    elif damage:
        row = r.randint(1, len(lines) - 1)
        lines[row] += "," if damage == "ragged" else ""
        where = f"row {row}"
    blank = end if r.random() < 0.2 and len(names) > 1 and not damage else ""
    text = (end + blank).join(lines) + (end if len(names) == 1 or r.random() < 0.8 else "")
    content = (b"\xef\xbb\xbf" if r.random() < 0.1 else b"") + text.encode()
    if damage == "utf8":
        content = b"\xff\xfe" + content
        where = "header"
    if not damage:
        with io.StringIO(text, newline="") as file:
            read = [row for row in python_csv.reader(file) if row or len(names) == 1]
        assert [[c or "" for c in cells] for cells in zip(*columns, strict=True)] == [
            row or [""] for row in read[1:]
        ]
    return content, where


def _quoted(text: str, wanted: bool) -> str:
    if wanted or text == "" or any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


# --- NDJSON ---------------------------------------------------------------------------------


def _check_ndjson(r: random.Random, folder: Path) -> str | None:
    rows = r.randint(1, 12)
    names = r.sample(["a", "b c", "", "ü", 'g"h'], r.randint(1, 3))
    columns = {name: _json_column(r, rows) for name in names}
    lines = []
    for place in range(rows):
        fields = [
            f"{json.dumps(name)}:{'null' if cell is None else cell}"
            for name, cells in columns.items()
            if (cell := cells[place]) is not None or r.random() < 0.7
        ]
        # One column that every row has, so that the file has one in any case.
        lines.append("{" + ", ".join(['"k":0', *fields]) + "}")
    end = r.choice(["\n", "\r\n"])
    blank = r.random() < 0.2
    content = end.join(lines + [""] * r.choice([0, 1, 1, 2])).encode()
    if blank:
        content = (end + end).join(lines).encode()
    if r.random() < 0.1:
        content = b"\xef\xbb\xbf" + content
    path, batch_bytes = _put(folder, r, "t.ndjson", content), r.choice([8, 64, 1 << 20])
    outcome = _outcome(path, None, batch_bytes)
    bad = [_first_conflict(cells) for cells in columns.values()]
    first = min((place for place in bad if place is not None), default=None)
    if first is not None:
        return _expect_refusal(
            outcome, f", line {2 * first + 1 if blank else first + 1}: ", content
        )
    expected = {name: _of_json(cells) for name, cells in columns.items()}
    if not isinstance(outcome, InputError):
        # A column that no row names is none.
        there = {
            n: e
            for n, e in expected.items()
            if n in outcome.column_names or not pa.types.is_null(e[0])
        }
        return _compare(outcome.drop_columns(["k"]), there, content)
    return _compare(outcome, expected, content)


def _json_column(r: random.Random, rows: int) -> list[Cell]:
    """Of numbers, strings or booleans as JSON has them; at times one of another kind."""
    draw = r.random()
    if draw < 0.5:
        kinds = r.sample(NUMBERS, 2)
        return [c and c.strip() for c in _column(r, rows, kinds)]
    if draw < 0.9:
        cells = [None if c is None else json.dumps(c) for c in _column(r, rows, KINDS)]
    else:
        cells = _column(r, rows, [_plain_boolean])
        cells = [c and c.strip() for c in cells]
    if r.random() < 0.1:
        cells[r.randrange(rows)] = r.choice(["1", "true", '"x"', "0.5"])
    return cells


def _kind(cell: str) -> str:
    return "string" if cell[0] == '"' else "boolean" if cell in ("true", "false") else "number"


def _first_conflict(cells: list[Cell]) -> int | None:
    """The first row that no type takes with those before it."""
    for place in range(len(cells)):
        try:
            _of_json(cells[: place + 1])
        except text_oracle.NoValueError:
            return place
    return None


def _of_json(cells: Sequence[Cell]) -> tuple[pa.DataType, list[object]]:
    kinds = {_kind(cell) for cell in cells if cell is not None}
    if not kinds:
        return pa.null(), list(cells)
    if len(kinds) > 1:
        raise text_oracle.NoValueError(str(kinds))
    if kinds == {"boolean"}:
        return pa.bool_(), [None if cell is None else cell == "true" for cell in cells]
    if kinds == {"number"}:
        return text_oracle.of_numbers(cells)
    return text_oracle.of_strings([None if cell is None else json.loads(cell) for cell in cells])


# --- comparing ------------------------------------------------------------------------------


def _put(folder: Path, r: random.Random, name: str, content: bytes) -> str:
    packed = r.random() < 0.1
    path = folder / (name + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(content) if packed else content)
    return str(path)


def _outcome(path: str, known: pa.Schema | None, batch_bytes: int) -> pa.Table | InputError:
    try:
        with open_table_file(path, known, batch_bytes=batch_bytes) as file:
            table = pa.Table.from_batches(file, schema=file.schema)
    except InputError as error:
        return error
    table.validate(full=True)
    return table


def _expect_refusal(outcome: pa.Table | InputError, place: str, content: bytes) -> str | None:
    is_said = isinstance(outcome, InputError) and place in str(outcome) and "\n" not in str(outcome)
    return None if is_said else _report(outcome, place, content)


def _compare(
    outcome: pa.Table | InputError,
    expected: dict[str, tuple[pa.DataType, list[object]]],
    content: bytes,
) -> str | None:
    if isinstance(outcome, InputError):
        return _report(outcome, expected, content)
    found = {
        name: (column.type, _values(column))
        for name, column in zip(outcome.column_names, outcome.columns, strict=True)
    }
    wanted = {
        name: (dtype, [_bits(v) for v in values]) for name, (dtype, values) in expected.items()
    }
    if sorted(found) != sorted(wanted):
        return _report(list(found), list(wanted), content)
    names = [name for name in found if found[name] != wanted[name]]
    return _report(found[names[0]], wanted[names[0]], content) if names else None


def _values(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [_bits(value) for value in column.to_pylist()]


def _bits(value: object) -> object:
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    return value


def _report(found: object, wanted: object, content: bytes) -> str:
    return f"found {found}\nwanted {wanted}\nin {content!r}"


if __name__ == "__main__":
    sys.exit(pool.main(check, __doc__, "tests.generated.text_files", 60, noun="files"))
