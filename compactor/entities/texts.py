"""Converts values of any type to canonical JSON texts in Arrow arrays, the form in which entities are
compared, joined and stored.

Texts are equal if and only if they are equal values of the same type. They have no whitespace, object keys in
code point order, and strings with the fewest escapes that JSON allows. Integers are exact; other numbers are
the shortest text of their double, with a point or an exponent (so 1 is not 1.0). An Arrow null is a missing
value, the text `null` is JSON's null. All arrays here are large strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.entities.moments import without_units
from compactor.files.jsontext import checked_json, json_values, text_bytes
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import with_nulls_of
from lsm_fragment.arrays.json_texts import joined, text_scalar
from lsm_fragment.arrays.moves import replaced
from lsm_fragment.arrays.nested import build_list

I64 = npt.NDArray[np.int64]
TEXT: Final = pa.large_string()

# Texts that are certainly canonical. All others are decoded and re-encoded.
_CANONICAL: Final = r'^(?:"[^"\\\x00-\x1f]*"|-?[1-9][0-9]{0,17}|0|true|false|null)$'
_NULL: Final = "null"
_BLANK: Final = r'^"(?:[\s\pZ\x{feff}\x{200b}]|\\[bfnrt]|\\u00[01][0-9a-f])*"$'
"""JSON strings without a character that shows."""
_PART_TEXTS: Final = 65_536
_PART_BYTES: Final = 8 << 20
"""Target size of texts decoded at a time, at least one."""

_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_lists: Final = msgspec.json.Decoder(list[list[msgspec.Raw]])
_objects: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_strings: Final = msgspec.json.Decoder(list[str])
_anything: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder(order="sorted")


def canonical(texts: pa.Array) -> pa.Array:
    """Makes JSON texts canonical; nulls stay. Each text must be exactly one value.

    Raises `ValueError` for numbers beyond a double and for invalid Unicode.
    """
    texts = texts.cast(TEXT)
    is_odd = np.asarray(pc.fill_null(pc.invert(pc.match_substring_regex(texts, _CANONICAL)), False))
    odd = np.flatnonzero(is_odd)
    if not len(odd):
        return texts
    written = [
        texts_of(_raws.decode(_encoder.encode(_anything.decode(part))))
        for part in _parts(texts.take(pa.array(odd)))
    ]
    return replaced(texts, is_odd, pa.concat_arrays(written))


def from_arrow(array: pa.Array) -> pa.Array:
    """Converts any Arrow array to canonical texts; nulls stay null.

    Columns of type arrow.json hold JSON texts already. Times have the shortest text, whatever their unit.
    Raises `UnwritableError` for types without a JSON form, `ValueError` for invalid JSON in an arrow.json
    column.
    """
    if isinstance(array.type, pa.JsonType):
        return canonical(checked_json(array.storage))
    return canonical(with_nulls_of(array, json_values(without_units(array))))


def texts_of(raws: Sequence[Any]) -> pa.Array:
    """Converts msgspec raw values to texts; None to null."""
    data = [None if raw is None else bytes(raw) for raw in raws]
    return pa.array(data, pa.large_binary()).cast(TEXT)


def texts_at(texts: pa.Array, at: I64) -> pa.Array:
    """Takes texts by position; -1 gives null."""
    return texts.take(pa.array(at, mask=at < 0))


def codes_of(items: pa.Array) -> I64:
    """Returns a number for each item, the same for equal ones."""
    return np.asarray(items.dictionary_encode().indices).astype(np.int64)


def is_list(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.starts_with(texts, "["), False))


def is_null(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns which texts are JSON's null, not missing."""
    return np.asarray(pc.fill_null(pc.equal(texts, text_scalar(_NULL)), False))


def elements(texts: pa.Array) -> tuple[I64, pa.Array]:
    """Splits lists into elements; any other value is one element. No text may be missing.

    Returns the element count per text, shape (texts,), and all elements in order.
    """
    lists = is_list(texts)
    counts = np.ones(len(texts), np.int64)
    if not lists.any():
        return counts, texts
    sizes: list[int] = []
    found = [pa.array([], TEXT)]
    for part in _parts(texts.filter(pa.array(lists))):
        decoded = _lists.decode(part)
        sizes.extend(map(len, decoded))
        found.append(texts_of([raw for items in decoded for raw in items]))
    counts[lists] = sizes
    inside = pa.concat_arrays(found)
    starts = np.cumsum(counts) - counts
    from_list = np.repeat(lists, counts)
    at = np.empty(int(counts.sum()), np.int64)
    at[from_list] = len(texts) + np.arange(len(inside))
    at[starts[~lists]] = np.flatnonzero(~lists)
    return counts, pa.concat_arrays([texts, inside]).take(pa.array(at))


def members(texts: pa.Array, name: str) -> pa.Array:
    """Returns the value of a key in canonical object texts; null where missing."""
    found = [texts_of([item.get(name) for item in _objects.decode(part)]) for part in _parts(texts)]
    return pa.concat_arrays([pa.array([], TEXT), *found])


def quoted(strings: pa.Array) -> pa.Array:
    """Encodes strings as JSON texts; nulls stay."""
    strings = strings.cast(TEXT)
    return canonical(with_nulls_of(strings, json_values(strings)))


def is_string(texts: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.starts_with(texts, '"'), False))


def is_blank(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns which texts are strings without a character that shows. No text may be missing."""
    return np.asarray(pc.match_substring_regex(texts, _BLANK))


def unquoted(texts: pa.Array) -> pa.Array:
    """Decodes JSON string texts; nulls stay."""
    inside = pc.utf8_slice_codeunits(texts, 1, -1)
    escaped = np.asarray(pc.fill_null(pc.match_substring(texts, "\\"), False))
    if not escaped.any():
        return inside
    strings = [
        pa.array(_strings.decode(part), TEXT) for part in _parts(texts.filter(pa.array(escaped)))
    ]
    return replaced(inside, escaped, pa.concat_arrays(strings))


def object_texts(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Returns one object per row, with sorted keys and without missing values."""
    parts = [
        joined(text_scalar(json.dumps(name, ensure_ascii=False) + ":"), columns[name])
        for name in sorted(columns)
    ]
    if not parts:
        return pa.repeat(text_scalar("{}"), rows)
    # Arrow drops rows whose parts are all null, so start with a part that is never null.
    first = pa.repeat(text_scalar(""), rows)
    inside = pc.binary_join_element_wise(first, *parts, text_scalar(","), null_handling="skip")
    return joined(text_scalar("{"), pc.utf8_slice_codeunits(inside, 1), text_scalar("}"))


def list_texts(counts: I64, items: pa.Array) -> pa.Array:
    """Returns one list per count, taking that many items in order."""
    lists = build_list(pa.large_list(TEXT), counts, items, None)
    return joined(text_scalar("["), pc.binary_join(lists, text_scalar(",")), text_scalar("]"))


def _parts(texts: pa.Array) -> Iterator[bytes]:
    """Yields the texts in lists, some at a time, to bound the memory for decoding."""
    sizes = np.asarray(pc.binary_length(texts)).astype(np.int64)
    number = (np.cumsum(sizes) - sizes) // _PART_BYTES
    ends = np.append(np.flatnonzero(np.diff(number)) + 1, len(texts))
    cuts = np.union1d(np.arange(0, len(texts), _PART_TEXTS), ends).tolist()
    for start, end in pairwise(cuts):
        part = texts.slice(start, end - start)
        yield text_bytes(list_texts(np.array([len(part)]), part))
