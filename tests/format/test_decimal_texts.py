"""Decimals of any scale as text: what is written is read as it was."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment.arrays.decimals import decimal_texts, decimals_of

WIDTHS = {9: pa.decimal32, 18: pa.decimal64, 38: pa.decimal128, 76: pa.decimal256}


@st.composite
def decimal_columns(draw: st.DrawFn) -> tuple[pa.DataType, list[int]]:
    """Returns a type and unscaled integers, the largest and the smallest among them."""
    most = draw(st.sampled_from(sorted(WIDTHS)))
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(-most, most))
    end = 10**precision - 1
    units = draw(st.lists(st.integers(-end, end), max_size=5))
    return WIDTHS[most](precision, scale), [end, -end, *units]


@given(decimal_columns())
def test_every_decimal_is_read_as_it_was_written(column: tuple[pa.DataType, list[int]]) -> None:
    dtype, units = column
    width = dtype.bit_width // 8
    data = b"".join(unit.to_bytes(width, "little", signed=True) for unit in units)
    array = pa.Array.from_buffers(dtype, len(units), [None, pa.py_buffer(data)])
    assert decimals_of(decimal_texts(array), dtype).equals(array)


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        (pa.decimal128(20, 10), ["0.0000000000", "0.0000000012", "-0.0000000012", "1.2000000000"]),
        (pa.decimal64(9, 7), ["0.0000000", "0.0000001", "-0.0000001"]),
        (pa.decimal128(5, -3), ["0", "12000", "-12000"]),
        (pa.decimal256(76, 76), [f"0.{'0' * 76}", f"0.{'0' * 75}1", f"-0.{'0' * 74}12"]),
    ],
)
def test_a_decimal_is_written_without_an_exponent(dtype: pa.DataType, texts: list[str]) -> None:
    array = decimals_of(pa.array([*texts, None]), dtype)
    with decimal.localcontext(prec=1):
        assert decimal_texts(array).to_pylist() == [*texts, None]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("1000", pa.decimal32(3, 0)), ("9" * 39, pa.decimal128(38, 0)), ("1.5", pa.decimal128(38, 0))],
)
def test_a_text_that_no_value_stands_for_is_refused(text: str, dtype: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="is no value of"):
        decimals_of(pa.array([text]), dtype)


def test_texts_are_read_in_whatever_context_the_caller_has() -> None:
    dtype = pa.decimal256(60, -2)
    text = "9" * 60 + "00"
    with decimal.localcontext(prec=1, rounding=decimal.ROUND_UP):
        assert decimals_of(pa.array([text]), dtype)[0].as_py() == decimal.Decimal(text)
