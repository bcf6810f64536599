"""Every Arrow type comes back as it went in, by both ways of reading."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_fragment.arrays.type_json import type_from_json, type_to_json
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import check_sort_schema, parse_sort_schema
from tests.support.fragments import read_random, read_stream, rows_of, write_fragment
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.wording import refuses

READERS = {"by footer": read_random, "front to back": read_stream}


def table_of(name: str, repeat: int = 1) -> pa.Table:
    array = sample_array(name, repeat)
    return pa.table({"row": pa.array(range(len(array)), pa.int32()), "value": array})


def assert_same(actual: pa.Table, expected: pa.Table) -> None:
    assert actual.schema.equals(expected.schema)
    actual.validate(full=True)
    assert rows_of(actual) == rows_of(expected)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@loops("name", SAMPLES)
def test_a_column_of_every_type_comes_back(name: str, read) -> None:
    table = table_of(name, repeat=3)
    assert_same(read(write_fragment(table, "row", WriterOptions(max_rows=5))), table)


@loops("name", SAMPLES)
def test_a_repeated_column_of_every_type_comes_back(name: str) -> None:
    table = table_of(name, repeat=50 if name == "long_strings" else 700)
    assert_same(read_random(write_fragment(table, "row")), table)


@loops("name", SAMPLES)
def test_slices_at_odd_offsets_are_stored_as_what_they_show(name: str) -> None:
    table = table_of(name, repeat=7).slice(3, 11)
    assert_same(read_stream(write_fragment(table, "row")), table)


@pytest.mark.parametrize("rows", [2, 3, 5000])
@pytest.mark.parametrize("sort", ["row", "value"])
@pytest.mark.parametrize("nulls", [0, 1])
def test_binaries_of_no_bytes_come_back(rows: int, sort: str, nulls: int) -> None:
    values = [b""] * (rows - nulls) + [None] * nulls
    table = pa.table({"row": range(rows), "value": pa.array(values, pa.binary(0))})
    assert_same(read_random(write_fragment(table, sort)), table)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@loops("name", SAMPLES)
def test_an_empty_table_keeps_its_schema(name: str, read) -> None:
    table = table_of(name).slice(0, 0)
    assert_same(read(write_fragment(table, "row")), table)


@loops("name", SAMPLES)
def test_a_single_row_and_a_single_null_come_back(name: str) -> None:
    for row in (0, 1):
        table = table_of(name).slice(row, 1)
        assert_same(read_stream(write_fragment(table, "row")), table)


@pytest.mark.parametrize("level", [0, 1, 19])
def test_every_compression_level_reads_back(level: int) -> None:
    table = table_of("string", repeat=200)
    data = write_fragment(table, "row", WriterOptions(compression_level=level))
    assert_same(read_random(data), table)


def test_many_columns_are_kept_apart_and_in_schema_order() -> None:
    columns = {name: sample_array(name, 10).slice(0, 10) for name in SAMPLES}
    table = pa.table({"z_key": pa.array(range(10))} | columns)
    assert_same(read_random(write_fragment(table, "z_key")), table)
    assert_same(read_stream(write_fragment(table, "z_key")), table)


def test_schema_and_field_metadata_and_nullability_are_kept() -> None:
    field = pa.field("v", pa.int8(), nullable=False, metadata={b"k": b"\xff"})
    schema = pa.schema([pa.field("k", pa.int64()), field], metadata={b"m": b"n"})
    table = pa.table([pa.array([1]), pa.array([2], pa.int8())], schema=schema)
    assert read_random(write_fragment(table, "k")).schema.equals(schema, check_metadata=True)


@loops("name", SAMPLES)
def test_types_survive_json(name: str) -> None:
    dtype = SAMPLES[name][0]
    assert type_from_json(type_to_json(dtype)).equals(dtype)


def test_types_without_a_form_are_refused_by_name() -> None:
    union = pa.dense_union([pa.field("a", pa.int8())])
    with refuses(SchemaError):
        type_to_json(union)
    with refuses(SchemaError, "run_end_encoded"):
        type_to_json(pa.run_end_encoded(pa.int16(), pa.string()))


def test_a_type_of_a_program_that_has_no_hash_is_refused() -> None:
    class Plain(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.int32(), "tests.plain")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Plain:
            return cls()

    for dtype in (Plain(), pa.list_(Plain())):
        with refuses(SchemaError, "__hash__"):
            type_to_json(dtype)


@pytest.mark.parametrize("name", ["list", "struct", "map", "interval", "uuid", "fixed_size_list"])
def test_columns_that_cannot_be_compared_are_no_sort_columns(name: str) -> None:
    schema = pa.schema([("c", SAMPLES[name][0])])
    with refuses(SchemaError):
        check_sort_schema(schema, parse_sort_schema("c"))


def test_a_row_group_with_too_many_values_for_a_dictionary_index_comes_in_several_batches() -> None:
    halves = [
        pa.table(
            {
                "k": pa.array(range(start, start + 100)),
                "d": pa.array([f"v{n}" for n in range(start, start + 100)]).cast(
                    pa.dictionary(pa.int8(), pa.string())
                ),
            }
        )
        for start in (0, 100)
    ]
    whole = pa.concat_tables(halves)
    rows = read_random(write_fragment(whole, "k"))
    assert rows.schema == whole.schema
    assert rows["d"].to_pylist() == [f"v{n}" for n in range(200)]
