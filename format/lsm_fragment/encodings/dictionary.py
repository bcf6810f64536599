"""DICTIONARY: values as codes over the distinct ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import (
    dictionary_codes,
    fixed_width_bytes,
    integer_array,
    valid_mask,
)
from lsm_fragment.arrays.dictionaries import with_distinct_values
from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.templated import joined, numbers_of, texts_of
from lsm_fragment.arrays.types import is_templated, may_be_coded, may_stay_coded
from lsm_fragment.encodings.allowance import may_be_large
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node, with_nulls_filled, with_validity
from lsm_fragment.encodings.packed import Survey
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape
from lsm_fragment.encodings.samples import (
    CODEC_FRACTION,
    DISTINCT_DIVISOR,
    DISTINCT_LISTS_DIVISOR,
    UNSAMPLED_VALUES,
    count_coded_values,
    count_codes,
    count_distinct,
    count_values,
    count_values_of_part,
    dictionary_pays,
    middle_values,
    number_values,
)

ENCODING = Encoding.DICTIONARY
SHAPE = NodeShape(children=2)
_LENGTH_BYTES: Final = 4
_LOOKED_UP_BYTES: Final = 16
"""Gather values of up to this width while decoding. Expand wider ones afterwards: nulls then cost nothing."""


EncodeValues = Callable[[pa.Array], Node]
"""Encodes the values of a dictionary without a further dictionary."""


class Coding(Enum):
    """How much of the choice of a dictionary is already made."""

    OPEN = auto()
    """Nothing: the dictionary of a coded array may have duplicates, and a plain array may be coded."""
    DISTINCT = auto()
    """The values of the dictionary are distinct; a plain array stays plain."""
    FINAL = auto()
    """Also, the dictionary or the templates are exactly those in use, in the order of their first use."""


def encode_by_small_dictionary(
    array: pa.Array, seen: Survey, undivided: EncodeValues
) -> Node | None:
    """Encodes numbers by a dictionary if codes and dictionary take fewer bits than packed numbers."""
    max_distinct = 1 << min(31, int(CODEC_FRACTION * seen.bits))
    coded = _by_sampled_dictionary(array, max_distinct)
    if coded is None:
        return None
    distinct = len(coded.dictionary)
    bits = len(array) * (distinct - 1).bit_length() + distinct * array.type.bit_width
    return (
        encode_coded(coded, undivided) if bits < CODEC_FRACTION * seen.bits * len(array) else None
    )


def by_dictionary(array: pa.Array) -> pa.Array:
    """Dictionary-codes an array, values in order of use, if they repeat enough; otherwise returns it
    unchanged.

    Applies to strings, binaries, lists and maps; for other types `encode_array` decides.
    """
    if is_templated(array.type):
        sample = middle_values(array)
        for part in (numbers_of, texts_of):
            if not dictionary_pays(
                array, sample, DISTINCT_DIVISOR, partial(count_values_of_part, part)
            ):
                return array  # rows repeat no more than their variables do
        return _by_sampled_dictionary(joined(array)) or array
    if may_stay_coded(array.type):
        return _by_sampled_dictionary(array) or array
    return array


def recoded(array: pa.Array) -> pa.Array:
    """Chooses anew for a coded array: returns what `by_dictionary` would return for its decoded values."""
    divisor = DISTINCT_LISTS_DIVISOR if pt.is_nested(array.dictionary.type) else DISTINCT_DIVISOR
    present, is_part = len(array) - array.null_count, len(array) > UNSAMPLED_VALUES
    if present < 2:
        return decoded(array)
    are_many = len(array.dictionary) * divisor > present
    # As in `by_dictionary`, a sample decides whether to hash all values.
    if (
        are_many
        and is_part
        and not dictionary_pays(array, middle_values(array), divisor, count_coded_values)
    ):
        return decoded(array)
    if are_many or not _is_distinct(array.dictionary):
        array = with_distinct_values(array)
    array = in_order_of_use(array)
    if len(array.dictionary) * divisor > present:
        return decoded(array)
    pays = not is_part or dictionary_pays(array, middle_values(array), divisor, count_codes)
    return array if pays else decoded(array)


def encode_by_sampled_dictionary(array: pa.Array, undivided: EncodeValues) -> Node | None:
    """Encodes values by a dictionary; None if they do not repeat enough."""
    coded = _by_sampled_dictionary(array)
    return None if coded is None else encode_coded(coded, undivided)


def _by_sampled_dictionary(array: pa.Array, max_distinct: int = sys.maxsize) -> pa.Array | None:
    """Dictionary-codes an array if its values repeat enough and at most `max_distinct` are distinct; else
    None. A sample decides whether to hash all values."""
    present = len(array) - array.null_count
    if present < 2:
        return None
    divisor = DISTINCT_LISTS_DIVISOR if pt.is_nested(array.type) else DISTINCT_DIVISOR
    if len(array) > UNSAMPLED_VALUES and not dictionary_pays(
        array, middle_values(array), divisor, count_values, max_distinct
    ):
        return None
    return _coded_values(array, min(max_distinct, present // divisor))


def _coded_values(array: pa.Array, max_distinct: int) -> pa.Array | None:
    """Dictionary-codes values; None if more than `max_distinct` are distinct."""
    found = number_values(array, max_distinct)
    if found is None:
        return None
    codes, firsts = found
    return pa.DictionaryArray.from_arrays(
        integer_array(codes, valid_mask(array)), take(array, firsts), safe=False
    )


def is_worth_its_dictionary(array: pa.Array, *, is_distinct: bool) -> tuple[pa.Array, bool]:
    """Makes the values of a coded array distinct. Returns the array and whether it should stay coded."""
    if not (is_distinct or _is_distinct(array.dictionary)):
        array = with_distinct_values(array)
    divisor = DISTINCT_LISTS_DIVISOR if pt.is_nested(array.dictionary.type) else DISTINCT_DIVISOR
    return array, len(array.dictionary) * divisor <= len(array) - array.null_count


def _is_distinct(values: pa.Array) -> bool:
    """Returns whether values are distinct. A hash collision gives False."""
    return values.null_count == 0 and count_distinct(values) == len(values)


def encode_coded(array: pa.Array, undivided: EncodeValues) -> Node:
    """Encodes a dictionary-coded array whose values are distinct and in use."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    if valid is not None:
        codes = with_nulls_filled(codes, valid)
    children = (encode_ints(codes), undivided(array.dictionary))
    return with_validity(Encoding.DICTIONARY, len(array), valid, [], children=children)


def fits(dtype: pa.DataType) -> bool:
    return may_be_coded(dtype)


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    codes = reader.cursor.child_integers(length)
    values = _take_values(reader, dtype, length)
    width, count = fixed_width_bytes(dtype), len(values)
    if count and width is not None and width <= _LOOKED_UP_BYTES:
        buffers = [validity, codes.looked_up(values.buffers()[1], count, width)]
        return pa.Array.from_buffers(dtype, length, buffers, nulls)
    buffers = [validity, codes.codes(count)]
    indices = pa.Array.from_buffers(pa.int32(), length, buffers, nulls)
    array = pa.DictionaryArray.from_arrays(indices, values, safe=False)
    if not (keep.dictionary and may_stay_coded(dtype)):
        # An exact size: rough bounds of many fields would add up to a refusal.
        reader.allowance.charge(_expanded_bytes(array))
        return decoded(array)
    if may_be_large(values, length):
        reader.allowance.check_kept(_expanded_bytes(array))
    return array


def _take_values(reader: ChunkReader, dtype: pa.DataType, length: int) -> pa.Array:
    """Takes the node of the distinct values."""
    count = reader.cursor.next_length
    if count > length:
        raise ValueError("a dictionary with more entries than values")
    if reader.cursor.next_encoding == Encoding.DICTIONARY:
        raise ValueError("a dictionary of dictionaries")
    values = reader.decode(dtype, count)
    if values.null_count:
        raise ValueError("a null in a dictionary")
    return values


def _expanded_bytes(array: pa.Array) -> int:
    """Returns the size of a dictionary-coded array when decoded; nulls count nothing."""
    return total_bytes(array) - _LENGTH_BYTES * int(array.null_count)
