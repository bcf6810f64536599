"""Any type of the format, within any other: out to a file and in again, with the same schema and rows."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.errors import InputError
from compactor.files.kept_types import METADATA_KEY
from compactor.files.read import open_table_file
from compactor.files.write import open_table_sink
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.type_json import type_to_json
from lsm_fragment.arrays.types import storage_type
from tests.support.samples import SAMPLES
from tests.support.wording import refuses

Values = st.SearchStrategy[Any]
DAYS = [dt.datetime(1969, 12, 31, tzinfo=dt.UTC), dt.datetime(2038, 1, 19, 3, 14, 7, tzinfo=dt.UTC)]
UNITS = ("s", "ms", "us", "ns")
PLAIN = {
    name: (dtype, values)
    for name, (dtype, values) in SAMPLES.items()
    if not pa.types.is_nested(dtype) and name not in ("interval", "uuid", "long_strings")
}
LEAVES: list[tuple[pa.DataType, Values]] = [
    *((dtype, st.sampled_from(values)) for dtype, values in PLAIN.values()),
    *((pa.timestamp(unit, zone), st.sampled_from([d if zone else d.replace(tzinfo=None) for d in DAYS]))
      for unit in UNITS for zone in (None, "UTC", "Asia/Kolkata", "+02:00")),
    *((pa.duration(unit), st.sampled_from([dt.timedelta(0), dt.timedelta(-1), dt.timedelta(40_000)]))
      for unit in UNITS),
    *((dtype, st.sampled_from([dt.time(0), dt.time(23, 59, 59)]))
      for dtype in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *((dtype, st.sampled_from([Decimal("-9.9"), Decimal("0.0"), Decimal("12.5")]))
      for dtype in (pa.decimal32(3, 1), pa.decimal64(3, 1), pa.decimal128(3, 1), pa.decimal256(3, 1))),
    (pa.uuid(), st.sampled_from([uuid.UUID(int=n).bytes for n in (0, 5)])),
    (pa.json_(), st.sampled_from(['{"a":1}', "[]"])),
    *((pa.dictionary(index, value, ordered), st.sampled_from(values))
      for index in (pa.int8(), pa.uint8(), pa.int32(), pa.int64())
      for ordered in (False, True)
      for value, values in (
          (pa.string(), ["b", "a"]), (pa.large_string(), ["b", ""]), (pa.binary(), [b"b", b""]),
          (pa.int64(), [2**60, -1]), (pa.float64(), [0.5, -1.0]), (pa.bool_(), [True, False]),
          (pa.date64(), [d.date() for d in DAYS]),
          (pa.timestamp("s"), [d.replace(tzinfo=None) for d in DAYS]),
          (pa.decimal128(4, 2), [Decimal("1.25"), Decimal("-0.50")]),
      )),
]  # fmt: skip


def wrapped(inner: st.SearchStrategy[tuple[pa.DataType, Values]]) -> st.SearchStrategy[Any]:
    """A type with others within: their names, nullability and metadata are drawn, too."""
    return st.one_of(
        st.builds(list_of, inner, st.sampled_from([pa.list_, pa.large_list, pa.list_view])),
        st.builds(pair_of, inner),
        st.builds(map_of, inner, st.booleans()),
        st.builds(struct_of, st.lists(inner, min_size=1, max_size=3), st.integers(0, 3)),
    )


def list_of(inner: tuple[pa.DataType, Values], factory: Any) -> tuple[pa.DataType, Values]:
    field = pa.field("item", inner[0], metadata={"unit": "°C"})
    return factory(field), st.lists(inner[1] | st.none(), max_size=3)


def pair_of(inner: tuple[pa.DataType, Values]) -> tuple[pa.DataType, Values]:
    return pa.list_(inner[0], 2), st.lists(inner[1] | st.none(), min_size=2, max_size=2)


def map_of(inner: tuple[pa.DataType, Values], is_sorted: bool) -> tuple[pa.DataType, Values]:
    dtype = pa.map_(pa.string(), inner[0], is_sorted)
    values = st.dictionaries(st.sampled_from(["a", "ä"]), inner[1] | st.none(), max_size=2)
    return dtype, values.map(lambda found: sorted(found.items()))


def struct_of(inner: list[tuple[pa.DataType, Values]], required: int) -> tuple[pa.DataType, Values]:
    """required: the place of a field that can't be null, if it has one there."""
    fields = [
        pa.field(f"f{n}", t, n != required or pa.types.is_null(t) or pa.types.is_fixed_size_list(t))
        for n, (t, _) in enumerate(inner)
    ]
    values = [
        v | st.none() if f.nullable else v.filter(is_some)
        for f, (_, v) in zip(fields, inner, strict=True)
    ]
    names = [field.name for field in fields]
    return pa.struct(fields), st.fixed_dictionaries(dict(zip(names, values, strict=True)))


def is_some(value: object) -> bool:
    return value is not None


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    dtype, values = draw(st.recursive(st.sampled_from(LEAVES), wrapped, max_leaves=4))
    plain = pa.array(
        draw(st.lists(values | st.none(), min_size=3, max_size=3)), storage_type(dtype)
    )
    return to_logical(plain, dtype)  # PyArrow itself makes no nested dictionaries of dates


@pytest.mark.long
@pytest.mark.parametrize("ending", ["parquet", "arrow", "frag"])
@settings(max_examples=40, deadline=None)
@given(found=st.lists(columns(), min_size=1, max_size=3))
def test_any_type_within_any_other_comes_back_with_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, ending: str, found: list[pa.Array]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    rows = pa.table({"row": range(3), **{f"v{n}": array for n, array in enumerate(found)}})
    table = Table.create(folder / "t", rows, "row:desc")
    path = folder / f"rows.{ending}"
    table.scan().to_file(path)
    again = Table.create(folder / "again", path)
    assert again.sort_by == "row:desc"
    assert again.schema.equals(table.schema, check_metadata=True)
    assert repr(again.scan().to_table().to_pylist()) == repr(table.scan().to_table().to_pylist())
    for column in again.scan().to_table().columns:
        column.validate(full=True)


def nulls_of(dtype: pa.DataType) -> pa.Array:
    return to_logical(pa.nulls(3, storage_type(dtype)), dtype)


def test_every_type_comes_back_alone_and_within_others(tmp_path: Path) -> None:
    """What hypothesis may or may not draw: each type once."""
    leaves = [dtype for dtype, _ in LEAVES]
    rows = pa.table(
        {
            "row": range(3),
            **{f"v{n}": nulls_of(dtype) for n, dtype in enumerate(leaves)},
            **{f"s{n}": nulls_of(pa.struct([("f", dtype)])) for n, dtype in enumerate(leaves)},
            **{f"l{n}": nulls_of(pa.large_list(dtype)) for n, dtype in enumerate(leaves)},
        }
    )
    table = Table.create(tmp_path / "t", rows, "row")
    for ending in ("parquet", "arrow", "frag"):
        table.scan().to_file(tmp_path / f"rows.{ending}")
        again = Table.create(tmp_path / ending, tmp_path / f"rows.{ending}")
        assert again.schema.equals(table.schema, check_metadata=True)
        assert again.scan().to_table().equals(table.scan().to_table())


EMPTY = pa.struct([])
REFUSED = {
    "month_day_nano_interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "empty struct": pa.array([{}], EMPTY),
    "binary of length 0": pa.array([b""], pa.binary(0)),
    "lists of size 0": pa.array([[]], pa.list_(pa.int8(), 0)),
    "negative scale": pa.array([Decimal(100)], pa.decimal128(5, -2)),
    "overflow": pa.array([10**16], pa.timestamp("s")),
    "date64": pa.array([2**31 * 86_400_000], pa.int64()).view(pa.date64()),
}


@pytest.mark.parametrize("array", REFUSED.values(), ids=REFUSED)
def test_what_parquet_would_lose_is_refused_by_name_and_arrow_keeps_it(
    tmp_path: Path, array: pa.Array
) -> None:
    table = Table.create(tmp_path / "t", pa.table({"row": [1], "value": array}), "row")
    with refuses(InputError):
        table.scan().to_file(tmp_path / "rows.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    table.scan().to_file(tmp_path / "rows.arrow")
    again = Table.create(tmp_path / "again", tmp_path / "rows.arrow")
    assert again.schema == table.schema
    assert again.scan().to_table()["value"] == table.scan().to_table()["value"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0, 86_400_001], pa.date64()),
        pa.array([[{"d": 1}], None], pa.large_list(pa.struct([("d", pa.date64())]))),
        pa.array([[("k", [1, 0])], []], pa.map_(pa.string(), pa.list_(pa.date64(), 2))),
    ],
)
def test_dates_that_are_no_whole_days_are_refused_by_parquet(
    tmp_path: Path, array: pa.Array
) -> None:
    """Arrow does not allow them, and Parquet would keep the days alone."""
    batch = pa.record_batch({"row": range(2), "value": array})
    with (
        refuses(InputError),
        open_table_sink(str(tmp_path / "f.parquet"), batch.schema) as sink,
    ):
        sink.write(batch)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("days", [2**31, -(2**31) - 1])
def test_dates_beyond_the_days_that_parquet_counts_are_refused(tmp_path: Path, days: int) -> None:
    far = pa.array([days * 86_400_000, None], pa.int64()).view(pa.date64())
    hidden = pa.StructArray.from_arrays([far], ["d"], mask=pa.array([True, False]))
    for value, is_refused in ((far, True), (pa.ListArray.from_arrays([0, 1, 2], far), True),
                              (far.dictionary_encode(), True), (hidden, False)):  # fmt: skip
        batch = pa.record_batch({"row": range(2), "value": value})
        path = tmp_path / "f.parquet"
        try:
            with open_table_sink(str(path), batch.schema) as sink:
                sink.write(batch)
        except InputError as error:
            assert is_refused
            assert "column 'value': Casting from date64[ms] to date32[day]" in str(error)
            assert list(tmp_path.iterdir()) == []
        else:
            assert not is_refused
            assert pq.read_table(path)["value"].to_pylist() == [None, {"d": None}]


def test_a_null_around_a_list_that_may_not_be_null_is_refused_by_parquet(tmp_path: Path) -> None:
    item = pa.struct([pa.field("f", pa.list_(pa.int8(), 2), nullable=False)])
    batch = pa.record_batch({"row": [1], "value": pa.array([None], item)})
    with (
        refuses(InputError),
        open_table_sink(str(tmp_path / "f.parquet"), batch.schema) as sink,
    ):
        sink.write(batch)
    table = Table.create(tmp_path / "t", batch, "row")
    table.scan().to_file(tmp_path / "g.parquet")
    again = Table.create(tmp_path / "again", tmp_path / "g.parquet")
    assert again.scan().to_table()["value"].to_pylist() == [None]


def test_dictionaries_that_only_differ_in_values_from_batch_to_batch_are_one_column(
    tmp_path: Path,
) -> None:
    """200 values are more than the indices of either batch can count."""
    dtype = pa.dictionary(pa.int8(), pa.string())
    batches = [[f"{name}{n}" for n in range(100)] for name in "ab"]  # more than an int8 counts
    first, *others = (
        pa.table(
            {
                "row": range(100),
                "v": pa.array(b, dtype),
                "w": pa.array([[v] for v in b], pa.list_(dtype)),
            }
        )
        for b in batches
    )
    table = Table.create(tmp_path / "t", first, "row")
    for rows in others:
        table.append(rows)
    wide = pa.dictionary(pa.int32(), pa.string())
    for ending in ("parquet", "arrow"):
        table.scan().to_file(tmp_path / f"rows.{ending}")
        again = Table.create(tmp_path / ending, tmp_path / f"rows.{ending}")
        assert again.schema.types == [pa.int64(), wide, pa.list_(wide)]
        assert again.scan().to_table().to_pylist() == table.scan().to_table().to_pylist()
    assert pa.ipc.open_file(tmp_path / "rows.arrow").schema.field("v").type == pa.string()


ROWS = pa.table({"n": [1, 2], "t": ["a", "b"]})


def types_read(path: Path) -> list[pa.DataType]:
    with open_table_file(str(path)) as file:
        list(file)
        return list(file.schema.types)


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{}", b"[1]", b'{"n": 5}', b'{"n": {"kind": "nothing"}}', b"\xff", b"[" * 5000,
        b'{"t": {"kind": "int64"}}', b'{"other": {"kind": "int64"}}', b'{"n": {"kind": "string"}}',
        b'{"n": {"kind": "struct", "fields": []}, "t": {"kind": "timestamp", "unit": "s", "timezone": null}}',
    ],
)  # fmt: skip
def test_types_that_make_no_sense_are_as_if_they_were_not_said(tmp_path: Path, said: bytes) -> None:
    rows = ROWS.replace_schema_metadata({METADATA_KEY: said})
    with pa.ipc.new_file(tmp_path / "f.arrow", rows.schema) as writer:
        writer.write_table(rows)
    assert types_read(tmp_path / "f.arrow") == ROWS.schema.types


@pytest.mark.parametrize(
    "said",
    [
        pa.schema([("n", pa.timestamp("s")), ("t", pa.date64())]),
        pa.schema([("n", pa.struct([("x", pa.int64())])), ("t", pa.list_(pa.string()))]),
        pa.schema([("t", pa.string()), ("n", pa.int64())]),
        pa.schema([("n", pa.run_end_encoded(pa.int32(), pa.int64())), ("t", pa.dense_union([]))]),
    ],
)
def test_a_parquet_file_that_says_of_other_types_is_read_as_it_is_stored(
    tmp_path: Path, said: pa.Schema
) -> None:
    with pq.ParquetWriter(tmp_path / "f.parquet", ROWS.schema, store_schema=False) as writer:
        writer.write_table(ROWS)
        writer.add_key_value_metadata(
            {"ARROW:schema": base64.b64encode(said.serialize().to_pybytes()).decode()}
        )
    assert types_read(tmp_path / "f.parquet") == ROWS.schema.types


def test_values_that_never_were_of_the_type_that_a_file_says_are_an_error_that_names_it(
    tmp_path: Path,
) -> None:
    rows = pa.table({"at": pa.array([1500], pa.timestamp("ms"))})
    said = {"at": type_to_json(pa.timestamp("s"))}
    rows = rows.replace_schema_metadata({METADATA_KEY: json.dumps(said)})
    pq.write_table(rows, tmp_path / "f.parquet")
    with refuses(InputError):
        types_read(tmp_path / "f.parquet")


def test_seconds_in_parquet_of_others_are_milliseconds_as_everybody_reads_them(
    tmp_path: Path,
) -> None:
    days = pa.array([86_400, 172_800], pa.timestamp("s"))
    pq.write_table(pa.table({"day": days, "n": [1, 2]}), tmp_path / "f.parquet")
    assert types_read(tmp_path / "f.parquet") == [pa.timestamp("ms"), pa.int64()]
    table = Table.create(tmp_path / "t", tmp_path / "f.parquet", "day")
    table.append(pa.table({"day": pa.array([500], pa.timestamp("ms")), "n": [3]}))
    assert table.scan(["n"]).to_table()["n"].to_pylist() == [3, 1, 2]


def test_what_an_arrow_file_says_of_its_types_is_json_that_people_can_read(tmp_path: Path) -> None:
    rows = pa.table({"row": [1], "v": pa.array(["x"]).dictionary_encode()})
    Table.create(tmp_path / "t", rows, "row").scan().to_file(tmp_path / "f.arrow")
    metadata = pa.ipc.open_file(tmp_path / "f.arrow").schema.metadata
    assert list(json.loads(metadata[METADATA_KEY])) == ["v"]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_structs_of_views_within_lists_and_maps_come_back(tmp_path: Path, ending: str) -> None:
    inner = pa.struct([("s", pa.string_view()), ("b", pa.binary_view())])
    values: list[list[Any] | None] = [
        [],
        [{"s": "x" * 20, "b": b"y"}],
        [{"s": None, "b": None}, None],
        None,
    ]
    pairs = [None if items is None else list(enumerate(items)) for items in values]
    rows = pa.table(
        {
            "k": range(4),
            "list": pa.array(values, pa.list_(inner)),
            "map": pa.array(pairs, pa.map_(pa.int64(), inner)),
        }
    )
    table = Table.create(tmp_path / "table", rows, "k")
    path = tmp_path / f"rows.{ending}"
    table.scan().to_file(path)
    again = Table.create(tmp_path / "again", path)
    assert again.schema.types == table.schema.types
    assert pa.table(again.scan()).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_maps_whose_keys_and_values_have_names_of_their_own_come_back(
    tmp_path: Path, ending: str
) -> None:
    zoned = pa.dictionary(pa.int64(), pa.timestamp("s", "+05:30"))
    for items in (zoned, pa.timestamp("s"), pa.list_view(pa.field("a.b", zoned))):
        dtype = pa.map_(pa.field("item", pa.uint32(), False), pa.field("item", items))
        plain: Any = [1, None] if pa.types.is_list_view(items) else 1
        values = to_logical(pa.array([[(7, plain)], None], storage_type(dtype)), dtype)
        folder = tmp_path / str(items)
        table = Table.create(folder / "t", pa.table({"row": [0, 1], "v": values}), "row")
        table.scan().to_file(folder / f"f.{ending}")
        again = Table.create(folder / "again", folder / f"f.{ending}", "row")
        assert again.schema == table.schema
        assert again.scan().to_table() == table.scan().to_table()


def test_dictionaries_of_half_floats_in_lists_of_fixed_size_are_written_to_parquet_as_they_are(
    tmp_path: Path,
) -> None:
    """Arrow puts such lists together where one of them is null, and changes the halves of the dictionary."""
    halves = pa.array(np.array([-2.5, -0.0, 1.0], np.float16))
    items = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, None, 2, 0], pa.int32()), halves)
    lists = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))
    table = Table.create(tmp_path / "t", pa.table({"row": range(3), "v": lists}), "row")
    table.scan().to_file(tmp_path / "f.parquet")
    assert pq.read_table(tmp_path / "f.parquet")["v"].to_pylist() == [
        [-2.5, -0.0],
        None,
        [1.0, -2.5],
    ]
    again = Table.create(tmp_path / "again", tmp_path / "f.parquet", "row")
    assert again.schema == table.schema
    assert again.scan(["v"]).to_table()["v"].to_pylist() == [[-2.5, -0.0], None, [1.0, -2.5]]
