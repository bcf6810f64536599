"""Chooses the columns of a Parquet file to read as dictionary codes, which saves encoding them again.

Arrow removes duplicate values from a dictionary page, but does not renumber the codes. So codes are trusted
only while the dictionary has as many values as its page states.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ANY_CODES: Final = 1 << 62
_PLAIN_BYTES: Final = 4
"""Minimum bytes of a plain string: its length."""
_USES: Final = 3
"""Read codes only if there are at least this many rows per dictionary value; otherwise they save no work."""
_HEADER_BYTES: Final = 64
_INT32, _STRUCT = 5, 12
_PAGE_BYTES: Final = 2
"""Field number in a page header: the decompressed size."""
_DICTIONARY_HEADER: Final = 7
"""Field number in a page header: the description of a dictionary."""

Sizes = Mapping[str, int]
"""Number of dictionary values by coded column."""


class DictionaryPage(NamedTuple):
    """The header of a dictionary page."""

    values: int
    page_bytes: int
    """Decompressed size of the page without its header."""


def coded_columns(
    path: str, file: pq.ParquetFile, names: Collection[str], max_codes: int
) -> list[Sizes]:
    """Returns those of the columns that are codes in all row groups, with their dictionary sizes in each.

    Raises `OSError` if the footer is inconsistent.
    """
    schema, metadata = file.schema_arrow, file.metadata
    candidates = {
        f.name for f in schema if f.name in names and f.type in (pa.string(), pa.binary())
    }
    if not candidates:
        return []
    with Path(path).open("rb") as source:
        groups = []
        for index in range(metadata.num_row_groups):
            _check_described(file, index)
            sizes = _sizes(source.fileno(), metadata.row_group(index), candidates)
            groups.append({name: size for name, size in sizes if size <= max_codes})
    everywhere = candidates.intersection(*groups)
    return [{n: size for n, size in group.items() if n in everywhere} for group in groups]


def _check_described(file: pq.ParquetFile, group: int) -> None:
    """Raises `OSError` if Arrow refuses the footer's description of a row group's columns.

    Reading batches of zero rows opens all columns (at least one) and reads none. Otherwise Arrow would later
    throw an exception that pyarrow does not catch, which ends the process.
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
    """Returns whether all rows are codes, judging by page sizes, and the dictionary is small enough."""
    rows: int = chunk.num_values
    other_bytes: int = chunk.total_uncompressed_size - page.page_bytes
    return other_bytes < _PLAIN_BYTES * rows and page.values * _USES <= rows


def dictionary_page(header: bytes) -> DictionaryPage | None:
    """Parses the header of a dictionary page; returns None for other pages.

    header: the first bytes of a page, in Thrift's compact protocol.
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
    """Decodes a variable-length integer; returns it and its end. Raises `IndexError` if the header ends
    first."""
    value = shift = 0
    while header[at] >= 128:
        value |= (header[at] & 127) << shift
        at, shift = at + 1, shift + 7
    value |= header[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def agrees(batch: pa.RecordBatch, sizes: Sizes) -> bool:
    """Returns whether the dictionaries have as many values as their pages state."""
    return all(len(batch.column(name).dictionary) == size for name, size in sizes.items())
