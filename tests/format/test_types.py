"""What is known of types by their ids is what Arrow says of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import fixed_width_bytes
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_large_offsets,
    is_list_like,
    may_be_coded,
    may_stay_coded,
    storage_type,
)

PLAIN = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(),
    pa.float64(), pa.decimal32(5, 2), pa.decimal64(12), pa.decimal128(38, 2), pa.decimal256(70), pa.date32(),
    pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", tz="UTC"),
    pa.duration("ms"), pa.month_day_nano_interval(), pa.binary(5), pa.binary(0), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(),
]  # fmt: skip
NESTED = [
    pa.list_(pa.int8()), pa.large_list(pa.string()), pa.list_(pa.int8(), 3), pa.map_(pa.string(), pa.int8()),
    pa.struct([("a", pa.int8())]), pa.struct([]),
]  # fmt: skip
DISGUISED = [
    (pa.string_view(), pa.string()),
    (pa.binary_view(), pa.binary()),
    (pa.dictionary(pa.int8(), pa.string_view()), pa.string()),
    (pa.uuid(), pa.binary(16)),
    (pa.list_view(pa.string_view()), pa.list_(pa.string())),
    (pa.large_list_view(pa.int8()), pa.large_list(pa.int8())),
    (pa.list_(pa.string_view(), 2), pa.list_(pa.string(), 2)),
    (pa.map_(pa.string(), pa.string_view()), pa.map_(pa.string(), pa.string())),
    (pa.struct([("a", pa.string_view())]), pa.struct([("a", pa.string())])),
]


@pytest.mark.parametrize("dtype", PLAIN + NESTED, ids=str)
def test_a_storage_type_is_its_own(dtype: pa.DataType) -> None:
    assert storage_type(dtype) == dtype


@pytest.mark.parametrize(("dtype", "stored"), DISGUISED, ids=str)
def test_views_dictionaries_and_extensions_are_stored_as_others(
    dtype: pa.DataType, stored: pa.DataType
) -> None:
    assert storage_type(dtype) == stored


@pytest.mark.parametrize("dtype", PLAIN + NESTED, ids=str)
def test_kinds_are_those_of_arrow(dtype: pa.DataType) -> None:
    is_text = pt.is_string(dtype) or pt.is_large_string(dtype)
    is_bytes = pt.is_binary(dtype) or pt.is_large_binary(dtype)
    is_list = pt.is_list(dtype) or pt.is_large_list(dtype)
    is_large = pt.is_large_string(dtype) or pt.is_large_binary(dtype) or pt.is_large_list(dtype)
    is_fixed = pt.is_struct(dtype) or pt.is_fixed_size_list(dtype)
    assert is_binary_like(dtype) == (is_text or is_bytes)
    assert is_list_like(dtype) == is_list
    assert is_large_offsets(dtype) == is_large
    assert may_stay_coded(dtype) == (is_text or is_bytes or is_list or pt.is_map(dtype))
    assert may_be_coded(dtype) != (is_fixed or pt.is_boolean(dtype) or pt.is_null(dtype))


@pytest.mark.parametrize("dtype", PLAIN + NESTED, ids=str)
def test_widths_are_those_of_arrow(dtype: pa.DataType) -> None:
    width = fixed_width_bytes(dtype)
    if width is not None:
        assert len(pa.nulls(8, dtype).buffers()[1] or b"") >= 8 * width
        assert dtype.bit_width == 8 * width
    else:
        has_varying_width = is_binary_like(dtype) or pt.is_nested(dtype)
        assert has_varying_width or pt.is_boolean(dtype) or pt.is_null(dtype)
