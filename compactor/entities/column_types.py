"""Gives columns of canonical JSON texts the types of their values.

A column has a type if all its values have it: integers of 64 bits, doubles, texts, booleans, and lists of one
of them, which may be empty and hold nulls. All other columns are JSON. Texts of times stay texts, since their
form tells a date from a midnight and a time with a zone from one without.
"""

from __future__ import annotations

from enum import IntFlag, auto
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.entities.texts import I64, TEXT, elements, is_list, is_null, unquoted
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.nested import build_list, null_mask

JSON: Final = pa.json_()
_MAX_DIGITS: Final = 18
"""Integers of so few digits certainly have 64 bits."""
_TEXT_LIST: Final = r'^\["[^"\\]*"(?:,"[^"\\]*")*\]$'
_ODD_LIST: Final = r"\\|null"
"""What lists have that are to be decoded."""
_INT_LIST: Final = r"^\[-?[0-9]{1,18}(?:,-?[0-9]{1,18})*\]$"


class Kinds(IntFlag):
    """The kinds of values that a column has."""

    BOOL = auto()
    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    ODD = auto()
    """Objects, JSON's null, integers of more than 64 bits."""
    LIST = auto()
    BOOLS = auto()
    """Lists with such elements, as the next four."""
    INTS = auto()
    FLOATS = auto()
    TEXTS = auto()
    ODDS = auto()


NO_KINDS: Final = Kinds(0)
_SCALARS: Final = {
    Kinds.BOOL: pa.bool_(),
    Kinds.INT: pa.int64(),
    Kinds.FLOAT: pa.float64(),
    Kinds.TEXT: pa.string(),
}
_AS_ITEM: Final = {
    Kinds.BOOL: Kinds.BOOLS,
    Kinds.INT: Kinds.INTS,
    Kinds.FLOAT: Kinds.FLOATS,
    Kinds.TEXT: Kinds.TEXTS,
    Kinds.ODD: Kinds.ODDS,
    Kinds.LIST: Kinds.ODDS,
}
_TYPES: Final = {
    NO_KINDS: pa.null(),
    **_SCALARS,
    Kinds.LIST: pa.list_(pa.null()),
    **{Kinds.LIST | _AS_ITEM[kind]: pa.list_(dtype) for kind, dtype in _SCALARS.items()},
}
_NO_ITEMS: Final = pa.list_(pa.null())
"""The type of lists that are empty or hold nulls alone; it widens to all other lists."""


def kinds_in(texts: pa.Array) -> Kinds:
    """Returns the kinds of canonical texts, none of which is missing."""
    found = _kinds_of_each(texts)
    lists = texts.filter(pc.starts_with(texts, "[")) if Kinds.LIST in found else texts.slice(0, 0)
    return found | kinds_in_lists(lists) if len(lists) else found


def kinds_in_lists(texts: pa.Array) -> Kinds:
    """Returns the kind of lists of these texts, where lists among them stand for their elements."""
    if not is_list(texts).any():
        return kinds_of_lists(texts)
    found = Kinds.LIST
    for pattern, kind in ((_TEXT_LIST, Kinds.TEXTS), (_INT_LIST, Kinds.INTS)):
        is_plain = pc.match_substring_regex(texts, pattern)
        if is_plain.true_count:
            found |= kind
            texts = texts.filter(pc.invert(is_plain))
    return found | kinds_of_lists(elements(texts)[1])


def kinds_of_lists(items: pa.Array) -> Kinds:
    """Returns the kind of lists that have these elements."""
    found = Kinds.LIST
    for kind in _kinds_of_each(items.filter(pa.array(~is_null(items)))):
        found |= _AS_ITEM[kind]
    return found


def _kinds_of_each(texts: pa.Array) -> Kinds:
    """Returns the kinds of texts, without those of the elements of lists."""
    if not len(texts):
        return NO_KINDS
    offsets, data = binary_parts(texts)
    firsts = np.frombuffer(data, np.uint8)[offsets[:-1]]
    there = set(bytes(np.unique(firsts)))
    found = NO_KINDS
    for letters, kind in (
        (b"tf", Kinds.BOOL),
        (b'"', Kinds.TEXT),
        (b"{n", Kinds.ODD),
        (b"[", Kinds.LIST),
    ):
        if not there.isdisjoint(letters):
            found |= kind
    if not there.isdisjoint(b"-0123456789"):
        is_number = (firsts <= ord("9")) & (firsts != ord('"'))
        found |= _kinds_of_numbers(texts if is_number.all() else texts.filter(pa.array(is_number)))
    return found


def _kinds_of_numbers(texts: pa.Array) -> Kinds:
    is_float = pc.match_substring_regex(texts, "[.eE]")
    found = Kinds.FLOAT if is_float.true_count else NO_KINDS
    whole = texts.filter(pc.invert(is_float))
    if not len(whole):
        return found
    long = whole.filter(pc.greater(pc.binary_length(whole), _MAX_DIGITS)).to_pylist()
    fits = [-(1 << 63) <= int(text) < 1 << 63 for text in long]
    if len(long) < len(whole) or any(fits):
        found |= Kinds.INT
    return found if all(fits) else found | Kinds.ODD


def column_type(kinds: Kinds, known: pa.DataType | None = None) -> pa.DataType:
    """Returns the type of a column with these kinds of values. known: the type that it has in the table."""
    dtype = _TYPES.get(kinds, JSON)
    if known is None or pt.is_null(known) or known == dtype:
        return dtype
    if pt.is_null(dtype):
        return known
    if pt.is_list(known) and pt.is_list(dtype):
        if dtype == _NO_ITEMS:
            return known
        if known == _NO_ITEMS:
            return dtype
    return JSON


def type_in(table: pa.Schema, name: str, kinds: Kinds) -> pa.DataType:
    """Returns the type that a property gets in a table, by its shown columns."""
    place = table.get_field_index(name)
    return column_type(kinds, None if place < 0 else table.field(place).type)


def typed(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts canonical texts to a type of `column_type` that has them all; nulls stay."""
    if isinstance(dtype, pa.JsonType):
        return pa.ExtensionArray.from_storage(dtype, texts.cast(pa.string()))
    if not pt.is_list(dtype):
        return _scalars(texts, dtype)
    mask, texts = null_mask(texts), texts.fill_null("[]")
    is_odd = pc.match_substring_regex(texts, _ODD_LIST)
    if is_odd.true_count:
        counts, items = elements(texts)
        items = pc.if_else(pa.array(is_null(items)), pa.scalar(None, TEXT), items)
        return build_list(dtype, counts, _scalars(items, dtype.value_type), mask)
    return build_list(dtype, *_split(texts, dtype.value_type), mask)


def _split(texts: pa.Array, dtype: pa.DataType) -> tuple[I64, pa.Array]:
    """Returns the number of elements of each list, and all elements.

    texts: lists without backslashes, so that no text in them has quotes.
    """
    has_any = np.asarray(pc.not_equal(texts, "[]"))
    ends, separator = (2, '","') if pt.is_string(dtype) else (1, ",")
    inside = pc.utf8_slice_codeunits(texts.filter(pa.array(has_any)), ends, -ends)
    lists = pc.split_pattern(inside, separator)
    counts = np.zeros(len(texts), np.int64)
    counts[has_any] = np.asarray(lists.value_lengths())
    items = lists.flatten()
    return counts, items.cast(dtype) if pt.is_string(dtype) else _scalars(items, dtype)


def _scalars(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pt.is_boolean(dtype):
        return pc.equal(texts, "true")
    if pt.is_string(dtype):
        return unquoted(texts).cast(dtype)
    return pa.nulls(len(texts), dtype) if pt.is_null(dtype) else texts.cast(dtype)
