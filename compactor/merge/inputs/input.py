"""Reads one input of a merge: a fragment that is streamed front to back by a single GET."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.errors import InputMismatchError, MergeCheckError
from compactor.merge.inputs.converted import ConvertedRows
from compactor.merge.inputs.copied import CopiedRowGroups, StoredKeys
from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.decoding import STAGE as DECODE
from compactor.merge.inputs.decoding import Decoding, may_decode_ahead
from compactor.merge.inputs.dropped import DroppedRows
from compactor.merge.inputs.loaded_rows import LoadedGroup, loaded_group
from compactor.merge.inputs.schemas import InputSchemas
from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.fetch import ClosableSource
from compactor.resources.merge_plan import OVERSHOOT_FACTOR
from compactor.resources.near_source import NearSource
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.arrays.cast import widened
from lsm_fragment.arrays.hashing import combine
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.blocks.layout import BlockHeader
from lsm_fragment.container.block import Block
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.stream_reader import AHEAD_BYTES, FragmentStream, TakeColumn
from lsm_fragment.keys.sort_schema import SortSchema

_MIN_DIVISOR: Final = 4
"""A row group of less than one part in this many of the usual size is not copied, but merged with others."""


@dataclass(frozen=True, slots=True)
class InputFragment:
    """An input, as far as it is known before it is read."""

    name: str
    """Its address, for errors."""
    source_id: str
    """Its name in the outputs' headers, independent of the table's address."""
    rows: int
    size_bytes: int
    row_hash: int
    open_source: Callable[[], ClosableSource]
    """Begins the only GET."""
    mean_row_bytes: int = 0
    """Average raw bytes of a row in the heaviest column; 0 if unknown."""
    peak_row_bytes: int = 0
    """The same average of the row group where it is greatest."""
    read_again: Callable[[], ClosableSource] | None = None
    """Opens the input for a second pass without a second GET, if it is on local disk anyway."""
    read_dropped: Callable[[], pa.BooleanArray | None] | None = None
    """Reads for each row whether it is left out; gives None if all rows are written."""


@dataclass(frozen=True, slots=True)
class CopyRule:
    """The conditions under which an input's row group may be copied."""

    max_rows: int
    row_group_bytes: int
    """Target bytes of the heaviest column in a row group of the outputs."""
    compression_level: int
    """The least compression level of the input."""


class MergeInput:
    """A reader of one input: keys first, then column by column. It decodes chunks when rows are taken, or a
    little before where there are threads for it."""

    def __init__(
        self,
        fragment: InputFragment,
        source: ClosableSource,
        budget: MemoryBudget,
        new_rows: Callable[[], DecodedRows],
        target_row_group_bytes: int,
        copying: CopyRule | None = None,
        watch: Stopwatch | None = None,
        disk: LocalDisk | None = None,
        tasks: OrderedTasks | None = None,
    ) -> None:
        """copying: which row groups may be copied; None for none. disk: where their keys wait when memory is
        short. tasks: where chunks are decoded ahead."""
        self._watch = watch or Stopwatch()
        self.fragment = fragment
        self._source = source
        self._budget = budget
        self._target_row_group_bytes = target_row_group_bytes
        self._copying = copying
        self._disk = disk
        self._tasks = tasks
        self._held_bytes = 0
        """Bytes charged for blocks that were read and are not being decoded."""
        self._keys_ahead: _KeyGroup | None = None
        self._ahead: deque[Decoding] = deque()
        """Chunks of the current column that were read, and whose rows were not taken."""
        self._taken: list[Decoding] = []
        """Chunks whose rows were taken, until these are charged elsewhere."""
        self._dropped: DroppedRows | None = None
        self._converted: ConvertedRows | None = None
        self._next_chunk = 0
        """Number of the row group of the current column's next chunk."""
        self._stored: list[StoredKeys] = []
        """Stored keys in memory, and some that are no longer there."""
        self._stream: FragmentStream | None = None
        self.keys = new_rows()
        """Sort columns that are read and not merged yet."""
        self._rows = new_rows()
        self.column: str | None = None
        """The column that is read next; None before the first and after the last."""

    @property
    def name(self) -> str:
        return self.fragment.name

    def open(self, sort: SortSchema, schemas: InputSchemas) -> None:
        """Reads the header. Raises `InputMismatchError` if it does not fit `sort` and the table's schema."""
        source = self._source
        self._stream = FragmentStream(
            source,
            self.name,
            before_payload=self._before_payload,
            ahead_bytes=source.piece_bytes if isinstance(source, NearSource) else AHEAD_BYTES,
        )
        self._discharge_decode()
        header = self._stream.header
        if header.sort != sort:
            raise InputMismatchError(
                f"{self.name}: sorted by {', '.join(map(str, header.sort))} where the table sorts by "
                + ", ".join(map(str, sort)),
                name=self.name,
            )
        ours = schemas.of(header, self.name)
        if header.schema is not ours.schema:
            self._stream.header = header.with_schema(ours.schema)
        self._schema = schema = schemas.table
        self._is_as_wide = ours.is_as_wide
        if ours.is_converted and self._disk is not None:
            self._converted = ConvertedRows(self._budget, self._disk)
        self._key_names = [column.column for column in sort]
        self._key_types = [storage_type(schema.field(name).type) for name in self._key_names]
        if self.fragment.read_dropped is not None and self._disk is not None:
            bits = self.fragment.read_dropped()
            if bits is not None:
                self._dropped = DroppedRows(bits, self._budget, self._disk)
        self._begin_keys()

    @property
    def stream(self) -> FragmentStream:
        assert self._stream is not None, "open() comes first"
        return self._stream

    def load_keys(self) -> LoadedGroup | None:
        """Adds the next row group's sort columns to `keys`; None after the last with rows to be written."""
        while True:
            with self._watch.on("decode"):
                keys, self._keys_ahead = self._keys_ahead or self._read_keys(), None
                if keys is None:
                    self._next_column()
                    return None
                group = keys.number
                if self._dropped is not None:
                    self._dropped.begin_group(self.stream.row_group_rows[group])
                arrays = [
                    self._written_rows(chunk, name, dtype, group, is_first=not place)
                    for place, (chunk, name, dtype) in enumerate(
                        zip(keys.chunks, self._key_names, self._key_types, strict=True)
                    )
                ]
            if len(arrays[0]):
                break
            self._discharge_decode()
        blocks = [chunk.block for chunk in keys.chunks]
        stored = None
        is_whole = self._dropped is None or self._dropped.is_whole(group)
        if self._disk is not None and is_whole and self._may_copy(len(arrays[0])):
            self._stored = [held for held in self._stored if held.held_bytes]
            stored = StoredKeys(blocks, self._budget, self._disk)
            self._stored.append(stored)
        loaded = loaded_group(arrays, group, stored)
        del keys, blocks
        self.keys.push(arrays)
        self._discharge_decode()
        self._begin_keys()
        return loaded

    def _read_keys(self) -> _KeyGroup | None:
        """Reads the next row group's sort columns; None after the last."""
        blocks = self.stream.next_key_group()
        if blocks is None:
            return None
        number = len(self.stream.row_group_rows) - 1
        return _KeyGroup(
            number,
            [
                self._decoding(block, self._stored_type(name, dtype))
                for block, name, dtype in zip(blocks, self._key_names, self._key_types, strict=True)
            ],
        )

    def _begin_keys(self) -> None:
        """Begins to decode the next row group's sort columns, if there is room for them."""
        if self._tasks is None or not may_decode_ahead(self._budget, self._target_row_group_bytes):
            return
        self._keys_ahead = self._read_keys()
        if self._keys_ahead is not None:
            for chunk in self._keys_ahead.chunks:
                chunk.begin(self._tasks)

    def _may_copy(self, rows: int) -> bool:
        """Returns whether a row group of this many rows is as good as one that the merge would make of it."""
        rule = self._copying
        if rule is None or rows > rule.max_rows:
            return False
        if not self._is_as_wide:
            return False
        size = rows * self.fragment.mean_row_bytes
        is_small = (
            rows * _MIN_DIVISOR < rule.max_rows and size * _MIN_DIVISOR < rule.row_group_bytes
        )
        is_heavy = rows > 1 and size > OVERSHOOT_FACTOR * rule.row_group_bytes
        return (
            not (is_small or is_heavy)
            and _compression_level(self.stream.header) >= rule.compression_level
        )

    def row_bytes(self, group_rows: int) -> int:
        """Estimates the bytes of a row in the heaviest column, for a row group of `group_rows` rows.

        Row groups were cut by the heaviest column, so one of few rows has heavy rows.
        """
        fragment = self.fragment
        if group_rows >= self.stream.header.max_rows:
            return fragment.mean_row_bytes
        by_group = -(-self._target_row_group_bytes // group_rows)
        return max(fragment.mean_row_bytes, min(fragment.peak_row_bytes, by_group))

    @property
    def disk_rows(self) -> int:
        """Rows of the current column that were decoded and wait on disk."""
        return self._rows.rows

    def take_part(self, dtype: pa.DataType) -> tuple[pa.Array, int]:
        """Returns some of the current column's next rows, dictionary-coded if they are stored so, and what
        they are charged to `DecodedRows`; the caller must discharge it."""
        if self._rows.rows:
            return self._rows.take_part()
        with self._watch.on("decode"):
            self._skip_dropped()
            array = self._take_chunk(dtype)
        part = self._rows.pass_on(array)
        self._discharge_decode()
        return part

    def put_back(self, array: pa.Array) -> None:
        """Takes back rows of the current column, and keeps them on disk until they are taken again."""
        self._rows.put_back(array)

    def decode_ahead(self, dtype: pa.DataType, rows: int) -> None:
        """Begins to decode the chunks that have the current column's next `rows` rows, as far as there is
        room. There must be so many."""
        if self._tasks is None or self._dropped is not None:
            return  # how many rows a chunk leaves is known only once deleted ones are out
        missing = rows - self._rows.rows - sum(chunk.rows for chunk in self._ahead)
        while missing > 0 and may_decode_ahead(self._budget, self._target_row_group_bytes):
            chunk = self._next_chunk_of(dtype)
            chunk.begin(self._tasks)
            self._ahead.append(chunk)
            missing -= chunk.rows

    def next_block(self) -> Block:
        """Returns the current column's next chunk as stored; all rows before it must have been taken."""
        assert not self._rows.rows
        assert not self._ahead
        with self._watch.on("decode"):
            self._skip_dropped()
            block = self.stream.next_chunk()
            self._next_chunk += 1
        self._discharge_decode()
        return block

    def _take_chunk(self, dtype: pa.DataType) -> pa.Array:
        """Returns the rows to be written of the current column's next chunk, and hashes the others."""
        chunk = self._ahead.popleft() if self._ahead else self._next_chunk_of(dtype)
        array = self._written_rows(chunk, self._column_name, dtype, self._next_chunk)
        self._next_chunk += 1
        return array

    def _next_chunk_of(self, dtype: pa.DataType) -> Decoding:
        """Reads the current column's next chunk."""
        stored = self._stored_type(self._column_name, dtype)
        keep = self._converted is None and stored == dtype
        return self._decoding(self.stream.next_chunk(), stored, keep_templates=keep)

    def _skip_dropped(self) -> None:
        """Takes chunks of row groups without a row to be written."""
        dropped = self._dropped
        if dropped is None:
            return
        groups = len(self.stream.row_group_rows)
        while self._next_chunk < groups and dropped.is_gone(self._next_chunk):
            self._take_chunk(storage_type(self.stream.header.schema.field(self._column_name).type))
            self._discharge_decode()

    @property
    def _column_name(self) -> str:
        assert self.column is not None
        return self.column

    def end_column(self) -> str | None:
        """Moves to the next column, once all rows of the current one were taken.

        Returns the next one's name.
        """
        assert not self._rows.rows
        self._rows.clear()
        with self._watch.on("decode"):
            self._skip_dropped()
            self._next_column()
        return self.column

    def _is_wanted(self, column: str) -> bool:
        """Returns whether the table has the column. Uses the shared schema, as copies of thousands of names
        would add up."""
        return bool(self._schema.get_field_index(column) >= 0)

    def _next_column(self) -> None:
        """Moves to the next column that the table has."""
        self._next_chunk = 0
        self.column = self.stream.next_column()
        while self.column is not None and not self._is_wanted(self.column):
            dtype = storage_type(self.stream.header.schema.field(self.column).type)
            for _ in self.stream.row_group_rows:
                self._take_chunk(dtype)
                self._discharge_decode()
            self._next_chunk = 0
            self.column = self.stream.next_column()

    def finish(self, copied: CopiedRowGroups | None = None) -> tuple[int, int]:
        """Reads footer and trailer. Returns the number and the row hash of the rows to be written.

        copied: takes the footer's statistics of copied row groups.
        Raises `InputMismatchError` if the input is not the fragment that the log describes.
        """
        if copied is None:
            footer = self.stream.finish_quickly()
        else:
            directory = self.stream.finish(self._taking(copied))
            copied.take_row_hashes(directory)
            footer = directory.head
        self._discharge_decode()
        if (footer.rows, footer.row_hash) != (self.fragment.rows, self.fragment.row_hash):
            raise InputMismatchError(
                f"{self.name}: its footer says {footer.rows} rows of hash {footer.row_hash:016x}, the "
                f"table's log {self.fragment.rows} rows of hash {self.fragment.row_hash:016x}",
                name=self.name,
            )
        rows, row_hash = footer.rows, footer.row_hash
        if self._dropped is not None:
            rows -= self._dropped.rows
            row_hash = combine(row_hash, -self._dropped.row_hash())
        if self._converted is None:
            return rows, row_hash
        if self._converted.stored_hash() != row_hash:
            raise MergeCheckError(
                f"{self.name}: its rows hash to {self._converted.stored_hash():016x} as they were read, to "
                f"{row_hash:016x} by its footer; nothing was written, the inputs are untouched"
            )
        return rows, self._converted.written_hash()

    def _taking(self, copied: CopiedRowGroups) -> TakeColumn:
        """Returns what takes the statistics of copied row groups, and lets go of the page that has them."""

        def take(name: str, chunks: Sequence[ChunkStats]) -> None:
            copied.take_column(name, chunks)
            self._discharge_decode()

        return take

    @property
    def dropped_rows(self) -> int:
        """Number of rows that are not written again."""
        return 0 if self._dropped is None else self._dropped.rows

    def spill_row_hashes(self) -> int:
        """Moves hashes of dropped rows to disk. Returns how many bytes that frees."""
        parts = [part for part in (self._dropped, self._converted) if part is not None]
        return sum(part.spill() for part in parts)

    @property
    def spillable_bytes(self) -> int:
        stored = sum(held.held_bytes for held in self._stored)
        return self.keys.spillable_bytes + self._rows.spillable_bytes + stored

    def spill(self) -> int:
        """Moves decoded rows to disk. Returns how many bytes that frees."""
        stored = sum(held.spill() for held in self._stored)
        return self.keys.spill() + self._rows.spill() + stored

    def clear(self) -> None:
        """Drops all decoded rows, and chunks that were decoded ahead. No thread may be decoding."""
        self.keys.clear()
        self._rows.clear()
        if self._keys_ahead is not None:
            self._taken.extend(self._keys_ahead.chunks)
            self._keys_ahead = None
        self._taken.extend(self._ahead)
        self._ahead.clear()
        self._discharge_decode()
        for held in self._stored:
            held.drop()

    def close(self) -> None:
        """Releases all memory."""
        self.clear()
        for part in (self._dropped, self._converted):
            if part is not None:
                part.close()

    def _decoding(
        self, block: Block, dtype: pa.DataType, *, keep_templates: bool = False
    ) -> Decoding:
        """Returns the decoding of a chunk that was just read, which takes over its charge."""
        held = _payload_bytes(block.header)
        self._held_bytes -= held
        return Decoding(block, dtype, self._budget, held, keep_templates=keep_templates)

    def _stored_type(self, name: str, dtype: pa.DataType) -> pa.DataType:
        """Returns the storage type in which the input has a column that is of `dtype` in the table."""
        if self._is_as_wide:
            return dtype
        stored = storage_type(self.stream.header.schema.field(name).type)
        return dtype if pt.is_null(stored) else stored

    def _written_rows(
        self, chunk: Decoding, name: str, dtype: pa.DataType, group: int, *, is_first: bool = False
    ) -> pa.Array:
        """Returns a chunk's rows to be written, in the table's type.

        is_first: whether it is the row group's first chunk.
        """
        self._taken.append(chunk)
        stored = self._stored_type(name, dtype)
        array = chunk.result(self._tasks, self._watch)
        if self._dropped is not None:
            array = self._dropped.split(group, name, array)
        if self._converted is None:
            return array if stored == dtype else widened(array, dtype)
        if is_first:
            self._converted.begin_group(len(array))
        converted = array if stored == dtype else self._convert(array, dtype, name)
        is_written = self._is_wanted(name)
        self._converted.note(group, name, array, converted if is_written else None)
        return converted

    def _convert(self, array: pa.Array, dtype: pa.DataType, name: str) -> pa.Array:
        try:
            return widened(array, dtype)
        except pa.ArrowInvalid as error:
            raise InputMismatchError(
                f"{self.name}: column {name!r}: a value of {array.type} has no place in {dtype}, which the "
                f"table has now: {error}",
                name=self.name,
            ) from error

    def _before_payload(self, header: BlockHeader) -> None:
        """Charges a block's payload, stored and decompressed, before it takes memory."""
        size = _payload_bytes(header)
        self._budget.charge(DECODE, size)
        self._held_bytes += size

    def _discharge_decode(self) -> None:
        """Releases what decoding took, once its rows are charged elsewhere or dropped."""
        for chunk in self._taken:
            chunk.close()
        self._taken.clear()
        self._budget.discharge(DECODE, self._held_bytes)
        self._held_bytes = 0


@dataclass(frozen=True, slots=True)
class _KeyGroup:
    """The sort columns of one row group, as they were read."""

    number: int
    chunks: Sequence[Decoding]


def _payload_bytes(header: BlockHeader) -> int:
    return header.stored_bytes + header.raw_bytes


def _compression_level(header: FragmentHeader) -> int:
    """Returns the compression level that the writer states; 0 if it states none."""
    try:
        return int(header.writer["options"]["compression_level"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0
