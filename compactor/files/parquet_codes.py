"""Chooses the columns of a Parquet file that are read as dictionary codes, which need not be found again.

Arrow removes equal values from a dictionary page, and then takes codes for those of other values. So a column
is believed to have codes only while its dictionary has as many values as its page says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_PLAIN_BYTES: Final = 4
"""The least bytes of a string that is stored as such: those of its length."""
_HEADER_BYTES: Final = 64
_INT32, _STRUCT = 5, 12
_DICTIONARY_HEADER: Final = 7
"""The number of the field of a page's header that describes a dictionary."""

Sizes = Mapping[str, int]
"""How many values the dictionary of each coded column has."""


def coded_columns(path: str, file: pq.ParquetFile) -> list[Sizes]:
    """Returns the columns that are codes throughout the file, with their sizes in each row group."""
    schema, metadata = file.schema_arrow, file.metadata
    candidates = {f.name for f in schema if f.type in (pa.string(), pa.binary())}
    with Path(path).open("rb") as source:
        groups = [
            dict(_sizes(source.fileno(), metadata.row_group(index), candidates))
            for index in range(metadata.num_row_groups)
        ]
    everywhere = candidates.intersection(*groups)
    return [{n: size for n, size in group.items() if n in everywhere} for group in groups]


def _sizes(
    source: int, group: pq.RowGroupMetaData, candidates: set[str]
) -> Iterator[tuple[str, int]]:
    for index in range(group.num_columns):
        chunk = group.column(index)
        is_short = chunk.total_uncompressed_size < _PLAIN_BYTES * chunk.num_values
        if chunk.path_in_schema in candidates and chunk.has_dictionary_page and is_short:
            header = os.pread(source, _HEADER_BYTES, chunk.dictionary_page_offset)
            if (size := dictionary_size(header)) is not None:
                yield chunk.path_in_schema, size


def dictionary_size(header: bytes) -> int | None:
    """Returns how many values a dictionary page has; None for the header of another page.

    header: the beginning of a page, in Thrift's compact protocol.
    """
    at, field = 0, 0
    try:
        while True:
            step, kind = divmod(header[at], 16)
            field += step
            if not step or (field < _DICTIONARY_HEADER) != (kind == _INT32):
                return None
            if field == _DICTIONARY_HEADER:
                is_known = kind == _STRUCT and header[at + 1] == 16 + _INT32
                return _integer(header, at + 2)[0] if is_known else None
            _, at = _integer(header, at + 1)
    except IndexError:
        return None


def _integer(header: bytes, at: int) -> tuple[int, int]:
    """Returns a variable-length integer, and where it ends. Raises `IndexError` if the header ends first."""
    value = shift = 0
    while header[at] >= 128:
        value |= (header[at] & 127) << shift
        at, shift = at + 1, shift + 7
    value |= header[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def agrees(batch: pa.RecordBatch, sizes: Sizes) -> bool:
    """Returns whether the dictionaries have as many values as their pages say."""
    return all(len(batch.column(name).dictionary) == size for name, size in sizes.items())
