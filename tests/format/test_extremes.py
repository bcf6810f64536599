"""Bounds of chunks are those of plain Python, for every type, with nulls and in slices."""

from __future__ import annotations

import decimal
import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsm_fragment import native
from lsm_fragment.arrays.storage import plain, to_storage
from lsm_fragment.keys.bounds import shorten, value_at, value_to_json
from lsm_fragment.keys.extremes import min_max
from tests.support.loops import loops
from tests.support.oracle import compare_values
from tests.support.samples import SAMPLES, sample_array
from tests.support.wording import refuses

HALVES = st.floats(width=16)
DECIMALS = (pa.decimal32(9, 2), pa.decimal64(18, 3), pa.decimal128(38, 2), pa.decimal256(76, 70))
TEXT = st.one_of(
    st.text(max_size=8),
    st.builds(
        lambda start, tail, count: start + tail * count,
        st.text(max_size=70),
        st.sampled_from(["a", "é", "\U0010ffff", "\ud7ff"]),
        st.integers(0, 3000),
    ),
)


def bounds_of(array: pa.Array) -> tuple[Any, Any]:
    """The bounds by comparing values one by one."""
    array = plain(array)
    present = [row for row in range(len(array)) if array[row].is_valid]
    if not present or pa.types.is_nested(array.type) or pa.types.is_interval(array.type):
        return None, None
    values = {row: _comparable(array[row].as_py(), array.type) for row in present}

    def compared(one: int, other: int) -> int:
        return compare_values(values[one], values[other])

    order = functools.cmp_to_key(compared)
    low, high = min(present, key=order), max(present, key=order)
    ends = [value_at(array, low), value_at(array, high)]
    if pa.types.is_floating(array.type):
        ends = [value_to_json(float(end) + 0.0) for end in ends]
    return shorten(ends[0], array.type, down=True)[0], shorten(ends[1], array.type, down=False)[0]


def _comparable(value: Any, dtype: pa.DataType) -> Any:
    return float(value) if pa.types.is_floating(dtype) else value


@loops("name", [name for name in SAMPLES if name != "null"])
def test_bounds_of_every_type_are_those_of_plain_python(name: str) -> None:
    array = to_storage(sample_array(name, 3))
    for start, rows in ((0, len(array)), (1, 5), (2, 1), (3, 7), (1, 1), (len(array), 0)):
        part = array.slice(start, rows)
        assert min_max(part) == bounds_of(part), (start, rows)


@given(st.lists(st.none() | HALVES), st.sampled_from([np.float16, np.float32, np.float64]))
@example([float("nan"), None, -0.0], np.float64)
@example([-0.0, 0.0], np.float16)
@example([float("nan")], np.float32)
def test_nan_is_the_greatest_and_zeros_have_no_sign(values: list[float | None], kind: Any) -> None:
    numbers = np.array([0 if v is None else v for v in values], kind)
    array = pa.array(numbers, mask=np.array([v is None for v in values], np.bool_))
    assert [str(end) for end in min_max(array)] == [str(end) for end in bounds_of(array)]


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rows", [15, 16, 17, 50])
def test_extremes_may_be_in_any_row(kind: Any, rows: int) -> None:
    for row in range(rows):
        for value in (0, 99) if np.dtype(kind).kind in "iu" else (0, 99, np.nan, np.inf, -np.inf):
            numbers = np.arange(40, 40 + rows).astype(kind)
            numbers[row] = value
            array = pa.array(numbers)
            assert str(min_max(array)) == str(bounds_of(array))


@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("null_share", [0, 0.3, 0.99])
def test_extremes_of_many_rows_are_those_of_rows_that_are_not_null(
    kind: Any, null_share: float
) -> None:
    rng = np.random.default_rng(3)
    for rows in (511, 512, 513, 2000):
        numbers = rng.integers(0, 250, rows).astype(kind)
        mask = rng.random(rows) < null_share
        array = pa.array(numbers, mask=mask).slice(3)
        present = numbers[3:][~mask[3:]]
        assert min_max(array) == (value_of(present.min()), value_of(present.max()))


def value_of(number: np.generic) -> Any:
    return value_to_json(number.item())


@pytest.mark.parametrize("dtype", DECIMALS, ids=str)
@given(st.data())
def test_decimals_of_every_width(dtype: pa.DataType, data: st.DataObject) -> None:
    most = 10**dtype.precision - 1
    numbers = st.integers(-most, most) | st.sampled_from(
        [0, 1, -1, 2**32, -(2**32), 2**64, -(2**64)]
    )
    numbers = numbers.filter(lambda number: abs(number) <= most)
    values = data.draw(st.lists(st.none() | numbers))
    exact = decimal.Context(prec=100)
    texts = [v if v is None else exact.scaleb(decimal.Decimal(v), -dtype.scale) for v in values]
    array = pa.array(texts, dtype).slice(data.draw(st.integers(0, 2)))
    assert min_max(array) == bounds_of(array)


@given(
    st.lists(st.none() | TEXT, max_size=8),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.integers(0, 2),
)
def test_long_values_are_bounded_as_whole_ones_are(
    values: list[str | None], dtype: pa.DataType, start: int
) -> None:
    encoded = [v if v is None or "string" in str(dtype) else v.encode() for v in values]
    array = pa.array(encoded, dtype).slice(start)
    assert min_max(array) == bounds_of(array)
    assert min_max(array.dictionary_encode()) == bounds_of(array)


def test_binaries_of_no_bytes_have_bounds() -> None:
    assert min_max(pa.array([None, b"", b""], pa.binary(0))) == ("", "")
    assert min_max(pa.array([None, None], pa.binary(0))) == (None, None)


def test_only_values_in_use_count() -> None:
    codes = pa.array([2, None, 1, 2], pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, pa.array(["z", "c", "b", "a"]))
    assert min_max(array) == ("b", "c")


def test_malformed_arrays_are_refused() -> None:
    data, many = np.zeros(8, np.uint8), np.arange(9, dtype=np.int64)
    calls = {
        "a bitmap": lambda: native.keys.extremes.extreme_numbers(many, data[:1], 0),
        "a start": lambda: native.keys.extremes.extreme_numbers(many, data, -1),
        "offsets beyond": lambda: native.keys.extremes.extreme_strings(many[::3].copy(), data[:5], None, 0),
        "falling offsets": lambda: native.keys.extremes.extreme_strings(
            np.array([0, 4, 2, 8]), data, None, 0
        ),
        "no offsets": lambda: native.keys.extremes.extreme_strings(many[:0], data, None, 0),
    }  # fmt: skip
    for name, call in calls.items():
        with refuses(ValueError, "malformed"):
            call()
            pytest.fail(name)
