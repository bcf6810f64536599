"""Records of a footer: row groups, chunks, and a summary of them (SPEC section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from lsm_fragment.encodings.registry import LESS_THAN_TEXT
from lsm_fragment.keys.bounds import Bound, Value

"""Encodings whose payload is smaller than the strings that it stands for."""


class RowGroupStats(Struct, frozen=True):
    rows: int
    row_hash: int
    first_key: Bound
    last_key: Bound


class ChunkStats(NamedTuple):
    """A footer's entry for one chunk."""

    offset: int
    """Offset of the chunk's block from the start of the fragment."""
    stored_bytes: int
    """Length of the whole block."""
    raw_bytes: int
    decoded_bytes: int
    """Bytes of the values in memory, with a dictionary at the root kept."""
    null_count: int
    encoding: str
    min: Value
    max: Value

    @property
    def held_bytes(self) -> int:
        """Memory of a reader for the chunk: constants and runs take far more than their payload."""
        return max(self.raw_bytes, self.decoded_bytes)

    @property
    def value_bytes(self) -> int:
        """Size of the payload, or of the strings that TEMPLATE and LETTERS stand for. Row groups are cut by
        it, independently of the encoding of strings."""
        is_less = self.encoding in LESS_THAN_TEXT
        return max(self.raw_bytes, self.decoded_bytes) if is_less else self.raw_bytes

    @property
    def end(self) -> int:
        """Offset of the end of the chunk's block."""
        return self.offset + self.stored_bytes


class ValueStats(NamedTuple):
    """Statistics of a chunk's values that only a footer has."""

    min: Value
    max: Value
    decoded_bytes: int


class ColumnBytes(NamedTuple):
    """Bytes of one column of a fragment."""

    raw: int
    stored: int


class FragmentSummary(Struct, kw_only=True):
    """The facts about a fragment that callers need without opening it; small for any size of fragment."""

    rows: int = 0
    row_hash: int = 0
    row_groups: int = 0
    first_key: Bound = ()
    """The full key of the first row; empty if unknown."""
    last_key: Bound = ()
    """The full key of the last row; empty if unknown."""
    peak_chunk_bytes: int = 0
    """Maximum of a chunk's raw and decoded bytes."""
    peak_row_bytes: int = 0
    """Maximum raw bytes per row of any chunk."""
    columns: dict[str, ColumnBytes] = field(default_factory=dict)

    def add_column(self, name: str, chunks: Sequence[ChunkStats], rows: Sequence[int]) -> None:
        """Adds a column's statistics. rows: the number of rows of each row group."""
        raw = [chunk.value_bytes for chunk in chunks]
        self.columns[name] = ColumnBytes(sum(raw), sum(chunk.stored_bytes for chunk in chunks))
        held = (chunk.held_bytes for chunk in chunks)
        self.peak_chunk_bytes = max(self.peak_chunk_bytes, *held, 0)
        by_row = (-(-size // count) for size, count in zip(raw, rows, strict=True))
        self.peak_row_bytes = max(self.peak_row_bytes, *by_row, 0)
