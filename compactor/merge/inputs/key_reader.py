"""Reads the keys of one input: the sort columns, row group by row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.merge.inputs.conversion import Decoder
from compactor.merge.inputs.copied import StoredKeys
from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.decoding import LAP, Decoding
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.inputs.loaded_rows import LoadedGroup, loaded_group
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_plan import OVERSHOOT_FACTOR
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.stream_reader import FragmentStream

_MIN_DIVISOR: Final = 4
"""Merge a row group with others, rather than copy it, if it has less than one part in this many of the usual
size."""


class CopyRule(Struct, frozen=True):
    """The conditions under which an input's row group may be copied."""

    max_rows: int
    row_group_bytes: int
    """Target bytes of the heaviest column in a row group of the outputs."""
    compression_level: int
    """The least compression level of the input."""

    def allows(self, rows: int, size: int, level: int) -> bool:
        """Returns whether a row group is as good as one that the merge would make of its rows."""
        if rows > self.max_rows or level < self.compression_level:
            return False
        is_small = (
            rows * _MIN_DIVISOR < self.max_rows and size * _MIN_DIVISOR < self.row_group_bytes
        )
        is_heavy = rows > 1 and size > OVERSHOOT_FACTOR * self.row_group_bytes
        return not (is_small or is_heavy)


class _KeyGroup(Struct, frozen=True):
    """The sort columns of one row group, as they were read."""

    number: int
    chunks: Sequence[Decoding]


class InputSettings(Struct, frozen=True):
    """The settings that all inputs of a pass share."""

    budget: MemoryBudget
    disk: LocalDisk
    copying: CopyRule
    slice_bytes: int
    """Decoded rows of fewer bytes stay in memory."""
    reserve_bytes: int
    """Part of the memory limit that decoded rows leave free."""

    def new_rows(self) -> DecodedRows:
        return DecodedRows(self.budget, self.disk, self.slice_bytes, self.reserve_bytes)


class KeyReader:
    """Reads keys into `rows`, one row group at a time. Where memory allows, threads decode the next one
    meanwhile."""

    def __init__(
        self,
        fragment: InputFragment,
        stream: FragmentStream,
        decoder: Decoder,
        rows: DecodedRows,
        settings: InputSettings,
    ) -> None:
        self._fragment = fragment
        self._stream = stream
        self._decoder = decoder
        self._rows = rows
        self._settings = settings
        names = [column.column for column in stream.header.sort]
        self._columns = [(name, decoder.conversion.table_type(name)) for name in names]
        self._ahead: _KeyGroup | None = None
        self._stored: list[StoredKeys] = []
        """Stored keys in memory, and some that are no longer there."""
        self._begin()

    def load(self) -> LoadedGroup | None:
        """Adds the next row group's sort columns to the rows; None after the last with rows to be written."""
        while True:
            with self._decoder.watch.on(LAP):
                group, self._ahead = self._ahead or self._read(), None
                if group is None:
                    return None
                arrays = self._decoded(group)
            if len(arrays[0]):
                break
            self._decoder.free()
        loaded = loaded_group(arrays, group.number, self._stored_keys(group, len(arrays[0])))
        del group  # with the blocks
        self._rows.push(arrays)
        self._decoder.free()
        self._begin()
        return loaded

    def row_bytes(self, group_rows: int) -> int:
        """Estimates the bytes of a row in the heaviest column, for a row group of `group_rows` rows.

        Row groups were cut by the heaviest column, so one of few rows has heavy rows.
        """
        fragment = self._fragment
        if group_rows >= self._stream.header.max_rows:
            return fragment.mean_row_bytes
        by_group = -(-self._settings.copying.row_group_bytes // group_rows)
        return max(fragment.mean_row_bytes, min(fragment.peak_row_bytes, by_group))

    @property
    def spillable_bytes(self) -> int:
        return sum(held.held_bytes for held in self._stored)

    def spill(self) -> int:
        """Moves stored keys to disk. Returns how many bytes that frees."""
        return sum(held.spill() for held in self._stored)

    def clear(self) -> None:
        """Drops stored keys, and chunks that were decoded ahead. No thread may be decoding."""
        if self._ahead is not None:
            for chunk in self._ahead.chunks:
                chunk.memory.free()
            self._ahead = None
        for held in self._stored:
            held.drop()

    def _read(self) -> _KeyGroup | None:
        """Reads the next row group's sort columns; None after the last."""
        blocks = self._stream.next_key_group()
        if blocks is None:
            return None
        columns = zip(blocks, self._columns, strict=True)
        chunks = [self._decoder.chunk(block, name, dtype) for block, (name, dtype) in columns]
        return _KeyGroup(len(self._stream.row_group_rows) - 1, chunks)

    def _begin(self) -> None:
        """Begins to decode the next row group's sort columns, if there is room for them."""
        if not self._decoder.may_begin(len(self._columns)):
            return
        self._ahead = self._read()
        if self._ahead is not None:
            for chunk in self._ahead.chunks:
                self._decoder.begin(chunk)

    def _decoded(self, group: _KeyGroup) -> list[pa.Array]:
        """Returns the sort columns of the rows to be written."""
        self._decoder.conversion.begin_group(self._stream.row_group_rows[group.number])
        return [
            self._decoder.rows(chunk, name, dtype, group.number, is_first=not place)
            for place, (chunk, (name, dtype)) in enumerate(
                zip(group.chunks, self._columns, strict=True)
            )
        ]

    def _stored_keys(self, group: _KeyGroup, rows: int) -> StoredKeys | None:
        """Returns the row group's chunks as they were stored; None if it may not be copied."""
        conversion, header = self._decoder.conversion, self._stream.header
        size = rows * self._fragment.mean_row_bytes
        may_copy = conversion.is_as_wide and conversion.is_whole(group.number)
        if not (may_copy and self._settings.copying.allows(rows, size, _level(header))):
            return None
        self._stored = [held for held in self._stored if held.held_bytes]
        blocks = [chunk.block for chunk in group.chunks]
        self._stored.append(StoredKeys(blocks, self._settings.budget, self._settings.disk))
        return self._stored[-1]


def _level(header: FragmentHeader) -> int:
    """Returns the compression level that the writer states; 0 if it states none."""
    try:
        return int(header.writer["options"]["compression_level"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0
