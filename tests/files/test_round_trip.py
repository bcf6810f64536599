"""What is written is read back, with the table's schema and, where the format allows, without."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.files.base64_arrays import base64_decode, base64_encode
from compactor.files.jsontext import json_values
from compactor.files.write import open_table_sink
from tests.files.reading import table_of
from tests.support.wording import refuses

NAMES = ["a.parquet", "a.arrow", "a.ndjson", "a.ndjson.gz", "a.csv", "a.csv.zst"]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
INT32 = st.integers(-(2**31), 2**31 - 1)
TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.large_binary(), st.binary(max_size=7)),
    (pa.binary(4), st.binary(min_size=4, max_size=4)),
    (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    (pa.timestamp("us"), TIMES),
    (pa.timestamp("ns", "UTC"), TIMES.map(lambda moment: moment.replace(tzinfo=datetime.UTC))),
    (pa.date32(), TIMES.map(datetime.datetime.date)),
    (pa.time64("us"), st.times()),
    (pa.duration("us"), st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999))),
    (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3)),
    (pa.list_(pa.string()), st.lists(TEXTS | st.none(), max_size=3)),
    (pa.list_(pa.int32(), 2), st.lists(INT32 | st.none(), min_size=2, max_size=2)),
    (
        pa.map_(pa.string(), pa.list_(pa.int32())),
        st.dictionaries(TEXTS, st.lists(INT32, max_size=2), max_size=2).map(lambda d: [*d.items()]),
    ),
    (
        pa.struct([("x", pa.date32()), ("y", pa.list_(pa.struct([("z", pa.binary())])))]),
        st.fixed_dictionaries(
            {
                "x": st.dates(datetime.date(1700, 1, 1)) | st.none(),
                "y": st.lists(st.fixed_dictionaries({"z": st.binary(max_size=3)}), max_size=2),
            }
        ),
    ),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    picked = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    rows = draw(st.integers(1, 6))
    columns = {
        f"{TRICKY_NAMES[i]}{i}": pa.array(
            draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), dtype
        )
        for i, (dtype, values) in enumerate(picked)
    }
    return pa.table(columns)


TRICKY_NAMES = ['say "x"', "a,b", "é\\", "a/b"]


@pytest.mark.parametrize("name", NAMES)
@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=tables(), batch_rows=st.integers(1, 6), batch_bytes=st.sampled_from([7, 100, 1 << 20]))
def test_any_table_is_read_back_as_it_was_written(
    tmp_path: Path, name: str, table: pa.Table, batch_rows: int, batch_bytes: int
) -> None:
    path = str(tmp_path / name)
    with open_table_sink(path, table.schema) as sink:
        for batch in table.to_batches(batch_rows):
            sink.write(batch)
    found = table_of(path, table.schema, batch_bytes=batch_bytes)
    # JSON can't tell a column of nulls from no column.
    left_out = [n for n in table.schema.names if n not in found.schema.names]
    assert all(table[n].null_count == len(table) for n in left_out)
    kept = table.drop_columns(left_out)
    assert found.schema.names == kept.schema.names
    assert found.schema.types == kept.schema.types
    if kept.num_columns:
        assert found.to_pylist() == kept.to_pylist()


@pytest.mark.parametrize("name", ["a.ndjson", "a.csv.gz"])
def test_common_types_are_found_again_without_the_tables_schema(tmp_path: Path, name: str) -> None:
    moment = datetime.datetime(2024, 1, 1, 12, 0, 0, 5)
    table = pa.table(
        {
            "i": [1, None],
            "f": [1.0, None],
            "b": [True, None],
            "s": ['a "b"\r\n', ""],
            "d": [datetime.date(2024, 1, 1), None],
            "t": [moment, None],
            "u": pa.array([moment, None], pa.timestamp("us", "UTC")),
        }
    )
    with open_table_sink(str(tmp_path / name), table.schema) as sink:
        sink.write(table.to_batches()[0])
    assert table_of(str(tmp_path / name)).equals(table)


def test_a_single_column_of_nulls_and_empty_strings_survives_csv(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([None, "", "x", None])})
    with open_table_sink(str(tmp_path / "a.csv"), table.schema) as sink:
        sink.write(table.to_batches()[0])
    assert table_of(str(tmp_path / "a.csv")).equals(table)


@given(values=st.lists(st.none() | st.binary(max_size=8)), start=st.integers(0, 3))
def test_base64_agrees_with_the_codec_value_by_value(
    values: list[bytes | None], start: int
) -> None:
    array = pa.array(values, pa.binary()).slice(start)
    encoded = base64_encode(array)
    encoded.validate(full=True)
    expected = [None if v is None else base64.b64encode(v).decode() for v in values[start:]]
    assert encoded.to_pylist() == expected
    decoded = base64_decode(encoded.slice(1))
    decoded.validate(full=True)
    assert decoded.to_pylist() == values[start:][1:]


@pytest.mark.parametrize(
    "text", ["a", "ab", "abc", "abc-", "ab=c", "=abc", "a===", "====", "abcd\n"]
)
def test_text_that_is_not_base64_is_refused(text: str) -> None:
    with refuses(ValueError):
        base64_decode(pa.array(["YWJj", None, text]))


@settings(deadline=None)
@given(st.lists(st.none() | st.text(), min_size=1))
def test_json_text_agrees_with_the_standard_library(values: list[str | None]) -> None:
    texts = json_values(pa.array([{"k": [v]} for v in values])).to_pylist()
    assert [json.loads(text) for text in texts] == [{"k": [v]} for v in values]


def test_decimals_survive_a_reader_that_knows_nothing_of_them(tmp_path: Path) -> None:
    value = Decimal("12345678901234567890.123")
    table = pa.table({"a": pa.array([value], pa.decimal128(30, 3))})
    with open_table_sink(str(tmp_path / "a.ndjson"), table.schema) as sink:
        sink.write(table.to_batches()[0])
    assert table_of(str(tmp_path / "a.ndjson"))["a"].to_pylist() == [str(value)]
