"""Renders Arrow batches as CSV text, whole columns at a time.

Texts and binaries are quoted and nulls are empty, which distinguishes an empty string from a null.
Lists, structs and maps become JSON text in a cell; other values look as in JSON, without quotes.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import json_values, text_bytes
from compactor.files.plain_text import joined, plain_text, text_scalar
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_binary_like


def csv_header(names: list[str]) -> bytes:
    """Returns the header line."""
    cells = _quoted(pa.array(names, pa.large_string()))
    return (",".join(cells.to_pylist()) + "\n").encode()


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """Returns one line per row. Raises `UnwritableError` if a column has no text form."""
    if batch.num_rows == 0:
        return b""
    parts: list[pa.Array | pa.Scalar] = []
    for column in batch.columns:
        parts += [_cells(column), text_scalar(",")]
    return text_bytes(joined(*parts[:-1], text_scalar("\n")))


def _cells(array: pa.Array) -> pa.Array:
    array = to_storage(array)
    dtype = array.type
    if pt.is_dictionary(dtype):
        text = _cells(array.dictionary).take(array.indices)
    elif pt.is_nested(dtype):
        text = _quoted(json_values(array))
    elif is_binary_like(dtype):
        text = _quoted(plain_text(array))
    else:
        text = plain_text(array)
    return pc.if_else(array.is_valid(), text, "")


def _quoted(text: pa.Array) -> pa.Array:
    return joined(text_scalar('"'), pc.replace_substring(text, '"', '""'), text_scalar('"'))
