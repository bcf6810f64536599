"""Renders Arrow batches as CSV text, whole columns at a time.

Texts and binaries are quoted and nulls are empty, which distinguishes an empty string from a null.
Lists, structs and maps become JSON text in a cell; other values look as in JSON, without quotes.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import json_values
from compactor.files.text_rows import TextColumn, scalar_texts, text_rows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_binary_like, value_type
from lsm_fragment.native.arrays.text_rows import Cell


def csv_header(names: list[str]) -> bytes:
    """Returns the header line."""
    cells = ('"' + name.replace('"', '""') + '"' for name in names)
    return (",".join(cells) + "\n").encode()


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """Returns one line per row. Raises `UnwritableError` if a column has no text form."""
    columns = [_column(array, b"," if at else b"") for at, array in enumerate(batch.columns)]
    return text_rows(columns, batch.num_rows, b"\n")


def _column(array: pa.Array, before: bytes) -> TextColumn:
    array = to_storage(array)
    dtype = value_type(array.type)
    if pt.is_dictionary(array.type):
        values, kind = _texts(array.dictionary)
        texts = pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    else:
        texts, kind = _texts(array)
    is_quoted = pt.is_nested(dtype) or is_binary_like(dtype)
    return TextColumn(texts=texts, kind=kind, is_quoted=is_quoted, before=before)


def _texts(array: pa.Array) -> tuple[pa.Array, Cell]:
    if pt.is_nested(array.type):
        return pc.if_else(array.is_valid(), json_values(array), None), Cell.DOUBLED
    texts, kind = scalar_texts(array)
    return texts, Cell.DOUBLED if is_binary_like(array.type) else kind
