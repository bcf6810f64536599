"""Finds values that their types forbid: Arrow arrays can hold them, and readers refuse them."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.dictionaries import is_same_memory
from lsm_fragment.arrays.nested import fixed_items
from lsm_fragment.arrays.types import is_binary_like, is_list_like


class ValueCheck:
    """Checks successive batches; looks at a shared dictionary only once."""

    def __init__(self) -> None:
        self._dictionaries: dict[str, pa.Array] = {}

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises `ValueError` naming the column, where `check_values` raises one."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            try:
                if pt.is_dictionary(array.type):
                    self._check_dictionary(name, array.dictionary)
                    _check_codes(array)
                else:
                    check_values(array)
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from error

    def _check_dictionary(self, name: str, dictionary: pa.Array) -> None:
        known = self._dictionaries.get(name)
        if known is None or not is_same_memory(known, dictionary):
            check_values(dictionary)
            self._dictionaries[name] = dictionary  # kept, so that its address is not reused


def check_whole(batch: pa.RecordBatch) -> None:
    """Raises `pa.ArrowInvalid` naming the column if an array is malformed."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            _validate(name, array, error)
        raise


def _validate(name: str, array: pa.Array, whole: pa.ArrowInvalid) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        cause = str(error).rpartition("Invalid: ")[2]
        raise pa.ArrowInvalid(f"column {name!r}: {cause}") from whole


def check_values(array: pa.Array) -> None:
    """Raises `ValueError` for text that is not UTF-8, decimals beyond their type's precision, dictionary
    codes out of range, and maps with a null key."""
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        check_values(array.storage)
    elif pt.is_map(dtype):
        if array.keys.null_count:
            raise ValueError("a map has a key that is null")
        check_values(array.keys)
        check_values(array.items)
    elif pt.is_fixed_size_list(dtype):
        check_values(fixed_items(array))
    elif is_list_like(dtype):
        check_values(array.values)
    elif pt.is_struct(dtype):
        for child in array.flatten():
            check_values(child)
    elif pt.is_dictionary(dtype):
        check_values(array.dictionary)
        _check_codes(array)
    elif _has_forbidden_values(dtype) and not _is_ascii(array):
        array.validate(full=True)


def _is_ascii(array: pa.Array) -> bool:
    """Returns whether an array is well-formed ASCII text, which is fast to check."""
    if not is_binary_like(array.type) or not len(array):
        return False
    array.validate()
    offsets, data = binary_parts(array)
    return native.arrays.text.are_ascii(offsets, native.as_bytes(data))


def _check_codes(array: pa.DictionaryArray) -> None:
    size = len(array.dictionary)
    try:
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(size))
    except pa.ArrowIndexError:
        raise ValueError(f"a code has no value in its dictionary of {size:,}") from None


def _has_forbidden_values(dtype: pa.DataType) -> bool:
    is_text = pt.is_string(dtype) or pt.is_large_string(dtype) or pt.is_string_view(dtype)
    return bool(is_text or pt.is_decimal(dtype))
