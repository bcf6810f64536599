"""Rows of text: native code writes what Python's own writers and `plain_text` make of the same values."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.files.csvtext import csv_header, csv_lines
from compactor.files.jsontext import json_lines
from compactor.files.plain_text import plain_text
from compactor.files.text_options import TextOptions
from lsm_fragment.arrays.storage import to_storage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SPECIAL = st.text(st.sampled_from("a\"'\\\n\r\t\x00\x08\x0c\x1f\x7f,é😀"), max_size=20)
FLOATS = st.one_of(
    st.floats(), st.integers(-100, 100).map(float), st.sampled_from([1e15, 1e16, -0.0])
)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.one_of(TEXTS, SPECIAL)),
    "large": (pa.large_string(), SPECIAL),
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "real": (pa.float64(), FLOATS),
    "flag": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us"), st.integers(-(2**62), 2**62)),
    "zoned": (pa.timestamp("ms", "Europe/Rome"), st.integers(-(10**14), 10**14)),
    "day": (pa.date32(), st.integers(-(10**6), 10**6)),
    "length": (pa.duration("s"), st.integers(-(10**9), 10**9)),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "list": (pa.list_(pa.string()), st.lists(SPECIAL, max_size=2)),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 9))
    arrays = []
    for dtype, values in COLUMNS.values():
        array = pa.array(
            draw(st.lists(st.one_of(st.none(), values), min_size=rows, max_size=rows)), dtype
        )
        is_flat = not isinstance(dtype, pa.ListType)
        arrays.append(array.dictionary_encode() if is_flat and draw(st.booleans()) else array)
    batch = pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
    return batch.slice(draw(st.integers(0, rows - 1)))


def decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


@given(batches(), st.sampled_from([TextOptions(), TextOptions(delimiter="\t", quote="'")]))
def test_a_csv_row_reads_back_as_the_texts_of_its_values(
    batch: pa.RecordBatch, options: TextOptions
) -> None:
    lines = io.StringIO(csv_lines(batch, options).decode(), newline="")
    rows = list(csv.reader(lines, delimiter=options.delimiter, quotechar=options.quote))
    assert len(rows) == batch.num_rows
    for at, (name, array) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if name in ("text", "large"):
            expected = [value or "" for value in decoded(array).to_pylist()]
        elif name == "list":
            expected = [
                ""
                if value is None
                else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                for value in array.to_pylist()
            ]
        else:
            texts = plain_text(decoded(to_storage(array)))
            expected = [text or "" for text in texts.to_pylist()]
        assert [row[at] for row in rows] == expected


@given(batches())
def test_a_json_row_is_one_that_python_reads_and_writes_alike(batch: pa.RecordBatch) -> None:
    lines = json_lines(batch).decode().split("\n")
    assert lines.pop() == ""
    for row, line in enumerate(lines):
        found = json.loads(line)
        assert list(found) == batch.schema.names
        for name in ("text", "large", "number", "small", "flag", "list"):
            value = decoded(batch.column(name))[row].as_py()
            assert found[name] == value
            assert (
                f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
                in line
            )
        real = decoded(batch.column("real"))[row].as_py()
        is_number = real is not None and math.isfinite(real)
        assert found["real"] == (real if is_number else None)
        assert not is_number or isinstance(found["real"], float)


@pytest.mark.parametrize(
    ("text", "cell"),
    [("", '""'), ('"', '""""'), ("a,b", '"a,b"'), ("a\nb", '"a\nb"'), (None, "")],
)
def test_texts_are_quoted_and_null_is_empty(text: str | None, cell: str) -> None:
    assert csv_lines(pa.record_batch([pa.array([text])], names=["t"])).decode() == f"{cell}\n"


def test_a_heavy_value_that_many_rows_share_is_written_for_each() -> None:
    shared = pa.array(["x" * 10_000, '"']).dictionary_encode().take(pa.array([0, 1, None, 0]))
    batch = pa.record_batch([shared], names=["s"])
    long = "x" * 10_000
    assert csv_lines(batch).decode() == f'"{long}"\n""""\n\n"{long}"\n'


def test_a_header_quotes_names_and_rows_without_columns_are_empty_objects() -> None:
    assert csv_header(['a"b', "c,d"]) == b'"a""b","c,d"\n'
    empty = pa.record_batch(
        pa.table({"a": [1, 2]}).drop_columns(["a"]).to_batches()[0].columns, names=[]
    )
    assert csv_lines(empty) == json_lines(empty) == b""


def test_integers_of_every_length_are_written_as_python_writes_them() -> None:
    numbers = [
        sign * (10**digits + more)
        for digits in range(19)
        for more in (-1, 0, 1)
        for sign in (1, -1)
    ]
    numbers = [n for n in numbers if -(2**63) <= n < 2**63] + [2**63 - 1, -(2**63)]
    batch = pa.record_batch({"n": pa.array(numbers)})
    assert csv_lines(batch).decode().split() == list(map(str, numbers))
