"""Reads the columns of one input in turn, once all keys were read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile

import pyarrow as pa

from compactor.merge.inputs.conversion import Decoder
from compactor.merge.inputs.decoded import DecodedRows, TakenRows
from compactor.merge.inputs.decoding import LAP, Decoding
from compactor.merge.inputs.searched_text import SearchedText
from lsm_fragment.container.block import Block
from lsm_fragment.container.stream_reader import FragmentStream


class ColumnReader:
    """Reads the chunks of one column after the other: when their rows are taken, or a little before where
    threads decode ahead."""

    def __init__(self, stream: FragmentStream, decoder: Decoder, rows: DecodedRows) -> None:
        """rows: takes decoded rows that go to disk."""
        self._stream = stream
        self._decoder = decoder
        self._rows = rows
        self._ahead: deque[Decoding] = deque()
        """Chunks of the current column that were read, and whose rows were not all taken."""
        self._next_chunk = 0
        """Number of the row group of the current column's next chunk."""
        self._searched = SearchedText()
        self.column: str | None = None
        """The column that is read next; None before the first and after the last."""

    @property
    def searched_rows(self) -> int:
        """Rows of the largest chunk of the current column, if all chunks that were read are text without
        templates; otherwise 0. Depends only on the rows that were asked for."""
        return self._searched.rows

    @property
    def by_vocabulary(self) -> bool | None:
        """Whether all text of the current column that was read so far is stored by a vocabulary; None if none
        of it was large enough for one."""
        return self._searched.by_vocabulary

    def take_part(self, dtype: pa.DataType) -> TakenRows:
        """Returns some of the current column's next rows, dictionary-coded if they are stored so."""
        if self._rows.rows:
            return self._rows.take_part()
        with self._decoder.watch.on(LAP):
            self._skip_dropped()
            array = self._take_chunk(dtype)
        part = self._rows.pass_on(array)
        self._decoder.free()
        return part

    def put_back(self, array: pa.Array) -> None:
        """Takes back rows of the current column, and keeps them on disk until they are taken again."""
        self._rows.put_back(array)

    def decode_ahead(self, dtype: pa.DataType, rows: int) -> bool:
        """Begins to decode the chunks that have the current column's next `rows` rows, which it must have.
        Returns False if that takes more room than there is yet."""
        if not self._decoder.decodes_ahead or self._decoder.conversion.leaves_rows_out:
            return True  # only once deleted rows are out is it known how many rows a chunk leaves
        missing, place = rows - self._rows.rows, 0
        while missing > 0 and self._decoder.may_begin():
            if place == len(self._ahead):
                self._ahead.append(self._read_chunk(dtype))
            chunk = self._ahead[place]
            self._decoder.begin(chunk)
            missing -= chunk.rows
            place += 1
        return missing <= 0

    def next_block(self) -> Block:
        """Returns the current column's next chunk as stored; all rows before it must have been taken."""
        assert not self._rows.rows
        assert not self._ahead
        with self._decoder.watch.on(LAP):
            self._skip_dropped()
            block = self._stream.next_chunk()
            self._next_chunk += 1
        self._decoder.free()
        return block

    def end_column(self) -> str | None:
        """Moves to the next column, once all rows of the current one were taken.

        Returns the next one's name.
        """
        assert not self._rows.rows
        self._rows.clear()
        with self._decoder.watch.on(LAP):
            self._skip_dropped()
            self.next_column()
        return self.column

    def next_column(self) -> None:
        """Moves to the next column that the table has."""
        self._begin_column()
        while self.column is not None and not self._decoder.conversion.is_wanted(self.column):
            dtype = self._decoder.conversion.own_type(self.column)
            for _ in self._stream.row_group_rows:
                self._take_chunk(dtype)
                self._decoder.free()
            self._begin_column()

    @property
    def spillable_bytes(self) -> int:
        return self._rows.spillable_bytes + sum(chunk.memory.size for chunk in self._streams())

    def spill(self) -> int:
        """Moves decoded rows, and those of chunks of which some are decoded, to disk. Returns how many bytes
        that frees."""
        freed = self._rows.spill()
        for chunk in list(self._streams()):
            while chunk.rows:
                self._rows.push([chunk.result(self._decoder.watch)], to_disk=True)
            freed += chunk.memory.size
            self._end_chunk()
        return freed

    def clear(self) -> None:
        """Drops all decoded rows, and chunks that were decoded ahead. No thread may be decoding."""
        self._rows.clear()
        for chunk in self._ahead:
            chunk.memory.free()
        self._ahead.clear()

    def _begin_column(self) -> None:
        self._next_chunk = 0
        self._searched = SearchedText()
        self.column = self._stream.next_column()

    @property
    def _current(self) -> str:
        assert self.column is not None
        return self.column

    def _read_chunk(self, dtype: pa.DataType) -> Decoding:
        """Reads the current column's next chunk."""
        block = self._stream.next_chunk()
        self._searched.note(block)
        return self._decoder.streamed(
            block, self._current, dtype, self._rows
        ) or self._decoder.chunk(block, self._current, dtype, keep_templates=True)

    def _take_chunk(self, dtype: pa.DataType) -> pa.Array:
        """Returns the rows to be written of the current column's next chunk, or some of them, and hashes the
        others."""
        if not self._ahead:
            self._ahead.append(self._read_chunk(dtype))
        chunk = self._ahead[0]
        array = self._decoder.rows(chunk, self._current, dtype, self._next_chunk)
        if not chunk.rows:
            self._end_chunk()
        return array

    def _streams(self) -> Iterator[Decoding]:
        """Yields the chunks whose rows come next, as far as they are decoded some rows at a time, and no
        thread decodes any."""
        return takewhile(lambda chunk: chunk.is_stream and not chunk.is_begun, self._ahead)

    def _end_chunk(self) -> None:
        """Drops the first chunk, all rows of which were decoded."""
        self._ahead.popleft().memory.free()
        self._next_chunk += 1

    def _skip_dropped(self) -> None:
        """Takes chunks of row groups without a row to be written."""
        conversion = self._decoder.conversion
        if not conversion.leaves_rows_out:
            return
        groups = len(self._stream.row_group_rows)
        while self._next_chunk < groups and conversion.is_gone(self._next_chunk):
            self._take_chunk(conversion.own_type(self._current))
            self._decoder.free()
