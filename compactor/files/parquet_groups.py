"""Tells which row groups of a Parquet file have changed, without decoding them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow.parquet as pq
import xxhash

from compactor.files.int96 import int96_leaves
from compactor.files.kept_types import NOTE_KEY, noted_schema
from compactor.files.problems import reading

_PIECE_BYTES: Final = 1 << 20
_OLD_WRITER: Final = re.compile(r"parquet-mr version (0|1\.[012])\.")


class StoredGroup(NamedTuple):
    """A row group as it is stored: those of equal digests have the same rows, in whichever file they are."""

    digest: str
    rows: int


def stored_groups(path: str) -> tuple[StoredGroup, ...]:
    """Returns the row groups of a local Parquet file, by the bytes that a reader decodes and by what the
    footer says of them.

    There are none where other bytes decide what the rows are: with times as INT96, whose unit is the file's,
    with columns in other files, and of writers so old that readers look behind a column's end (PARQUET-816).
    Raises `InputError`.
    """
    with reading(path), Path(path).open("rb") as file:
        metadata = pq.read_metadata(file)
        _, _, types = str(metadata.schema).partition("\n")  # without the object's address
        said = (metadata.created_by, types, _arrow_types(metadata))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        are_apart = any(g.column(c).file_path for g in groups[:1] for c in range(g.num_columns))
        is_old = _OLD_WRITER.match(metadata.created_by or "") is not None
        if are_apart or is_old or int96_leaves(metadata):
            return ()
        return tuple(
            StoredGroup(_digest(file, str(said), group), group.num_rows) for group in groups
        )


def _arrow_types(metadata: pq.FileMetaData) -> bytes:
    """Returns what Arrow's writer has noted of the types, without what programs note beside it."""
    note: bytes | None = (metadata.metadata or {}).get(NOTE_KEY)
    schema = noted_schema(note)
    return note or b"" if schema is None else bytes(schema.remove_metadata().serialize())


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
