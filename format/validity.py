"""Values that their types do not allow, which Arrow arrays can hold and readers refuse."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from format.types import is_list_like


def check_values(array: pa.Array) -> None:
    """Raises ValueError for text that is not UTF-8, decimals of up to 64 bits with more digits than their
    type, dictionary codes without a value, and maps with a key that is null."""
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        check_values(array.storage)
    elif pt.is_map(dtype):
        if array.keys.null_count:
            raise ValueError("a map has a key that is null")
        check_values(array.keys)
        check_values(array.items)
    elif is_list_like(dtype) or pt.is_fixed_size_list(dtype):
        check_values(array.flatten())
    elif pt.is_struct(dtype):
        for child in array.flatten():
            check_values(child)
    elif _has_forbidden_values(dtype):
        array.validate(full=True)


def _has_forbidden_values(dtype: pa.DataType) -> bool:
    is_text = pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype)
    is_small_decimal = pt.is_decimal(dtype) and dtype.bit_width <= 64
    return bool(is_text or is_small_decimal or pt.is_dictionary(dtype))
