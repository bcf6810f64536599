"""Writes rows to level-0 fragments, which are invisible until committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.files.source import FileBatches
from compactor.predicate.skipping.packed import NO_BLOCK, BlockPlace, pack
from compactor.predicate.skipping.summary import build as build_summary
from compactor.rows.flags import RowRule, RowStatistics
from compactor.rows.fold import FoldError
from compactor.stores.base import Store, create_own
from compactor.table.entry import FragmentEntry, SkipIndex
from compactor.table.object_names import fragment_key, skip_index_key
from compactor.table.windows import rows_by_window
from compactor.write.ingest.conformed import OnRows, conformed_rows, ignore_rows
from compactor.write.ingest.incoming import IncomingRows, check_stored
from compactor.write.ingest.plan import IngestPlan
from compactor.write.ingest.sorting import SortedRows
from lsm_fragment.arrays.sizes import HeldBytes
from lsm_fragment.container.writer import FragmentSequence, FragmentWriter
from lsm_fragment.threads import ALONE, ThreadPool, Work

_MIN_ROW_BYTES: Final = 16
"""Minimum weight of a row: its entry in the sort order, even if the row itself is smaller."""
_ARRAY_BYTES: Final = 2048
"""Memory of a column's objects in each part, beside its values: most of a file of one row is that."""
ByteProgress = Callable[[int, int], None]
"""A progress callback: gets the consumed bytes and the size of the file."""


@dataclass(frozen=True, slots=True)
class WrittenFragments:
    """Uncommitted fragments, in the order of their rows."""

    entries: list[FragmentEntry]
    rows: int
    """Rows read."""


def write_fragments(
    store: Store, plan: IngestPlan, file: FileBatches, attempt_id: str
) -> WrittenFragments:
    """Writes a file's rows; nothing is visible before `commit_fragments`.

    attempt_id: unique to this call. Raises `InputError`, and `FoldError` for a sum that overflows.
    """
    with closing(FragmentsOfFiles(store, plan, attempt_id)) as fragments:
        fragments.add(file)
        return fragments.finish()


class _DroppedError(Exception):
    """Leaves the upload of a fragment that nobody wants any more."""


def _drop(opened: ExitStack) -> None:
    with suppress(_DroppedError), opened:
        raise _DroppedError


class _Storing(Struct, frozen=True):
    """A fragment whose rows are encoded, while the rest is done."""

    work: Work[FragmentEntry]
    entries: list[FragmentEntry]
    """Where its entry belongs."""
    opened: ExitStack
    """Its upload and its writer, which the work closes."""

    def drop(self) -> None:
        if not self.work.cancel():
            self.work.wait()
        _drop(self.opened)  # does nothing if the work has closed it


class _Held:
    """Rows that wait to be written, and the files that they complete."""

    def __init__(self, entries: list[FragmentEntry] | None = None) -> None:
        """entries: of the same file's rows before these."""
        self.entries = [] if entries is None else entries
        self.paths: list[str] = []
        self.file_rows = 0
        """Rows of the files, with those in `entries`."""
        self.parts: list[IncomingRows] = []
        self.rows = 0
        self.bytes = 0
        """Of the values."""
        self._arrays = 0
        self._held = HeldBytes()

    @property
    def memory(self) -> int:
        return self.bytes + self._arrays * _ARRAY_BYTES

    def add(self, part: IncomingRows) -> None:
        self.parts.append(part)
        self.rows += part.rows
        self._arrays += part.batch.num_columns
        self.bytes += max(self._held.add(part.batch), part.rows * _MIN_ROW_BYTES)

    def join(self, other: _Held) -> None:
        """Takes over rows and files, whose fragments so far are all stored."""
        self.entries += other.entries
        self.paths += other.paths
        self.file_rows += other.file_rows
        self.parts += other.parts
        self.rows += other.rows
        self.bytes += other.bytes
        self._arrays += other._arrays


class FragmentsOfFiles:
    """Writes the rows of files, which follow each other, as fragments: of small files several together.

    A fragment has rows of a part of a file, or of whole files: a file that fails is left out of all. If a
    fragment fails, all files with rows in it are left out. While a fragment is compressed and stored in
    another thread, the rows of the next one are read, sorted and encoded; what a fragment fails by there is
    raised before the next one is stored.
    """

    def __init__(
        self,
        store: Store,
        plan: IngestPlan,
        attempt_id: str,
        *,
        pool: ThreadPool = ALONE,
        sequence: FragmentSequence | None = None,
        on_rows: OnRows = ignore_rows,
    ) -> None:
        """plan: of all files, but for its path. sequence: see `FragmentWriter`."""
        self._plan = plan
        self._on_rows = on_rows
        self._store = store
        self._metadata = plan.metadata
        self._schema = plan.schema
        self._options = options = plan.options
        self._base_version = plan.base_version
        self._attempt_id = attempt_id
        self._pool = pool
        self._sequence = FragmentSequence() if sequence is None else sequence
        self._rows_per_fragment = plan.rows_per_fragment
        self._enough_rows = min(plan.rows_per_fragment, options.writer.max_rows // 2)
        """Files with fewer rows, and fewer bytes, share a fragment with the next one."""
        self._enough_bytes = min(options.buffer_bytes, options.writer.target_row_group_bytes // 2)
        self._waiting = _Held()
        """Files read to their end."""
        self._file: FileBatches | None = None
        """The file read last."""
        self._done: list[_Held] = []
        """Files whose rows are all in fragments, of which the last may not be stored yet."""
        self._storing: _Storing | None = None
        self._written = 0
        self._summaries: dict[str, list[bytes | None]] = {}
        """Skip index summaries by column, one per row group of the current fragment."""
        self._skips: list[bytes] = []
        self._skips_bytes = 0
        table = plan.metadata
        self._rule = RowRule(table.rows, table.ttl, plan.schema, table.sort, is_bottom=False)

    @property
    def files(self) -> int:
        """The number of files read to their end."""
        return len(self.paths) + len(self._waiting.paths)

    @property
    def paths(self) -> list[str]:
        """The files whose rows are all in fragments."""
        return [path for held in self._done for path in held.paths]

    @property
    def bytes_written(self) -> int:
        """Bytes of the fragments that are stored."""
        return sum(entry.size_bytes for entry in self._all_entries)

    @property
    def _all_entries(self) -> list[FragmentEntry]:
        return [entry for held in (*self._done, self._waiting) for entry in held.entries]

    def add(
        self, file: FileBatches, on_progress: ByteProgress = lambda _done, _total: None
    ) -> None:
        """Takes all rows of a file. If it raises, none of them is in a fragment that `finish` returns.

        Raises `InputError`, and `FoldError` for a sum that overflows.
        """
        self._file = file
        limit = self._rows_per_fragment
        own, rows = _Held(), 0
        for batch in conformed_rows(file, self._plan, self._on_rows):
            incoming, start = IncomingRows.of(batch), 0
            while start < incoming.rows:
                head = incoming.slice(start, limit - own.rows)
                start += head.rows
                rows += head.rows
                own.add(head)
                if own.rows >= limit or own.memory >= self._options.buffer_bytes:
                    self._write_waiting()
                    self._write_windows(own, [file.path])
                    own = _Held(own.entries)
            on_progress(file.bytes_consumed, file.bytes_total)
        if self._storing is not None and self._storing.entries is own.entries:
            self._settle()
        if not self._fits_waiting(own):
            self._write_waiting()
        own.paths, own.file_rows = [file.path], rows
        self._waiting.join(own)
        if self._is_enough(self._waiting) or not self._waiting.rows:
            self._write_waiting()

    def finish(self) -> WrittenFragments:
        """Writes the rows that wait, and the skip indexes, which entries refer to, of all fragments.

        If it raises, or `add` did, the next call finishes without the files with rows in what failed.
        """
        self._write_waiting()
        self._settle()
        if self._skips:
            create_own(self._store, self._skips_key, b"".join(self._skips))
        return WrittenFragments(self._all_entries, sum(held.file_rows for held in self._done))

    def discard(self) -> None:
        """Removes the fragments written, those of files that failed too, and their skip indexes."""
        with suppress(Exception):  # what fails leaves nothing to remove
            self._settle()
        for number in range(self._written):
            self._store.delete(fragment_key(self._base_version, self._attempt_id, number))
        if self._skips:
            self._store.delete(self._skips_key)

    def close(self) -> None:
        """Ends what is being stored. Idempotent."""
        storing, self._storing = self._storing, None
        if storing is not None:
            storing.drop()

    def _is_enough(self, held: _Held) -> bool:
        return held.rows >= self._enough_rows or held.bytes >= self._enough_bytes

    def _fits_waiting(self, own: _Held) -> bool:
        """Returns whether the rest of a file shares a fragment with the files before it."""
        return (
            not self._is_enough(own)
            and self._waiting.rows + own.rows <= self._rows_per_fragment
            and self._waiting.memory + own.memory <= self._options.buffer_bytes
        )

    def _write_waiting(self) -> None:
        held, self._waiting = self._waiting, _Held()
        if held.rows:
            self._write_windows(held, held.paths)
        held.parts = []
        self._done.append(held)

    def _write_windows(self, held: _Held, paths: Sequence[str]) -> None:
        """Writes one fragment, or one per time window of the rows."""
        windows = self._metadata.windows
        parts: dict[int | None, list[IncomingRows]] = {}
        if windows is None:
            parts[None] = held.parts
        else:
            for rows in held.parts:
                for window, places in rows_by_window(rows.batch, windows):
                    parts.setdefault(window, []).append(rows.take(places))
        try:
            for window, part in parts.items():
                self._write_fragment(part, window, paths, held.entries)
        except FoldError as error:
            text = f"{names_of_files(paths)}: {error}"
            raise FoldError(text, column=error.column, row=error.row) from None

    def _write_fragment(
        self,
        rows: list[IncomingRows],
        window: int | None,
        paths: Sequence[str],
        entries: list[FragmentEntry],
    ) -> None:
        """Encodes the rows of a fragment, and begins to store it.

        entries: gets its entry once it is stored. Raises what the fragment before failed by.
        """
        schema, sort = self._schema, self._metadata.sort
        key = fragment_key(self._base_version, self._attempt_id, self._written)
        self._summaries = {}
        opened = ExitStack()
        try:
            upload = opened.enter_context(self._store.start_upload(key))
            writer = opened.enter_context(
                FragmentWriter(
                    upload,
                    schema,
                    sort,
                    self._options.writer,
                    spool_memory_bytes=self._options.spool_memory_bytes,
                    on_row_group=self._summarise,
                    pool=self._pool,
                    sequence=self._sequence,
                )
            )
            row_statistics = RowStatistics()
            in_order = SortedRows(rows, schema, self._metadata, self._rule)
            for columns in in_order.columns():
                keys = [columns[column.column] for column in sort]
                row_statistics += self._rule.row_statistics(keys)
                writer.write_sorted(columns)
            writer.end_rows()
            expected, skip_index = in_order.row_hash, self._take_skips()
        except BaseException as error:
            _drop(opened)
            if isinstance(error, Exception):
                self._settle()  # the first error counts
            raise
        # A caller that has the core for itself begins the next file when it waits for the disk.
        file = self._file if self._pool.threads == 1 else None

        def store() -> FragmentEntry:
            with opened:
                written = writer.finish()
                summary = written.summary
                check_stored(names_of_files(paths), summary.rows, expected, summary.row_hash)
                if file is not None:
                    file.before_waiting()
                upload.complete()
            return FragmentEntry.from_summary(
                key,
                summary,
                size_bytes=written.bytes_written,
                level=0,
                run=key,
                window=window,
                row_statistics=row_statistics,
                skip_index=skip_index,
            )

        following = _Storing(Work(store), entries, opened)
        try:
            self._settle()
            self._storing = following
        finally:
            if self._storing is not following:
                following.drop()
        self._written += 1
        self._pool.queue(following.work)

    def _settle(self) -> None:
        """Waits until the last fragment is stored; if it failed, leaves its files out, and raises why."""
        if (storing := self._storing) is None:
            return
        try:
            storing.entries.append(self._pool.wait(storing.work))
        except BaseException:
            # Files behind it may have no rows: they are left out, too.
            found = (n for n, held in enumerate(self._done) if held.entries is storing.entries)
            del self._done[next(found, len(self._done)) :]
            storing.drop()
            raise
        finally:
            self._storing = None

    def _summarise(self, columns: dict[str, pa.Array]) -> None:
        spec = self._metadata.skips
        for name, kind in spec.columns:
            if name in columns:
                summary = build_summary(kind, columns[name], spec.bytes_per_row_group)
                self._summaries.setdefault(name, []).append(summary)

    def _take_skips(self) -> SkipIndex | None:
        """Returns the location of the last fragment's skip index.

        The blocks are buffered until all fragments are written.
        """
        places = dict.fromkeys((name for name, _ in self._metadata.skips.columns), NO_BLOCK)
        for name, summaries in self._summaries.items():
            if any(summary is not None for summary in summaries):
                block = pack(summaries)
                places[name] = BlockPlace.of(block, self._skips_bytes)
                self._skips.append(block)
                self._skips_bytes += len(block)
        self._summaries = {}
        return SkipIndex(self._skips_key, places) if places else None

    @property
    def _skips_key(self) -> str:
        return skip_index_key(self._base_version, self._attempt_id)


def names_of_files(paths: Sequence[str]) -> str:
    """Returns the names of files for errors that are about all of them."""
    return paths[0] if len(paths) == 1 else f"one of {len(paths)} files, {paths[0]} to {paths[-1]}"
