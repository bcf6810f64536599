"""Copies from a Parquet file of a store only what its readers will look at: the footer, and some columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Final

import pyarrow.parquet as pq

from compactor.files.columnar import read_columns
from compactor.files.int96 import int96_leaves
from compactor.files.places import Place
from compactor.files.problems import PROBLEMS
from compactor.files.source import Wanted

Range = tuple[int, int]
"""First byte, and the byte after the last."""

MIN_BYTES: Final = 4 << 20
"""Copy smaller files by one GET."""
_MAX_SHARE: Final = 0.5
"""Copy the whole file if the columns are more of it."""
_MAX_GAP_BYTES: Final = 1 << 20
"""Read on over gaps up to this size, rather than send another GET."""
_MAX_RANGE_BYTES: Final = 8 << 20
_TAIL_BYTES: Final = 256 << 10
_END_BYTES: Final = 8
"""The length of the footer, and the magic number."""
_PADDING: Final = 128
"""Early writers of Parquet counted too few bytes of a chunk, and readers look at up to 100 more."""


def copy_columns(place: Place, columns: Wanted, copy: IO[bytes], local: str) -> bool:
    """Fills the holes of a copy that readers of these columns look at. Returns False if the whole file is
    needed, or the footer can't be read.

    local: the path of `copy`, which gets the size of the file.
    """
    if columns is None or place.size_bytes < MIN_BYTES:
        return False
    copy.truncate(place.size_bytes)
    _fill(place, copy, [_tail(place.size_bytes, _TAIL_BYTES)])
    end = os.pread(copy.fileno(), _END_BYTES, place.size_bytes - _END_BYTES)
    footer = _END_BYTES + int.from_bytes(end[:4], "little")
    if footer > _TAIL_BYTES:
        _fill(place, copy, [_tail(place.size_bytes, footer)])
    try:
        with pq.ParquetFile(local) as file:
            found = _joined(_chunks(file, columns), place.size_bytes)
    except (OSError, *PROBLEMS):
        return False  # The readers of a whole copy say what is wrong.
    if sum(stop - start for start, stop in found) > _MAX_SHARE * place.size_bytes:
        return False
    _fill(place, copy, found)
    return True


def _tail(size: int, length: int) -> Range:
    return max(0, size - length), size


def _chunks(file: pq.ParquetFile, columns: Wanted) -> Iterator[Range]:
    """Yields the chunks of the columns to read, and of all INT96 columns, whose values tell their units."""
    metadata = file.metadata
    names = read_columns(file.schema_arrow, columns)
    always = set(int96_leaves(metadata))
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            if leaf in always or names is None or chunk.path_in_schema.split(".")[0] in names:
                start = min(chunk.data_page_offset, chunk.dictionary_page_offset or 1 << 62)
                yield start, start + chunk.total_compressed_size + _PADDING


def _joined(chunks: Iterator[Range], size: int) -> list[Range]:
    """Returns the ranges within the file in order, those with small gaps as one."""
    found: list[Range] = []
    for start, stop in sorted((max(0, start), min(stop, size)) for start, stop in chunks):
        if found and start - found[-1][1] <= _MAX_GAP_BYTES:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found


def _fill(place: Place, copy: IO[bytes], ranges: list[Range]) -> None:
    for first, stop in ranges:
        for start in range(first, stop, _MAX_RANGE_BYTES):
            data = place.read(start, min(_MAX_RANGE_BYTES, stop - start))
            os.pwrite(copy.fileno(), data, start)
