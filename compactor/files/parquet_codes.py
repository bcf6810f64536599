"""Chooses the columns of a Parquet file that are read as dictionary codes, which need not be found again.

Arrow removes equal values from a dictionary page, and then takes codes for those of other values. So a column
is believed to have codes only while its dictionary has as many values as its page says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_PLAIN_BYTES: Final = 4
"""The least bytes of a string that is stored as such: those of its length."""
_USES: Final = 3
"""Rows to each value of a dictionary, at least, for which codes spare work."""
_HEADER_BYTES: Final = 64
_INT32, _STRUCT = 5, 12
_PAGE_BYTES: Final = 2
"""The number of the field of a page's header that has the length of the page, decompressed."""
_DICTIONARY_HEADER: Final = 7
"""The number of the field of a page's header that describes a dictionary."""

Sizes = Mapping[str, int]
"""How many values the dictionary of each coded column has."""


class DictionaryPage(NamedTuple):
    """What the header of a dictionary page says."""

    values: int
    page_bytes: int
    """The bytes of the page without its header, decompressed."""


def coded_columns(path: str, file: pq.ParquetFile) -> list[Sizes]:
    """Returns the columns that are codes throughout the file, with their sizes in each row group.

    Raises `OSError` where the footer contradicts itself.
    """
    schema, metadata = file.schema_arrow, file.metadata
    candidates = {f.name for f in schema if f.type in (pa.string(), pa.binary())}
    if not candidates:
        return []
    with Path(path).open("rb") as source:
        groups = []
        for index in range(metadata.num_row_groups):
            _check_described(file, index)
            groups.append(dict(_sizes(source.fileno(), metadata.row_group(index), candidates)))
    everywhere = candidates.intersection(*groups)
    return [{n: size for n, size in group.items() if n in everywhere} for group in groups]


def _check_described(file: pq.ParquetFile, group: int) -> None:
    """Raises `OSError` if Arrow refuses what the footer says of a row group's columns.

    A batch of no rows opens all columns, of which there must be some, and reads none of them. Without that,
    Arrow refuses by an exception that pyarrow does not expect, which ends the process.
    """
    for _ in file.reader.iter_batches(0, [group], use_threads=False):
        pass


def _sizes(
    source: int, group: pq.RowGroupMetaData, candidates: set[str]
) -> Iterator[tuple[str, int]]:
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema in candidates and chunk.has_dictionary_page:
            header = os.pread(source, _HEADER_BYTES, chunk.dictionary_page_offset)
            page = dictionary_page(header)
            if page is not None and _has_codes(chunk, page):
                yield chunk.path_in_schema, page.values


def _has_codes(chunk: pq.ColumnChunkMetaData, page: DictionaryPage) -> bool:
    """Returns whether rows are codes, as far as the lengths of pages tell, and not of too many values."""
    rows: int = chunk.num_values
    other_bytes: int = chunk.total_uncompressed_size - page.page_bytes
    return other_bytes < _PLAIN_BYTES * rows and page.values * _USES <= rows


def dictionary_page(header: bytes) -> DictionaryPage | None:
    """Returns what the header of a page says if it is that of a dictionary.

    header: the beginning of a page, in Thrift's compact protocol.
    """
    at = field = page_bytes = 0
    try:
        while True:
            step, kind = divmod(header[at], 16)
            field += step
            if not step or (field < _DICTIONARY_HEADER) != (kind == _INT32):
                return None
            if field == _DICTIONARY_HEADER:
                is_known = kind == _STRUCT and header[at + 1] == 16 + _INT32
                return DictionaryPage(_integer(header, at + 2)[0], page_bytes) if is_known else None
            value, at = _integer(header, at + 1)
            page_bytes = value if field == _PAGE_BYTES else page_bytes
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
