"""Renders Arrow batches as CSV text, whole columns at a time.

Texts and binaries are quoted and nulls are empty, which distinguishes an empty string from a null.
Lists, structs and maps become JSON text in a cell, and so do values of arrow.json, except for texts that do
not look like JSON; other values look as in JSON, without quotes.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.jsontext import cells_of_json, json_values
from compactor.files.text_options import PLAIN, TextOptions
from compactor.files.text_rows import TextColumn, scalar_texts, text_rows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_binary_like, value_type
from lsm_fragment.native.arrays.text_rows import Cell


def csv_header(names: list[str], options: TextOptions = PLAIN) -> bytes:
    """Returns the header line; nothing if the file has none."""
    if not options.header:
        return b""
    quote = options.quote
    cells = (quote + name.replace(quote, quote * 2) + quote for name in names)
    return (options.delimiter.join(cells) + "\n").encode()


def csv_lines(batch: pa.RecordBatch, options: TextOptions = PLAIN) -> bytes:
    """Returns one line per row. Raises `UnwritableError` if a column has no text form."""
    before, quote = options.delimiter.encode(), options.quote.encode()
    columns = [
        _column(array, before if at else b"", quote) for at, array in enumerate(batch.columns)
    ]
    return text_rows(columns, batch.num_rows, b"\n")


def _column(array: pa.Array, before: bytes, quote: bytes) -> TextColumn:
    if isinstance(array.type, pa.JsonType):
        array = cells_of_json(array.storage)
    array = to_storage(array)
    dtype = value_type(array.type)
    if pt.is_dictionary(array.type):
        values, kind = _texts(array.dictionary)
        texts = pa.DictionaryArray.from_arrays(array.indices, values, safe=False)
    else:
        texts, kind = _texts(array)
    is_quoted = pt.is_nested(dtype) or is_binary_like(dtype)
    return TextColumn(texts=texts, kind=kind, quote=quote if is_quoted else b"", before=before)


def _texts(array: pa.Array) -> tuple[pa.Array, Cell]:
    if pt.is_nested(array.type):
        return pc.if_else(array.is_valid(), json_values(array), None), Cell.DOUBLED
    texts, kind = scalar_texts(array)
    return texts, Cell.DOUBLED if is_binary_like(array.type) else kind
