"""Divides a version of a table into pieces, one for each file of a lake, and names them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
import xxhash
from msgspec import Struct

from compactor.read.pruning import overlapping_fragments
from compactor.table.entry import FragmentEntry
from compactor.table.json_text import to_json_text
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import DATA_PREFIX
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.type_json import type_to_json

_DIGITS: Final = 12
_MERGED: Final = "merged"
_ALL: Final = "all"
"""Stands for the deletions of a fragment without any."""
_SUFFIX: Final = ".parquet"
_HASH: Final = f"[0-9a-f]{{{_DIGITS}}}"
_NAME: Final = re.compile(
    rf"(.+-(?:{_ALL}|{_HASH})-{_HASH})-([0-9]{{1,18}})-[0-9a-f]{{4}}{re.escape(_SUFFIX)}"
)


class Piece(Struct, frozen=True):
    """The rows of one file."""

    id: str
    """Names the rows and their form; equal ids stand for equal rows."""
    entries: tuple[FragmentEntry, ...]
    """The fragments, oldest first: several only if their rows are merged."""
    columns: tuple[str, ...]
    """Shown names of the columns that the file has."""

    @property
    def live_rows(self) -> int:
        """Number of rows before those of one key are merged."""
        return sum(entry.live_rows for entry in self.entries)


def pieces_of(
    snapshot: Snapshot, schema: pa.Schema, *, min_level: int, fills_columns: bool
) -> Iterator[Piece]:
    """Yields the pieces of a version that have rows, in key order.

    schema: the columns of the lake, with its types. min_level: leaves fragments of lower levels out.
    fills_columns: whether readers of the lake take columns that a file lacks as null; files then have only
    columns of their fragments, so that a new column changes no file.
    """
    young = [e.key for e in snapshot.fragments.all() if e.level < min_level]
    old = snapshot.without(young) if young else snapshot
    table = snapshot.table
    for entries in overlapping_fragments(old):
        groups = [tuple(entries)] if table.rows.merges else [(entry,) for entry in entries]
        for group in groups:
            if not any(entry.live_rows for entry in group):
                continue
            yield piece_of(group, table, schema, fills_columns=fills_columns)


def piece_of(
    entries: tuple[FragmentEntry, ...],
    table: TableMetadata,
    schema: pa.Schema,
    *,
    fills_columns: bool,
) -> Piece:
    """Returns the piece of these fragments. The other arguments are those of `pieces_of`."""
    stored = set(chain.from_iterable(entry.columns for entry in entries))
    shown = dict(table.names)
    held = {shown.get(name, name) for name in table.schema.names if name in stored}
    columns = tuple(name for name in schema.names if not fills_columns or name in held)
    nodes = [node_of(entry) for entry in entries]
    name = nodes[0] if len(nodes) == 1 else f"{_MERGED}-{_digest(*nodes)}"
    return Piece(f"{name}-{_form(columns, table, schema)}", entries, columns)


def node_of(entry: FragmentEntry) -> str:
    """Names a fragment with its deleted rows."""
    stem = entry.key.removeprefix(DATA_PREFIX).removesuffix(".frag")
    deletion = entry.deletion
    if deletion is None:
        return f"{stem}-{_ALL}"
    return f"{stem}-{_digest(deletion.key, str(deletion.offset), str(deletion.length))}"


def node_of_piece(piece_id: str) -> str:
    """Returns the name of the fragment of a piece that has one; a piece of several has none of them."""
    return piece_id.rpartition("-")[0]


def file_name(piece: Piece, base: int, writer: str) -> str:
    """Names the file of a piece.

    base: the version of the lake when the file was begun. A name that was in the lake once differs by it from
    one that comes later, so that nothing that removes old files ever takes a new one. writer: names what the
    bytes depend on besides the rows, so that processes that write under one name write the same bytes.
    """
    return f"{piece.id}-{base}-{_digest(writer)[:4]}{_SUFFIX}"


def parsed_name(name: str) -> tuple[str, int] | None:
    """Returns the id of the piece and the base of a file; None for a file that `file_name` did not name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def _form(columns: tuple[str, ...], table: TableMetadata, schema: pa.Schema) -> str:
    """Names all that shapes a file's rows besides the fragments: columns, order, row policy."""
    types = [[name, type_to_json(schema.field(name).type)] for name in columns]
    sort = [column.to_json() for column in table.sort]
    names = table.stored_names
    stored = [names.get(name) for name in columns]
    return _digest(to_json_text([types, stored, sort, table.rows.to_json()]))


def _digest(*parts: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(parts).encode())[:_DIGITS]
