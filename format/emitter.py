"""Lowest writer: puts a fragment's parts out in file order and keeps the offsets (SPEC section 1).

For producers that already have columns one after the other, as a merge does. `format.writer` turns
rows into such columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from format import layout
from format.blocks import ByteSink, Chunk, make_block
from format.footer import ChunkStats, Footer, RowGroupStats
from format.keys import Bound
from format.layout import Kind
from format.schema import FragmentHeader

_JSON_LEVEL: Final = 3
_PLAIN_JSON_BYTES: Final = 4 << 10
"""Headers and footers up to this size stay readable in a hex dump; larger ones are compressed."""


@dataclass(slots=True)
class _OpenGroup:
    rows: int
    first_key: Bound
    last_key: Bound


class FragmentEmitter:
    """Call `key_group` for every row group, then `begin_column` and `chunk`s for each column in
    lexicographic order, then `finish`. The caller answers for order and equal row counts."""

    def __init__(self, sink: ByteSink, header: FragmentHeader) -> None:
        self._sink = sink
        self._header = header
        self._groups: list[_OpenGroup] = []
        self._columns: dict[str, list[ChunkStats]] = {c.column: [] for c in header.sort}
        self._current: list[ChunkStats] = []
        self.bytes_written = 0
        payload = header.to_bytes()
        self._write(layout.pack_prologue())
        self._write(_json_block(Kind.HEADER, payload))

    @property
    def header(self) -> FragmentHeader:
        return self._header

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self._groups)

    def key_group(self, chunks: Sequence[Chunk], first_key: Bound, last_key: Bound) -> None:
        """One row group's sort columns, in sort-schema order, with its key bounds."""
        for column, chunk in zip(self._header.sort, chunks, strict=True):
            self._columns[column.column].append(self._write_chunk(Kind.KEY, chunk))
        self._groups.append(_OpenGroup(chunks[0].rows, first_key, last_key))

    def begin_column(self, name: str) -> None:
        self._write(make_block(Kind.COLUMN, name.encode()))
        self._current = self._columns[name] = []

    def chunk(self, chunk: Chunk) -> None:
        """The current column's chunk of the next row group."""
        self._current.append(self._write_chunk(Kind.DATA, chunk))

    def finish(self, row_hashes: Sequence[int]) -> Footer:
        """Writes footer and trailer. row_hashes: one a row group, over all columns."""
        footer = Footer(
            [
                RowGroupStats(group.rows, row_hash, group.first_key, group.last_key)
                for group, row_hash in zip(self._groups, row_hashes, strict=True)
            ],
            self._columns,
        )
        offset = self.bytes_written
        self._write(_json_block(Kind.FOOTER, footer.to_bytes()))
        self._write(layout.pack_trailer(offset, self.bytes_written + layout.TRAILER_BYTES))
        return footer

    def copy_block(self, block: bytes, stats: ChunkStats) -> None:
        """A finished 'D' block made elsewhere, as it is, as the current column's next chunk."""
        self._current.append(replace(stats, offset=self.bytes_written))
        self._write(block)

    def _write_chunk(self, kind: Kind, chunk: Chunk) -> ChunkStats:
        block = chunk.block(kind)
        stats = chunk.stats(offset=self.bytes_written, stored_bytes=len(block))
        self._write(block)
        return stats

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self.bytes_written += len(data)


def _json_block(kind: Kind, payload: bytes) -> bytes:
    level = _JSON_LEVEL if len(payload) > _PLAIN_JSON_BYTES else 0
    return make_block(kind, payload, level=level)
