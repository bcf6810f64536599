"""Writes values as JSON texts, for columns that have become columns of JSON, and reads JSON strings."""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep, list_parts, replaced
from lsm_fragment.arrays.nested import build_list
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.types import is_list_like, is_string

_MUST_ESCAPE: Final = r'[\\"\x00-\x1f]'
_CONTROL: Final = r"[\x00-\x1f]"
_CONTROLS: Final = tuple(map(chr, range(0x20)))
SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NULL: Final = "null"
_TEXT: Final = pa.large_string()


def has_json(dtype: pa.DataType) -> bool:
    """Returns whether `json_texts` takes a storage type: texts, booleans, integers, doubles, and lists of
    them, or of nulls."""
    if is_list_like(dtype):
        dtype = dtype.value_type
        if pt.is_null(dtype):
            return True
    is_number = pt.is_integer(dtype) or pt.is_float32(dtype) or pt.is_float64(dtype)
    return bool(is_number or pt.is_boolean(dtype) or is_string(dtype))


def json_texts(array: pa.Array) -> pa.Array:
    """Writes a storage array of a type of `has_json` as JSON, in strings; nulls stay.

    NaN and the infinities, which JSON lacks, become JSON's null, and so do nulls in lists.
    """
    if pt.is_dictionary(array.type):
        values = json_texts(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    array = plain(array)
    texts = _of_lists(array) if is_list_like(array.type) else _of_scalars(array)
    return texts.cast(pa.string())


def quoted(texts: pa.Array) -> pa.Array:
    """Writes texts as JSON strings, in large strings; nulls stay."""
    return joined(text_scalar('"'), escaped(texts.cast(_TEXT)), text_scalar('"'))


def string_values(texts: pa.Array) -> pa.Array:
    """Returns the texts of JSON strings, as large strings; null for other JSON, and if it is no Unicode."""
    texts = texts.cast(_TEXT)
    is_string = pc.starts_with(texts, '"')
    inside = pc.if_else(is_string, pc.utf8_slice_codeunits(texts, 1, -1), pa.scalar(None, _TEXT))
    is_escaped = np.asarray(pc.match_substring(inside, "\\").fill_null(False))
    if not is_escaped.any():
        return inside
    decoded = [_decoded(text) for text in keep(texts, is_escaped).to_pylist()]
    return replaced(inside, is_escaped, pa.array(decoded, _TEXT))


def _decoded(text: str) -> str | None:
    found = json.loads(text)
    return None if SURROGATE.search(found) else str(found)


def escaped(texts: pa.Array) -> pa.Array:
    """Escapes what JSON cannot have in a string: quotes, backslashes and control characters."""
    if not _any_match(texts, _MUST_ESCAPE):
        return texts
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if _any_match(texts, _CONTROL):
        for control in _CONTROLS:
            texts = pc.replace_substring(texts, control, json.dumps(control)[1:-1])
    return texts


def _of_scalars(array: pa.Array) -> pa.Array:
    if is_string(array.type):
        return quoted(array)
    if not pt.is_floating(array.type):
        return array.cast(_TEXT)
    return pc.if_else(pc.is_finite(array), float_texts(array), _NULL)


def _of_lists(array: pa.Array) -> pa.Array:
    counts, items = list_parts(array)
    texts = _of_scalars(items).fill_null(_NULL)
    lists = build_list(pa.large_list(_TEXT), counts, texts, None)
    found = joined(text_scalar("["), pc.binary_join(lists, text_scalar(",")), text_scalar("]"))
    return pc.if_else(array.is_valid(), found, None)


def float_texts(array: pa.Array) -> pa.Array:
    """Writes floats and doubles as large strings; nulls stay. All finite ones have a point or an exponent,
    which distinguishes them from integers."""
    texts = array.cast(_TEXT)
    looks_integer = pc.match_substring_regex(texts, "^-?[0-9]+$")
    return pc.if_else(looks_integer, joined(texts, text_scalar(".0")), texts)


def text_scalar(value: str) -> pa.Scalar:
    return pa.scalar(value, _TEXT)


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Concatenates the parts of each row's text; null where any part is null."""
    return pc.binary_join_element_wise(*parts, text_scalar(""))


def _any_match(texts: pa.Array, pattern: str) -> bool:
    return pc.any(pc.match_substring_regex(texts, pattern)).as_py() is True
