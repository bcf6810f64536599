"""Arrow arrays as JSON text, by whole columns."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from format.nodes import binary_parts
from format.types import storage_type, to_storage

_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_SPECIAL: Final = r'[\\"\x00-\x1f]'
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def json_lines(batch: pa.RecordBatch) -> bytes:
    """One JSON object a row, each ending in a newline. Nulls are written as null."""
    if batch.num_rows == 0:
        return b""
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        start = "{" if index == 0 else ","
        parts.append(_text(f"{start}{json.dumps(name, ensure_ascii=False)}:"))
        parts.append(json_values(column))
    lines = pc.binary_join_element_wise(*parts, _text("}\n"), _text(""))
    offsets, data = binary_parts(lines)
    return bytes(data[int(offsets[0]) : int(offsets[-1])])


def json_values(array: pa.Array) -> pa.Array:
    """Each value as JSON text; large strings.

    Times are ISO 8601, decimals numbers, binaries base64, NaN and infinities null.
    """
    dtype = storage_type(array.type)
    array = to_storage(array)
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pt.is_nested(dtype) or pt.is_interval(dtype) or pt.is_duration(dtype):
        text = _nested_values(array)
    elif pt.is_string(dtype) or pt.is_large_string(dtype):
        text = _quoted(_escaped(array.cast(pa.large_string())))
    elif pt.is_binary(dtype) or pt.is_large_binary(dtype) or pt.is_fixed_size_binary(dtype):
        text = _nested_values(array)
    elif pt.is_floating(dtype):
        finite = pc.is_finite(array.cast(pa.float64()))
        text = pc.if_else(finite, array.cast(pa.large_string()), None)
    elif pt.is_timestamp(dtype) or pt.is_time(dtype) or pt.is_date(dtype):
        text = _quoted(_iso(array))
    else:
        text = array.cast(pa.large_string())
    return pc.fill_null(text, "null")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_text('"'), text, _text('"'), _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _SPECIAL)).as_py():
        return text
    if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
        # Rare control characters need \u escapes, which no kernel makes.
        values = [
            None if v is None else json.dumps(v, ensure_ascii=False)[1:-1] for v in text.to_pylist()
        ]
        return pa.array(values, pa.large_string())
    for plain, escape in _ESCAPES:
        text = pc.replace_substring(text, plain, escape)
    return text


def _iso(array: pa.Array) -> pa.Array:
    if not pt.is_timestamp(array.type):
        return array.cast(pa.large_string())
    utc = array.type.tz is not None
    naive = array.cast(pa.timestamp(array.type.unit)) if utc else array
    text = pc.replace_substring(naive.cast(pa.large_string()), " ", "T", max_replacements=1)
    if not utc:
        return text
    return pc.binary_join_element_wise(text, _text("Z"), _text(""))


def _nested_values(array: pa.Array) -> pa.Array:
    # Arrow has no kernel for nested JSON: this goes value by value.
    is_map = pt.is_map(array.type)
    texts = [
        None
        if value is None
        else json.dumps(_plain(dict(value) if is_map else value), ensure_ascii=False)
        for value in array.to_pylist()
    ]
    return pa.array(texts, pa.large_string())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
