"""Replaces values that a column keeps as JSON by strings of their text, so that Arrow can parse the lines.

Arrow's parser has no type for a value of any kind. msgspec finds the values as views of the lines; they are
replaced by strings in all lines at once. This is the inverse of what `jsontext` writes for columns of the
type arrow.json, and for such fields of structs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import json_values, text_bytes
from compactor.files.plain_text import joined

_NULL: Final = ord("n")
_OBJECT: Final = ord("{")
_KINDS: Final = {"int": "number", "float": "number", "str": "string", "bool": "boolean"}


def with_json_as_text(lines: bytes, types: pa.Schema) -> bytes:
    """Returns `lines` with each arrow.json value of `types` as a string of its exact text; null stays.

    Raises one of `PROBLEMS` for a line that is not an object.
    """
    columns = tuple((field.name, field.type) for field in types if _keeps_json(field.type))
    if not columns:
        return lines
    decoder = _decoder(tuple(name for name, _ in columns))
    try:
        rows = decoder.decode_lines(lines)
        values = list(_values(rows, [dtype for _, dtype in columns]))
    except msgspec.ValidationError as error:
        kind = str(error).partition("got `")[2].partition("`")[0]
        # This is Arrow's wording, which `json_mistakes` parses.
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
    """Returns a decoder of objects to `f0`, `f1` and so on: the unparsed values of these names."""
    fields = [
        (f"f{place}", msgspec.Raw, msgspec.field(name=name, default=msgspec.Raw(b"null")))
        for place, name in enumerate(names)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, gc=False))


def _values(rows: Iterable[Any], types: list[pa.DataType]) -> Iterator[msgspec.Raw]:
    rows = list(rows)
    for place, dtype in enumerate(types):
        found = [getattr(row, f"f{place}") for row in rows]
        if not pt.is_struct(dtype):
            yield from found
            continue
        fields = [field for field in dtype.fields if _keeps_json(field.type)]
        decode = _decoder(tuple(field.name for field in fields)).decode
        inside = [decode(raw) for raw in found if memoryview(raw)[0] == _OBJECT]
        yield from _values(inside, [field.type for field in fields])


def _replaced(lines: bytes, values: list[msgspec.Raw]) -> bytes:
    buffers = [pa.py_buffer(value) for value in values]
    starts = np.array([buffer.address for buffer in buffers], np.int64)
    sizes = np.array([buffer.size for buffer in buffers], np.int64)
    whole = pa.py_buffer(lines)
    starts -= whole.address
    is_there = (starts >= 0) & (starts < len(lines))  # The default of a missing name lies outside.
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
