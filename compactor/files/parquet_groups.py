"""Tells which row groups of a Parquet file have changed, without decoding them."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow.parquet as pq
import xxhash

from compactor.files.int96 import int96_leaves
from compactor.files.problems import reading

_PIECE_BYTES: Final = 1 << 20
_ARROW_SCHEMA: Final = b"ARROW:schema"


class StoredGroup(NamedTuple):
    """A row group as it is stored: those of equal digests have the same rows, in whichever file they are."""

    digest: str
    rows: int


def stored_groups(path: str) -> tuple[StoredGroup, ...]:
    """Returns the row groups of a local Parquet file, by the bytes that a reader decodes and by what the
    footer says of them.

    There are none where other row groups or files decide what the rows are: with times as INT96, whose unit
    is the file's, and with columns in other files. Raises `InputError`.
    """
    with reading(path), Path(path).open("rb") as file:
        metadata = pq.read_metadata(file)
        _, _, types = str(metadata.schema).partition("\n")  # without the object's address
        said = (metadata.created_by, types, (metadata.metadata or {}).get(_ARROW_SCHEMA))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        are_apart = any(g.column(c).file_path for g in groups[:1] for c in range(g.num_columns))
        if are_apart or int96_leaves(metadata):
            return ()
        return tuple(
            StoredGroup(_digest(file, str(said), group), group.num_rows) for group in groups
        )


def _digest(file: BinaryIO, said_of_all: str, group: pq.RowGroupMetaData) -> str:
    total = xxhash.xxh3_128(said_of_all.encode())
    total.update(str(group.num_rows).encode())
    for place in range(group.num_columns):
        column = group.column(place)
        start = column.data_page_offset
        if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
            start = column.dictionary_page_offset
        said = (
            column.path_in_schema,
            column.physical_type,
            column.compression,
            column.encodings,
            column.num_values,
            column.total_uncompressed_size,
            column.data_page_offset - start,
        )
        total.update(str(said).encode())
        file.seek(start)
        left = column.total_compressed_size
        while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
            total.update(piece)
            left -= len(piece)
    return str(total.hexdigest())
