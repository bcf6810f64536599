"""The table's types win in text files."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.files.reading import put, refusal, schema, table_of

DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)
READABLE = [
    ("1", pa.float64(), 1.0),
    ("16777216", pa.float32(), 16777216.0),
    ("1.5e10", pa.float32(), 15_000_000_512.0),
    ("1.5", pa.float16(), 1.5),
    ("200", pa.uint8(), 200),
    ('"2024-01-01T12:00:00Z"', pa.timestamp("us"), NOON),
    ('"2024-01-01 12:00:00"', pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=datetime.UTC)),
    ('"2024-01-01"', pa.date32(), DAY),
    ('"2024-01-01"', pa.date64(), DAY),
    ('"12:30:00.5"', pa.time64("us"), datetime.time(12, 30, 0, 500_000)),
    ("5", pa.duration("s"), datetime.timedelta(seconds=5)),
    ("1.5", pa.decimal128(10, 2), Decimal("1.50")),
    ('"1.5"', pa.decimal256(50, 2), Decimal("1.50")),
    ('"YWI="', pa.binary(), b"ab"),
    ('"YWJj"', pa.binary(3), b"abc"),
    ('"abc"', pa.dictionary(pa.int8(), pa.string()), "abc"),
    ('"abc"', pa.string_view(), "abc"),
    ("[1, null]", pa.list_(pa.float32(), 2), [1.0, None]),
    ('["2024-01-01"]', pa.large_list(pa.date32()), [DAY]),
    ('["YWI="]', pa.list_view(pa.binary()), [b"ab"]),
    ('[{"key": "x", "value": 1}]', pa.map_(pa.string(), pa.int32()), [("x", 1)]),
    ('{"b": 1}', pa.struct([("b", pa.float64()), ("c", pa.date32())]), {"b": 1.0, "c": None}),
    ("null", pa.struct([("b", pa.int64())]), None),
    ("[null, null]", pa.list_(pa.null()), [None, None]),
]
UNREADABLE = [
    ("9007199254740993", pa.float64()),
    ("9007199254740993.0", pa.float64()),
    ("16777217", pa.float32()),
    ("2049", pa.float16()),
    ("1e39", pa.float32()),
    ("70000", pa.float16()),
    ("1e-60", pa.float32()),
    ("1e-400", pa.float64()),
    ("0.1234567890123456789", pa.float32()),
    ("[0.5, 9007199254740993]", pa.list_(pa.float64())),
    ('{"b": {"c": 16777217}}', pa.struct([("b", pa.struct([("c", pa.float32())]))])),
    ('[{"key": "x", "value": 16777217}]', pa.map_(pa.string(), pa.float32())),
    ("[true]", pa.list_(pa.null())),
    ('"x"', pa.int64()),
    ("1.5", pa.int64()),
    ("300", pa.int8()),
    ("9223372036854775808", pa.int64()),
    ("1704067200", pa.timestamp("us")),
    ('"2024-01-01T00:00:00.5"', pa.timestamp("s")),
    ('"25:00:00"', pa.time32("s")),
    ('"1.505"', pa.decimal128(10, 2)),
    ('"abc"', pa.binary()),
    ('"YWI="', pa.binary(3)),
    ("[1]", pa.list_(pa.int64(), 2)),
    ('{"b": 1, "c": 2}', pa.struct([("b", pa.int64())])),
    ('[{"key": null, "value": 1}]', pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), READABLE)
@pytest.mark.parametrize("batch_bytes", [16, 1 << 20])
def test_json_is_read_as_the_tables_type(
    tmp_path: Path, value: str, dtype: pa.DataType, expected: object, batch_bytes: int
) -> None:
    path = put(tmp_path, "a.ndjson", f'{{"a": null, "k": 1}}\n{{"a": {value}, "k": 1}}\n')
    table = table_of(path, schema(a=dtype), batch_bytes=batch_bytes)
    assert table.schema == schema(a=dtype, k=pa.int64())
    assert table["a"].to_pylist() == [None, expected]
    table.validate(full=True)


@pytest.mark.parametrize(("value", "dtype", "expected"), READABLE)
def test_cells_are_read_as_the_tables_type(
    tmp_path: Path, value: str, dtype: pa.DataType, expected: object
) -> None:
    cell = '"' + value.strip('"').replace('"', '""') + '"' if value != "null" else ""
    table = table_of(put(tmp_path, "a.csv", f"a,k\n,1\n{cell},1\n"), schema(a=dtype))
    assert table.schema == schema(a=dtype, k=pa.int64())
    assert table["a"].to_pylist() == [None, expected]
    table.validate(full=True)


@pytest.mark.parametrize(("value", "dtype"), [*UNREADABLE, ('" 2024-01-01"', pa.date32())])
@pytest.mark.parametrize("batch_bytes", [16, 1 << 20])
def test_a_value_that_does_not_fit_is_named_by_line_column_and_type(
    tmp_path: Path, value: str, dtype: pa.DataType, batch_bytes: int
) -> None:
    path = put(tmp_path, "a.ndjson", f'{{"k": 1}}\n{{"k": 1, "a": {value}}}\n')
    message = refusal(path, schema(a=dtype), batch_bytes=batch_bytes)
    assert message.startswith(f"a.ndjson, line 2: column 'a': {value} ")


@pytest.mark.parametrize(("value", "dtype"), UNREADABLE)
def test_a_cell_that_does_not_fit_is_named_by_row_column_and_type(
    tmp_path: Path, value: str, dtype: pa.DataType
) -> None:
    cell = '"' + value.strip('"').replace('"', '""') + '"'
    message = refusal(put(tmp_path, "a.csv", f"k,a\n1,\n1,{cell}\n"), schema(a=dtype))
    assert message.startswith("a.csv, row 2: column 'a': ")


@pytest.mark.parametrize(
    ("cell", "dtype"),
    [
        ("007", pa.int64()),
        ("+5", pa.int64()),
        ("0x1F", pa.int64()),
        ("+5", pa.float64()),
        ("1e400", pa.float64()),
        ("0", pa.bool_()),
        ("1", pa.bool_()),
    ],
)
def test_a_cell_is_no_value_of_a_tables_type_that_it_would_not_be_found_to_be_of(
    tmp_path: Path, cell: str, dtype: pa.DataType
) -> None:
    message = refusal(put(tmp_path, "a.csv", f"k,a\n1,\n1,{cell}\n"), schema(a=dtype))
    assert message.startswith(f"a.csv, row 2: column 'a': {cell!r} ")


def test_spaces_around_a_cell_are_not_part_of_a_number_or_time(tmp_path: Path) -> None:
    types = {"a": pa.int64(), "b": pa.date32(), "c": pa.bool_(), "d": pa.time64("us")}
    path = put(tmp_path, "a.csv", "a,b,c,d\n 1 , 2024-01-01, true ,12:30:00 \n")
    row = {"a": 1, "b": DAY, "c": True, "d": datetime.time(12, 30)}
    assert table_of(path, schema(**types)).to_pylist() == [row]


def test_numbers_are_not_text_in_json_but_are_in_csv(tmp_path: Path) -> None:
    known = schema(a=pa.string())
    path = put(tmp_path, "a.ndjson", '{"a": 1}\n')
    refusal(path, known)
    assert table_of(put(tmp_path, "a.csv", "a\n1\n"), known)["a"].to_pylist() == ["1"]


def test_columns_of_the_table_that_the_file_never_names_are_left_out(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '{"b": null, "c": 1}\n')
    known = schema(a=pa.int64(), b=pa.int64(), c=pa.float64())
    assert table_of(path, known).schema == schema(b=pa.int64(), c=pa.float64())


def test_a_column_without_a_type_in_the_table_takes_the_files(tmp_path: Path) -> None:
    known = schema(a=pa.null(), b=pa.float64())
    for path in (
        put(tmp_path, "a.ndjson", '{"a":"x","b":1}\n'),
        put(tmp_path, "a.csv", "a,b\nx,1\n"),
    ):
        assert table_of(path, known).select(["a", "b"]).schema == schema(
            a=pa.string(), b=pa.float64()
        )


def test_a_null_where_the_table_takes_none_is_refused(tmp_path: Path) -> None:
    known = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    assert "line 2: column 'a'" in refusal(put(tmp_path, "a.ndjson", '{"a":1}\n{}\n'), known)
    assert "row 2: column 'a'" in refusal(put(tmp_path, "a.csv", "a\n1\n\n"), known)


@pytest.mark.parametrize("name", ["a.ndjson", "a.csv"])
def test_a_table_type_that_text_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name, '{"a": 1}\n' if name == "a.ndjson" else "a\n1\n")
    known = schema(a=pa.month_day_nano_interval())
    assert "text can't hold month_day_nano_interval" in refusal(path, known)
