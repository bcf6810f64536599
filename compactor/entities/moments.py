"""Texts of timestamps and times of day that are equal for equal moments, whatever the unit of their type."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.plain_text import plain_text
from compactor.files.problems import PROBLEMS
from compactor.files.text_values import from_wire
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import joined, text_scalar
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list, build_struct, null_mask
from lsm_fragment.failing import null_where_failing

_ISO: Final = (
    r"^(?:[0-9]{4}|[-+][0-9]{4,12})-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[-+][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
_FRACTION: Final = r"^[^.]*(?:\.([0-9]*?)0*(?:Z|[-+].*)?)?$"


class Moments(NamedTuple):
    """Instants, null where a text is none, in two parts that have room for all of them."""

    seconds: pa.Array
    """Timestamps in UTC."""
    fractions: pa.Array
    """The digits behind the point, without zeros at the end."""


def without_units(array: pa.Array) -> pa.Array:
    """Replaces timestamps and times of day, nested ones too, by their shortest ISO 8601 texts."""
    dtype = array.type
    if not _has_units(dtype):
        return array
    if pt.is_dictionary(dtype):
        return without_units(array.dictionary_decode())
    if pt.is_struct(dtype):
        children = list(map(without_units, array.flatten()))
        names = [field.name for field in dtype.fields]
        texts = pa.struct(
            [pa.field(*f) for f in zip(names, (c.type for c in children), strict=True)]
        )
        return build_struct(texts, len(array), children, null_mask(array))
    if pt.is_nested(dtype):
        counts, items = list_parts(array, without_units)
        return build_list(pa.large_list(items.type), counts, items, null_mask(array))
    return _shortest(plain_text(array))


def moments_of(strings: pa.Array) -> Moments:
    """Reads ISO 8601 texts as instants. A time without a zone is in UTC, and a date is its midnight."""
    strings = pc.utf8_trim_whitespace(strings)
    strings = pc.ascii_upper(_where(pc.match_substring_regex(strings, _ISO), strings))
    whole = pc.replace_substring_regex(strings, r"\.[0-9]+", "")
    convert = partial(from_wire, dtype=pa.timestamp("s", "UTC"))
    seconds = null_where_failing(whole, convert, PROBLEMS)
    fractions = pc.replace_substring_regex(strings, _FRACTION, r"\1")
    return Moments(seconds, _where(seconds.is_valid(), fractions))


def instants(strings: pa.Array) -> pa.Array:
    """Reads texts as `moments_of` does, and returns their shortest texts in UTC; null for all others."""
    seconds, fractions = moments_of(strings)
    whole = pc.utf8_slice_codeunits(plain_text(seconds), 0, -1)
    return _shortest(joined(whole, text_scalar("."), fractions, text_scalar("Z")))


def _where(mask: pa.Array, strings: pa.Array) -> pa.Array:
    return pc.if_else(mask, strings, pa.scalar(None, strings.type))


def _shortest(texts: pa.Array) -> pa.Array:
    """Takes zeros off the end of fractions of a second."""
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+(Z?)$", r"\1\2")
    return pc.replace_substring_regex(texts, r"\.(Z?)$", r"\1")


def _has_units(dtype: pa.DataType) -> bool:
    if pt.is_dictionary(dtype):
        return _has_units(dtype.value_type)
    if pt.is_map(dtype):
        return _has_units(dtype.key_type) or _has_units(dtype.item_type)
    if pt.is_nested(dtype):
        return any(_has_units(dtype.field(n).type) for n in range(dtype.num_fields))
    return bool(pt.is_timestamp(dtype) or pt.is_time(dtype))
