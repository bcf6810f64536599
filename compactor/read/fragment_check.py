"""Checks one fragment in one pass: checksums, order, values, statistics, and its entry in the log.

One GET reads the fragment from front to back. Threads decode, hash and check the chunks; their results are
combined in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from compactor.common.message import Message
from compactor.errors import DataError, FragmentMissingError, ObjectNotFoundError, message_of
from compactor.read.limits import AHEAD_BYTES
from compactor.read.skip_indexes import read_index
from compactor.read.steps import Step, in_order
from compactor.stores.base import Store
from compactor.stores.resume import ResumingStream
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.missing import missing_explained
from compactor.table.not_null import null_place
from compactor.table.windows import window_numbers
from lsm_fragment.arrays.cast import exact_range, widened
from lsm_fragment.arrays.hashing import column_contributions, fold_rows
from lsm_fragment.arrays.types import storage_type, value_type
from lsm_fragment.arrays.widening import is_stored_as
from lsm_fragment.container.block import Block
from lsm_fragment.container.directory import Directory
from lsm_fragment.container.footer import ChunkStats, FragmentSummary
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.bounds import Bound, key_at
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.normalised import key_columns
from lsm_fragment.keys.sort_schema import ordering
from lsm_fragment.threads import ThreadPool

_U64 = npt.NDArray[np.uint64]
_ROW_BYTES: Final = 16
"""Minimum memory per row of a chunk, decoded and hashed."""


class CheckedFragment(Struct):
    """The findings of one fragment."""

    rows: int = 0
    """Rows that are not deleted."""
    bytes_read: int = 0
    first_key: Bound | None = None
    last_key: Bound | None = None
    faults: list[str] = field(default_factory=list)


def check_fragment(
    store: Store, table: TableMetadata, entry: FragmentEntry, pool: ThreadPool
) -> CheckedFragment:
    """Reads all of a fragment, its deletion and its skip indexes.

    Raises `StoreError` only if the store cannot be reached or refuses a request, `OvertakenError` if a vacuum
    removes the fragment meanwhile.
    """
    check = _FragmentCheck(store, table, entry, pool)
    found = check.found
    try:
        with missing_explained(store, entry.key, entry.key):
            check.run()
        deleted = read_deletion(store, entry)
        found.rows -= 0 if deleted is None else deleted.true_count
        for column in () if entry.skip_index is None else entry.skip_index.columns:
            place = table.schema.get_field_index(column)
            dtype = pa.null() if place < 0 else table.schema.field(place).type
            read_index(store, entry, column, dtype)
    except (FormatError, DataError, FragmentMissingError) as error:
        found.faults.append(message_of(error))
    except ObjectNotFoundError as error:
        found.faults.append(Message(message_of(error), ": the log refers to it"))
    return found


class _Chunk(Struct, frozen=True):
    """The findings of one chunk."""

    column: str
    null_count: int
    misfit: str | None
    """Why the values violate the table's schema; None if they fit."""
    hashes: _U64
    """The column's contribution to each row's hash. Shape (rows,)."""


class _KeyGroup(Struct, frozen=True):
    """The findings of a row group's sort columns."""

    offset: int
    first: Bound
    last: Bound
    faults: list[str]
    chunks: list[_Chunk]


class _FragmentCheck:
    """A check of one fragment. Its threads only read it."""

    def __init__(
        self, store: Store, table: TableMetadata, entry: FragmentEntry, pool: ThreadPool
    ) -> None:
        self._store = store
        self._table = table
        self._entry = entry
        self._pool = pool
        self._name = f"{store.url}/{entry.key}"
        self._compare: KeyComparator = table.comparator()
        self._numbers: list[_U64] = []
        self._nulls: dict[str, list[int]] = {}
        self._keys: list[tuple[Bound, Bound]] = []
        self._misfits: set[str] = set()
        self.found = CheckedFragment()

    def run(self) -> None:
        source = ResumingStream(self._store, self._entry.key)
        try:
            stream = FragmentStream(source, self._name)
            self._check_header(stream)
            for group in in_order(self._key_groups(stream), self._pool, AHEAD_BYTES):
                self._take_keys(group)
            for number, chunk in in_order(self._chunks(stream), self._pool, AHEAD_BYTES):
                self._take_chunk(number, chunk)
            summary = FragmentSummary()

            def take(name: str, chunks: Sequence[ChunkStats]) -> None:
                summary.add_column(name, chunks, stream.row_group_rows)
                self._check_nulls(name, chunks)

            directory = stream.finish(take)
            self.found.bytes_read = stream.bytes_read
        finally:
            source.close()
        self._check_directory(directory, summary)

    def _check_header(self, stream: FragmentStream) -> None:
        if stream.header.sort != self._table.sort:
            self._fault("its sort schema differs from the table's")
        for column in stream.header.schema:
            known = self._table.schema
            if column.name in self._table.retired:
                continue
            if known.get_field_index(column.name) < 0 or not is_stored_as(
                column.type, known.field(column.name).type
            ):
                self._fault(
                    f"column {column.name!r} of type {column.type} does not fit the table's schema"
                )

    # --- in threads ---

    def _key_groups(self, stream: FragmentStream) -> Iterator[Step[_KeyGroup]]:
        """Yields a step for the sort columns of each row group."""
        number = 0
        while (blocks := stream.next_key_group()) is not None:
            size = sum(map(_held_bytes, blocks))
            yield Step(partial(self._checked_keys, stream, number, blocks), size)
            number += 1

    def _chunks(self, stream: FragmentStream) -> Iterator[Step[tuple[int, _Chunk]]]:
        """Yields a step for each chunk outside the sort schema, with the number of its row group."""
        while (name := stream.next_column()) is not None:
            for number in range(len(stream.row_group_rows)):
                block = stream.next_chunk()
                yield Step(
                    partial(self._checked_values, stream, number, name, block), _held_bytes(block)
                )

    def _checked_keys(
        self, stream: FragmentStream, number: int, blocks: Sequence[Block], pool: ThreadPool
    ) -> Iterator[_KeyGroup]:
        names = [column.column for column in stream.header.sort]
        keys = pool.each(
            lambda named: self._decoded(stream, *named), zip(names, blocks, strict=True)
        )
        offset, faults = blocks[0].offset, []
        ordered = keys[: len(ordering(self._table.sort))]
        first, last = key_at(ordered, 0), key_at(ordered, len(keys[0]) - 1)
        if (row := self._row_outside_window(keys)) is not None:
            faults.append(
                f"byte {offset}: row {row} of row group {number} is not in time window "
                f"{self._entry.window}"
            )
        row = key_columns(keys, self._table.sort).first_disorder()
        if row is not None:
            faults.append(f"byte {offset}: row {row} of row group {number} is out of order")
        chunks = pool.each(lambda named: self._checked(*named), zip(names, keys, strict=True))
        return iter([_KeyGroup(offset, first, last, faults, chunks)])

    def _checked_values(
        self, stream: FragmentStream, number: int, name: str, block: Block, _pool: ThreadPool
    ) -> Iterator[tuple[int, _Chunk]]:
        return iter([(number, self._checked(name, self._decoded(stream, name, block)))])

    def _decoded(self, stream: FragmentStream, name: str, block: Block) -> pa.Array:
        dtype = storage_type(stream.header.schema.field(name).type)
        return block.decode(dtype, keep_dictionary=True)

    def _checked(self, name: str, array: pa.Array) -> _Chunk:
        hashes = column_contributions(name, array)
        return _Chunk(name, array.null_count, self._misfit(name, array), hashes)

    def _row_outside_window(self, keys: list[pa.Array]) -> int | None:
        windows = self._table.windows
        if windows is None:
            return None
        index = [column.column for column in self._table.sort].index(windows.column)
        dtype = self._table.schema.field(windows.column).type
        numbers, known = window_numbers(keys[index], dtype, windows)
        inside = ~known if self._entry.window is None else known & (numbers == self._entry.window)
        return None if inside.all() else int(np.argmin(inside))

    def _misfit(self, name: str, array: pa.Array) -> str | None:
        """Returns why the table's type cannot hold the values or their nulls; None if it can."""
        place = self._table.schema.get_field_index(name)
        if place < 0:
            return None
        field, shown = self._table.schema.field(place), self._table.shown_name(name)
        try:
            null = null_place(array, field.with_name(shown))
            if exact_range(value_type(array.type), storage_type(field.type)) is not None:
                widened(array, storage_type(field.type))
        except pa.ArrowInvalid as error:
            return f"column {shown!r} does not fit the table's type: {error}"
        return None if null is None else f"{null!r} has a null, which the table does not allow"

    # --- in order ---

    def _take_keys(self, group: _KeyGroup) -> None:
        for fault in group.faults:
            self._fault(fault)
        found, number = self.found, len(self._keys)
        if found.last_key is not None and self._compare.key(group.first) < self._compare.key(
            found.last_key
        ):
            self._fault(
                f"byte {group.offset}: row group {number} begins before the previous one ends"
            )
        self._keys.append((group.first, group.last))
        found.first_key = group.first if found.first_key is None else found.first_key
        found.last_key = group.last
        rows = len(group.chunks[0].hashes)
        self._numbers.append(np.zeros(rows, dtype=np.uint64))
        found.rows += rows
        for chunk in group.chunks:
            self._take_chunk(number, chunk)

    def _take_chunk(self, number: int, chunk: _Chunk) -> None:
        self._numbers[number] += chunk.hashes
        self._nulls.setdefault(chunk.column, []).append(chunk.null_count)
        if chunk.misfit is not None and chunk.column not in self._misfits:
            self._misfits.add(chunk.column)
            self._fault(chunk.misfit)

    def _check_nulls(self, name: str, chunks: Sequence[ChunkStats]) -> None:
        if [chunk.null_count for chunk in chunks] != self._nulls.get(name, []):
            self._fault(f"column {name!r}: its null counts differ from the footer's")

    def _check_directory(self, directory: Directory, columns: FragmentSummary) -> None:
        """Checks row groups and log entry. columns: a summary with only the columns filled in."""
        self._check_log(directory, columns)
        for number, (stats, numbers) in enumerate(
            zip(directory.row_groups, self._numbers, strict=True)
        ):
            if fold_rows(numbers) != stats.row_hash:
                self._fault(f"row group {number}: the row hash does not match its rows")
            first, last = self._keys[number]
            if self._compare.key(stats.first_key) > self._compare.key(first) or self._compare.upper(
                stats.last_key
            ) < self._compare.key(last):
                self._fault(f"row group {number}: its keys are outside the footer's bounds")

    def _check_log(self, directory: Directory, columns: FragmentSummary) -> None:
        entry = self._entry
        summary = replace(
            columns,
            rows=directory.head.rows,
            row_hash=directory.head.row_hash,
            row_groups=len(directory.row_groups),
            first_key=self.found.first_key or (),
            last_key=self.found.last_key or (),
        )
        stated = FragmentEntry.from_summary(
            entry.key,
            summary,
            size_bytes=self.found.bytes_read,
            level=entry.level,
            run=entry.run,
            window=entry.window,
        )
        wrong = [
            name
            for name, value in stated.to_json().items()
            if name != "sequence" and value != entry.to_json()[name]
        ]
        if wrong:
            self._fault(f"the table's log and the fragment disagree on {', '.join(wrong)}")

    def _fault(self, cause: str) -> None:
        self.found.faults.append(f"{self._name}: {cause}")


def _held_bytes(block: Block) -> int:
    """Estimates the memory of a chunk: stored, decoded and hashed."""
    header = block.header
    return header.stored_bytes + max(header.raw_bytes, _ROW_BYTES * header.rows)
