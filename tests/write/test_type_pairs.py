"""Two writers of one column, in any two types: what a table takes, it keeps and can be read; the rest it
refuses, and stays as it is."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import types as pt

from compactor import Table
from compactor.errors import InputError
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import null_mask
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.arrays.types import table_type
from lsm_fragment.container.writer import WriterOptions
from tests.support.tables import compact_table

OPTIONS = IngestOptions(writer=WriterOptions(max_rows=3))
UNITS = ("s", "ms", "us", "ns")
DECIMALS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
INTS = [getattr(pa, f"{sign}int{bits}")() for bits in (8, 16, 32, 64) for sign in ("", "u")]
FAMILIES: list[list[pa.DataType]] = [
    [*INTS, pa.float16(), pa.float32(), pa.float64()],
    [make(digits, scale) for make in DECIMALS.values() for digits in (4, 7) for scale in (0, 2)],
    [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "Asia/Kolkata")],
    [pa.timestamp(unit) for unit in UNITS[:3]],
    [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
     *map(pa.duration, UNITS)],
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(2)],
]  # fmt: skip
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def some_values(rng: np.random.Generator, dtype: pa.DataType, rows: int) -> pa.Array:
    """Mostly the ends of the type and of others, for which it may be too wide or too narrow."""
    mask = rng.random(rows) < 0.2
    if pt.is_floating(dtype):
        floats = rng.choice([0.0, -0.0, 1.0, -3.5, 2048.0, float("nan"), float("-inf")], rows)
        return pa.array(floats.astype(dtype.to_pandas_dtype()), dtype, mask=mask)
    if pt.is_decimal(dtype):
        most = 10**dtype.precision - 1
        whole = [int(n) for n in rng.choice([0, 1, -1, most, -most, 25], rows)]
        exact_values = [Decimal(n).scaleb(-dtype.scale) for n in whole]
        return pa.array([None if m else v for v, m in zip(exact_values, mask, strict=True)], dtype)
    if pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype):
        return pa.array(rng.choice(["", "ab", "é", "a" * 70], rows).tolist(), dtype, mask=mask)
    if not (pt.is_temporal(dtype) or pt.is_integer(dtype)):
        texts = [b"ab"] if pt.is_fixed_size_binary(dtype) else [b"", b"ab", b"\xff", b"\xff" * 70]
        values = [texts[n] for n in rng.integers(0, len(texts), rows)]
        return pa.array([None if m else v for v, m in zip(values, mask, strict=True)], dtype)
    bits = dtype.bit_width
    storage = dtype if pt.is_integer(dtype) else pa.int32() if bits == 32 else pa.int64()
    low, high = 0 if pt.is_unsigned_integer(dtype) else -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    ends = [0, 1, 7, 86_400 % (high + 1), high, low, high // 1000, low // 1000 + 1, high // 10**6]
    if pt.is_time(dtype):
        ends = [0, 1, 86_400 * PER_SECOND[dtype.unit] - 1]
    if pt.is_date64(dtype):
        ends = [day * 86_400_000 for day in (0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1)]
    choice = [ends[n] for n in rng.integers(0, 3 if rng.random() < 0.4 else len(ends), rows)]
    numbers = [None if m else n for n, m in zip(choice, mask, strict=True)]
    return pa.array(numbers, storage).view(dtype)


def wrapped(rng: np.random.Generator, values: pa.Array, shape: str) -> pa.Array:
    """The values in a type of this shape, whose writer says of nulls whatever is true of them."""
    rows = len(values)
    is_required = values.null_count == 0 and rng.random() < 0.8
    item = pa.field(str(rng.choice(["item", "x"])), values.type, nullable=not is_required)
    mask = pa.array(rng.random(rows) < 0.2)
    offsets = pa.array(np.arange(rows + 1), pa.int32())
    match shape:
        case "dictionary":
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            codes = pa.array(np.cumsum(~is_null) - 1, pa.int8(), mask=is_null)
            return pa.DictionaryArray.from_arrays(codes, without_nulls(values))
        case "struct":
            fields = [item.with_name("f").with_metadata({"by": str(rng.integers(9))})]
            return pa.StructArray.from_arrays([values], fields=fields, mask=mask)
        case "list":
            return pa.ListArray.from_arrays(offsets, values, type=pa.list_(item))
        case "large_list":
            return pa.LargeListArray.from_arrays(
                offsets.cast(pa.int64()), values, type=pa.large_list(item)
            )
        case "list_view":
            sizes = pa.array([1] * rows, pa.int32())
            return pa.ListViewArray.from_arrays(
                offsets[:-1], sizes, values, type=pa.list_view(item)
            )
        case "fixed_list":
            return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(item, 1), mask=mask)
        case "map":
            dtype = pa.map_(pa.int8(), item, keys_sorted=bool(rng.integers(2)))
            return pa.MapArray.from_arrays(
                offsets, pa.array([1] * rows, pa.int8()), values, type=dtype
            )
    return values


SHAPES = ["plain", "plain", "plain", "key", "dictionary", "struct", "list", "large_list", "list_view",
          "fixed_list", "map"]  # fmt: skip


def is_kept_in_dictionaries(dtype: pa.DataType) -> bool:
    """By Arrow and Parquet."""
    is_small = pt.is_decimal(dtype) and dtype.bit_width < 128
    is_zoned = pt.is_timestamp(dtype) and dtype.tz is not None
    return not (is_small or is_zoned or pt.is_duration(dtype) or pt.is_string_view(dtype))


def exact(array: pa.Array) -> list[Any]:
    """What the values are, whatever their types: numbers as fractions, times in seconds."""
    array = plain(to_storage(array))
    dtype = array.type
    if pt.is_struct(dtype):
        columns = [exact(child) for child in array.flatten()]
        return masked(array, [*zip(*columns, strict=True)])
    if pt.is_nested(dtype):
        if pt.is_fixed_size_list(dtype):
            items = exact(array.values.slice(array.offset * dtype.list_size))
            return masked(array, [items[n : n + 1] for n in range(len(array))])
        counts, elements = list_parts(array)
        values = iter(exact(elements))
        return masked(array, [[next(values) for _ in range(n)] for n in counts])
    if pt.is_floating(dtype):
        return [None if v is None else repr(v) if v != v or (v in (0, float("-inf")) and str(v) != "0.0")
                else Fraction(v) for v in array.cast(pa.float64()).to_pylist()]  # fmt: skip
    if pt.is_temporal(dtype):
        numbers = array.view(pa.int32() if dtype.bit_width == 32 else pa.int64()).to_pylist()
        day = 86_400 if pt.is_date32(dtype) else Fraction(1, 1000)
        unit = day if pt.is_date(dtype) else Fraction(1, PER_SECOND[dtype.unit])
        return [None if n is None else n * unit for n in numbers]
    if pt.is_integer(dtype) or pt.is_decimal(dtype):
        return [None if v is None else Fraction(v) for v in array.to_pylist()]
    return [v.encode() if isinstance(v, str) else v for v in array.to_pylist()]


def masked(array: pa.Array, values: list[Any]) -> list[Any]:
    mask = null_mask(array)
    hidden = [False] * len(array) if mask is None else mask.to_pylist()
    return [None if is_null else v for v, is_null in zip(values, hidden, strict=True)]


def rows_of(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [exact(rows[name].combine_chunks()) for name in ("id", "v")]
    return sorted(zip(*columns, strict=True), key=lambda row: row[0])


def a_file(rng: np.random.Generator, dtype: pa.DataType, shape: str, place: int) -> pa.Table:
    rows = int(rng.integers(1, 7))
    values = some_values(rng, dtype, rows)
    if rng.random() < 0.6 and values.null_count < rows:
        values = without_nulls(values)
        rows = len(values)
    ids = range(place, place + 10 * rows, 10)
    return pa.table({"id": ids, "v": wrapped(rng, values, shape)})


def without_nulls(values: pa.Array) -> pa.Array:
    if pt.is_string_view(values.type):  # of which PyArrow can't drop any
        return pa.array([value for value in values.to_pylist() if value is not None], values.type)
    return values.drop_null()


def check_readable(table: Table, expected: list[tuple[Any, ...]], folder: Path) -> None:
    """The rows are there, by a scan and in every file that takes them."""
    table.refresh()
    assert rows_of(table.scan().to_table()) == expected
    for ending in ("parquet", "arrow"):
        path = folder / f"{len(list(folder.iterdir()))}.{ending}"
        try:
            table.scan().to_file(path)
        except InputError as error:
            assert "can't hold" in str(error)
            assert "null" not in str(error)
            continue
        again = Table.create(path.with_suffix(f".{ending}.table"), path, "id")
        assert rows_of(again.scan().to_table()) == expected
        assert again.schema == table.schema
    store = LocalStore(folder / "t")
    assert verify(store, CommitLog(store).current()).faults == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_whatever_two_writers_append_is_kept_as_it_was_or_refused(
    tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    shape = "plain" if seed % len(FAMILIES) == 3 else str(rng.choice(SHAPES))
    if shape == "dictionary":
        family = [dtype for dtype in family if is_kept_in_dictionaries(dtype)]
    types = [family[n] for n in rng.integers(0, len(family), 2)]
    files = [
        a_file(rng, types[int(n)], shape, place)
        for place, n in enumerate([0, 1, *rng.integers(0, 2, 2)])
    ]
    sort = "v,id" if shape == "key" else "id"
    table = Table.create(tmp_path / "t", files[0], sort, OPTIONS)
    kept, versions = rows_of(files[0]), {}
    versions[table.version] = list(kept)
    store = LocalStore(tmp_path / "t")
    for place, rows in enumerate(files[1:]):
        try:
            table.append(rows, OPTIONS)
        except InputError as error:
            assert "column 'v'" in str(error)
            assert table_type(rows.schema.field("v").type) != table.schema.field("v").type
            table.refresh()
        else:
            kept = sorted([*kept, *rows_of(rows)], key=lambda row: row[0])
        versions[table.version] = list(kept)
        assert rows_of(table.scan().to_table()) == kept
        if place == 1:  # some fragments of each type
            settings = CompactionSettings(max_rows_per_row_group=2)
            assert not compact_table(store, settings, strategy=Strategy.OVERLAPPING).failed
    check_readable(table, kept, tmp_path)
    second = rows_of(files[1])
    table.delete("id IN (1, 11, 21, 31, 41, 51)")
    kept = [row for row in kept if row not in second]
    check_readable(table, kept, tmp_path)
    assert not compact_table(store, CompactionSettings(), strategy=Strategy.FULL).failed
    check_readable(table, kept, tmp_path)
    for version, expected in versions.items():
        assert rows_of(Table.open(tmp_path / "t", version=version).scan().to_table()) == expected
