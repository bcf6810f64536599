"""Replaces arrow.json values by strings of their text, so that Arrow can parse the lines.

Arrow's parser has no type for arbitrary values. msgspec finds the values as views of the lines; all of them
are replaced by strings at once. `jsontext` does the inverse for columns and struct fields of type arrow.json.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import json_values, text_bytes
from compactor.files.plain_text import joined

_NULL: Final = ord("n")
_OBJECT: Final = ord("{")
_MISSING: Final = msgspec.Raw(b"null")
_KINDS: Final = {"int": "number", "float": "number", "str": "string", "bool": "boolean"}


def with_json_as_text(lines: bytes, types: pa.Schema) -> bytes:
    """Replaces each arrow.json value of `types` in the lines by a string of its exact text; null stays.

    Raises one of `PROBLEMS` for a line that is not an object.
    """
    fields = [field for field in types if _keeps_json(field.type)]
    if not fields:
        return lines
    try:
        rows = _decoder(tuple(field.name for field in fields)).decode_lines(lines)
        values = list(_values(rows, fields))
    except msgspec.ValidationError as error:
        kind = str(error).partition("got `")[2].partition("`")[0]
        # `json_mistakes` parses this message of Arrow's.
        raise ValueError(f"Column() changed from object to {_KINDS.get(kind, kind)}") from None
    except RecursionError:
        raise ValueError("It is nested too deeply") from None
    return _replaced(lines, values)


def _keeps_json(dtype: pa.DataType) -> bool:
    if pt.is_struct(dtype):
        return any(_keeps_json(field.type) for field in dtype.fields)
    return isinstance(dtype, pa.JsonType)


@functools.lru_cache(maxsize=64)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Returns a decoder from objects to their unparsed values of these names, for `_values_of`.

    A record with fields `f0`, `f1` and so on is fastest, but its names must not need escapes in JSON;
    otherwise each object becomes a dictionary of all its values.
    """
    if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in names):
        return msgspec.json.Decoder(dict[str, msgspec.Raw])
    fields = [
        (f"f{place}", msgspec.Raw, msgspec.field(name=name, default=_MISSING))
        for place, name in enumerate(names)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, gc=False))


def _values_of(rows: list[Any], place: int, name: str) -> list[msgspec.Raw]:
    if rows and isinstance(rows[0], dict):
        return [row.get(name, _MISSING) for row in rows]
    return [getattr(row, f"f{place}") for row in rows]


def _values(rows: list[Any], fields: list[pa.Field]) -> Iterator[msgspec.Raw]:
    for place, field in enumerate(fields):
        found = _values_of(rows, place, field.name)
        if not pt.is_struct(field.type):
            yield from found
            continue
        inner = [child for child in field.type.fields if _keeps_json(child.type)]
        decode = _decoder(tuple(child.name for child in inner)).decode
        inside = [decode(raw) for raw in found if memoryview(raw)[0] == _OBJECT]
        yield from _values(inside, inner)


def _replaced(lines: bytes, values: list[msgspec.Raw]) -> bytes:
    buffers = [pa.py_buffer(value) for value in values]
    starts = np.array([buffer.address for buffer in buffers], np.int64)
    sizes = np.array([buffer.size for buffer in buffers], np.int64)
    whole = pa.py_buffer(lines)
    starts -= whole.address
    is_there = (starts >= 0) & (starts < len(lines))  # excludes `_MISSING`
    starts, sizes = starts[is_there], sizes[is_there]
    is_value = np.frombuffer(lines, np.uint8)[starts] != _NULL
    starts, sizes = starts[is_value], sizes[is_value]
    order = np.argsort(starts)
    bounds = np.zeros(2 * len(order) + 2, np.int64)
    bounds[1:-1:2] = starts[order]
    bounds[2:-1:2] = (starts + sizes)[order]
    bounds[-1] = len(lines)
    parts = pa.Array.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), whole]
    )
    places = np.arange(0, len(parts) - 1, 2)
    before, texts = (parts.take(pa.array(places + n)).cast(pa.large_string()) for n in (0, 1))
    return text_bytes(joined(before, json_values(texts))) + lines[int(bounds[-2]) :]
