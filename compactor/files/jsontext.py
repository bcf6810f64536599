"""Renders Arrow arrays as JSON text, whole columns at a time, nested types level by level.

Dates, times and timestamps are ISO 8601 strings (with Z where the type has a zone), decimals strings (a
number would be read back as a rounded double), binaries base64, durations integers in the type's unit,
intervals ISO 8601 durations. Integers are exact; NaN and the infinities, which JSON lacks, are null. Maps
with string keys may be objects; all others, and those that are to be read back, are lists of {"key": ...,
"value": ...}. Maps that are to be read back can't have NaN or an infinity as a key, because no key may be
null. Columns of the type arrow.json, and such fields of structs, are the JSON that they hold.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.plain_text import UnwritableError, plain_text
from compactor.files.text_rows import TextColumn, scalar_texts, text_rows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.json_texts import joined, quoted, string_values, text_scalar
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_string
from lsm_fragment.native.arrays.text_rows import Cell

_JSON: Final = (
    r'^[ \t\r\n]*(?:["\[{]|'
    r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)[ \t\r\n]*$)"
)
"""Texts that are JSON, or begin like an object, a list or a string."""
_raws: Final = msgspec.json.Decoder(msgspec.Raw)


def json_lines(
    batch: pa.RecordBatch, *, map_objects: bool = True, expanded: str | None = None
) -> bytes:
    """Returns one line with an object per row. Raises `UnwritableError` if a column has no JSON form.

    map_objects: whether maps with string keys become objects, which readers do not recognise as maps.
    expanded: a column of maps from names to JSON texts, which become additional fields. Raises `ValueError`
    if a
        name is also a column.
    """
    if batch.num_rows == 0:
        return b""
    if expanded is not None and expanded in batch.schema.names:
        objects = _expanded_objects(batch, expanded, map_objects)
        return text_bytes(joined(objects, text_scalar("\n")))
    columns, start = [], "{"
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        before = f"{start}{json.dumps(name, ensure_ascii=False)}:".encode()
        columns.append(_field(array, before, map_objects))
        start = ","
    return text_rows(columns, batch.num_rows, b"}\n" if columns else b"{}\n")


def _field(array: pa.Array, before: bytes, map_objects: bool) -> TextColumn:
    if isinstance(array.type, pa.JsonType):
        texts, kind, quote = checked_json(array.storage), Cell.PLAIN, b""
    elif pt.is_nested(array.type):
        texts, kind, quote = json_values(array, map_objects=map_objects), Cell.PLAIN, b""
    else:
        array = to_storage(array)
        coded = array if pt.is_dictionary(array.type) else None
        texts, kind, quote = _texts(array if coded is None else coded.dictionary, map_objects)
        if coded is not None and texts.null_count:  # NaN is null
            texts = texts.take(coded.indices)
        elif coded is not None:
            texts = pa.DictionaryArray.from_arrays(coded.indices, texts, safe=False)
    return TextColumn(texts=texts, kind=kind, quote=quote, before=before, null=b"null")


def _texts(array: pa.Array, map_objects: bool) -> tuple[pa.Array, Cell, bytes]:
    """Returns texts, what is still to be done to them, and their quotes."""
    dtype = array.type
    if pt.is_nested(dtype):
        return json_values(array, map_objects=map_objects), Cell.PLAIN, b""
    texts, kind = scalar_texts(array)
    if pt.is_floating(dtype):
        is_finite = pc.is_finite(array)
        if pc.all(is_finite).as_py() is False:
            texts = pc.if_else(is_finite, texts, None)
    if is_string(dtype):
        kind = Cell.ESCAPED
    is_bare = pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_boolean(dtype)
    return texts, kind, b"" if is_bare or pt.is_duration(dtype) else b'"'


def _expanded_objects(batch: pa.RecordBatch, expanded: str, map_objects: bool) -> pa.Array:
    known = batch.drop_columns([expanded])
    counts, items = list_parts(to_storage(batch.column(expanded)))
    keys, values = items.flatten()
    taken = keys.filter(pc.is_in(keys, value_set=pa.array(known.schema.names, keys.type)))
    if len(taken):
        raise ValueError(
            f"field {taken[0].as_py()!r} of {expanded} is the name of a column too: rename the column"
        )
    values = values.cast(pa.large_string()).fill_null("null")
    texts = joined(json_values(keys), text_scalar(":"), values)
    lists = build_list(pa.large_list(pa.large_string()), counts, texts, None)
    inside = pc.binary_join(lists, text_scalar(","))
    if not known.num_columns:
        return joined(text_scalar("{"), inside, text_scalar("}"))
    start = pc.utf8_slice_codeunits(
        json_values(known.to_struct_array(), map_objects=map_objects), 0, -1
    )
    comma = pc.if_else(pc.equal(pc.binary_length(inside), 0), "", ",").cast(pa.large_string())
    return joined(start, comma, inside, text_scalar("}"))


def text_bytes(lines: pa.Array) -> bytes:
    """Concatenates texts (strings without nulls)."""
    offsets, data = binary_parts(lines)
    return bytes(data[int(offsets[0]) : int(offsets[-1])])


def json_values(array: pa.Array, *, map_objects: bool = False) -> pa.Array:
    """Renders each value as JSON text in large strings; nulls as "null".

    Raises `UnwritableError`.
    """
    if isinstance(array.type, pa.JsonType):
        return checked_json(array.storage).fill_null("null")
    if not pt.is_struct(
        array.type
    ):  # A struct's storage type does not show which fields hold JSON.
        array = to_storage(array)
    dtype = array.type
    if pt.is_dictionary(dtype):
        text = json_values(array.dictionary, map_objects=map_objects).take(array.indices)
    elif pt.is_struct(dtype):
        text = _object_text(array, map_objects)
    elif pt.is_nested(dtype) and not pt.is_union(dtype) and not pt.is_run_end_encoded(dtype):
        text = _array_text(array, map_objects)
    elif pt.is_floating(dtype):
        text = pc.if_else(pc.is_finite(array), plain_text(array), None)
    elif is_string(dtype):
        text = quoted(plain_text(array))
    elif pt.is_integer(dtype) or pt.is_boolean(dtype) or pt.is_duration(dtype):
        text = plain_text(array)
    else:
        text = _quoted(plain_text(array))
    return pc.if_else(array.is_valid(), text, "null").fill_null("null")


def checked_json(array: pa.Array) -> pa.Array:
    """Returns arrow.json texts as large strings, each on one line; nulls stay.

    Raises `UnwritableError` for a text that is not exactly one JSON value.
    """
    texts = pc.ascii_trim_whitespace(array.cast(pa.large_string()))
    if pc.any(pc.match_substring_regex(texts, "[\r\n]")).as_py():
        texts = pc.replace_substring_regex(texts, "[\r\n]", " ")
    there = texts.drop_null()
    try:
        values = [
            bytes(value)
            for value in _raws.decode_lines(text_bytes(joined(there, text_scalar("\n"))))
        ]
    except ValueError as error:
        raise UnwritableError(f"a text of an arrow.json column is not JSON: {error}") from error
    if pa.array(values, pa.large_binary()) != there.cast(pa.large_binary()):
        raise UnwritableError("a text of an arrow.json column is not one JSON value")
    return texts


def cells_of_json(texts: pa.Array) -> pa.Array:
    """Returns cells for values of arrow.json, in large strings; `json_of_cells` restores them.

    A JSON string is its text, unless that looks like JSON.
    """
    texts = texts.cast(pa.large_string())
    values = string_values(texts)
    is_plain = pc.and_(pc.invert(_looks_like_json(values)), pc.equal(quoted(values), texts))
    return pc.if_else(is_plain.fill_null(False), values, texts)


def json_of_cells(cells: pa.Array) -> pa.Array:
    """Returns the values of arrow.json of cells: what does not look like JSON is a text."""
    cells = cells.cast(pa.large_string())
    return pc.if_else(_looks_like_json(cells), cells, quoted(cells))


def _looks_like_json(texts: pa.Array) -> pa.Array:
    return pc.match_substring_regex(texts, _JSON)


def _object_text(array: pa.Array, map_objects: bool) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for name, child in zip(array.type.names, array.flatten(), strict=True):
        separator = "," if parts else "{"
        parts.append(text_scalar(f"{separator}{json.dumps(name, ensure_ascii=False)}:"))
        parts.append(json_values(child, map_objects=map_objects))
    if not parts:
        return pa.repeat(text_scalar("{}"), len(array))
    return joined(*parts, text_scalar("}"))


def _array_text(array: pa.Array, map_objects: bool) -> pa.Array:
    counts, items = list_parts(array)
    brackets = "[]"
    if pt.is_map(array.type):
        keys, values = items.flatten()
        if map_objects and is_string(keys.type):
            brackets = "{}"
            values = json_values(values, map_objects=True)
            texts = joined(json_values(keys), text_scalar(":"), values)
        else:
            if not map_objects:
                _check_keys(keys)
            pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
            texts = json_values(pairs, map_objects=map_objects)
    else:
        texts = json_values(items, map_objects=map_objects)
    lists = build_list(pa.large_list(pa.large_string()), counts, texts, None)
    inside = pc.binary_join(lists, text_scalar(","))
    return joined(text_scalar(brackets[0]), inside, text_scalar(brackets[1]))


def _check_keys(keys: pa.Array) -> None:
    keys = to_storage(keys)
    if pt.is_floating(keys.type) and pc.all(pc.is_finite(keys)).as_py() is False:
        raise UnwritableError(
            "a map has NaN or an infinity as a key, which JSON lacks: write Parquet, or leave the column out"
        )


def _quoted(text: pa.Array) -> pa.Array:
    return joined(text_scalar('"'), text, text_scalar('"'))
