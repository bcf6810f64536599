"""Where no thread can start, Python reads the JSON that Arrow reads elsewhere, and refuses the same lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files import json_blocks
from compactor.files.read import open_table_file

_NUMBERS = [
    "0",
    "-0",
    "1.5",
    "1e5",
    "-1",
    "01",
    "1.",
    ".5",
    "9223372036854775808",
    "1e309",
    "1e-400",
]
_CONSTANTS = ["NaN", "Inf", "Infinity", "-NaN", "-Inf", "-Infinity", "nan", "InfNaN", "+Inf"]
_TEXTS = ['"a"', '""', '"-NaN"', '"\\"Inf"', '"\\ud800"', '"\\u0000"', '"\t"', '"2020-01-01"', '"1']
_scalars = st.sampled_from([*_NUMBERS, *_CONSTANTS, *_TEXTS, "true", "false", "null"])
_names = st.sampled_from(['"a"', '"b"', '"Inf"'])


def _object(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(_names, values).map(":".join), max_size=3)
    return pairs.map(lambda pairs: f"{{{', '.join(pairs)}}}")


_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]") | _object(inner),
    max_leaves=4,
)
_other_lines = st.sampled_from(
    ["", " \r", "\x0b", "\x0c", "\x1c", "\xa0", "\ufeff{}", "{}{}", "[]", "1", "{a:1}", '{"a":1}\r']
)
_lines = st.lists(_object(_values) | _object(_scalars) | _other_lines, min_size=1, max_size=4)
_types = st.sampled_from(
    [
        None,
        *(pa.field("a", dtype) for dtype in (pa.int64(), pa.float32(), pa.string())),
        pa.field("a", pa.list_(pa.int64())),
        pa.field("b", pa.bool_()),
    ]
)


@contextmanager
def _no_threads() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise pa.ArrowException("failed to launch worker thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_blocks, "_read_by_arrow", refuse)
        yield


def _read(path: Path, known: pa.Schema | None, *, leaves_out: bool) -> Any:
    try:
        with open_table_file(str(path), known, leaves_out_bad_rows=leaves_out) as file:
            rows = [repr(row) for batch in file for row in batch.to_pylist()]
            return file.schema, rows, [row.ordinal for row in file.bad_rows]
    except InputError as error:
        return str(error).split(":")[0]  # the line; the parsers have words of their own


@given(_lines, _types, st.booleans())
@example(['{"a":-Inf}', '{"a":[Inf]}'], None, True)
@example(['{"a":1}', "\x0c"], None, False)
@example(['{"a":1}', "\ufeff{}", '{"a":2}'], None, True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_read_the_same_without_threads(
    tmp_path: Path, lines: list[str], field: pa.Field | None, leaves_out: bool
) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes("\n".join(lines).encode())
    known = None if field is None else pa.schema([field])
    expected = _read(path, known, leaves_out=leaves_out)
    with _no_threads():
        assert _read(path, known, leaves_out=leaves_out) == expected


def test_a_byte_order_mark_between_lines_makes_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_bytes('\ufeff{"a":1}\n\ufeff{"a":2}\n{"a":3}\n'.encode())
    _, rows, bad = _read(path, None, leaves_out=True)
    assert (rows, bad) == (["{'a': 1}", "{'a': 3}"], [1])
