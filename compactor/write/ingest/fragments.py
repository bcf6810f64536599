"""Writes rows to level-0 fragments, which are invisible until committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.errors import InputError
from compactor.files.source import FileBatches
from compactor.predicate.skipping.packed import pack
from compactor.predicate.skipping.summary import build as build_summary
from compactor.rows.flags import RowRule, RowStatistics
from compactor.rows.fold import FoldError
from compactor.stores.base import Store, create_own
from compactor.table.entry import FragmentEntry, SkipIndex
from compactor.table.numbers import MAX_KEY_BYTES
from compactor.table.object_names import fragment_key, skip_index_key
from compactor.table.windows import rows_by_window
from compactor.write.file_schema import conform_batch
from compactor.write.ingest.columns import with_counts
from compactor.write.ingest.incoming import IncomingRows, check_stored
from compactor.write.ingest.plan import IngestPlan
from compactor.write.ingest.sorting import SortedRows
from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.sizes import HeldBytes, cumulative_bytes, heaviest_value_bytes
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.validity import ValueCheck
from lsm_fragment.container.writer import FragmentSequence, FragmentWriter
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import ordering
from lsm_fragment.names import names_text
from lsm_fragment.threads import ALONE, ThreadPool

_MIN_ROW_BYTES: Final = 16
"""Minimum weight of a row: its entry in the sort order, even if the row itself is smaller."""
ByteProgress = Callable[[int, int], None]
"""A progress callback: gets the consumed bytes and the size of the file."""


@dataclass(frozen=True, slots=True)
class WrittenFragments:
    """Uncommitted fragments, in the order of their rows."""

    entries: list[FragmentEntry]
    rows: int
    """Rows read."""


def write_fragments(
    store: Store,
    plan: IngestPlan,
    file: FileBatches,
    attempt_id: str,
    *,
    on_progress: ByteProgress = lambda _done, _total: None,
    pool: ThreadPool = ALONE,
    sequence: FragmentSequence | None = None,
) -> WrittenFragments:
    """Writes a file's rows; nothing is visible before `commit_fragments`.

    attempt_id: unique to this call. sequence: see `FragmentWriter`. Raises `InputError`, and `FoldError`
    for a sum that overflows.
    """
    sequence = FragmentSequence() if sequence is None else sequence
    writer = _FragmentsOfFile(store, plan, file, attempt_id, pool, sequence)
    try:
        entries = list(writer.write(on_progress))
    except FoldError as error:
        raise FoldError(f"{file.path}: {error}", column=error.column, row=error.row) from None
    writer.write_skips()
    return WrittenFragments(entries, writer.rows)


class _FragmentsOfFile:
    def __init__(
        self,
        store: Store,
        plan: IngestPlan,
        file: FileBatches,
        attempt_id: str,
        pool: ThreadPool,
        sequence: FragmentSequence,
    ) -> None:
        self._file = file
        self._names = plan.names
        self._store = store
        self._metadata = plan.metadata
        self._schema = plan.schema
        self._options = plan.options
        self._base_version = plan.base_version
        self._attempt_id = attempt_id
        self._pool = pool
        self._sequence = sequence
        self._written = 0
        self._summaries: dict[str, list[bytes | None]] = {}
        """Skip index summaries by column, one per row group of the current fragment."""
        self._skips: list[bytes] = []
        self._skips_bytes = 0
        self.rows = 0
        """Rows read so far."""
        table = plan.metadata
        self._rule = RowRule(table.rows, table.ttl, plan.schema, table.sort, is_bottom=False)

    def write(self, on_progress: ByteProgress) -> Iterator[FragmentEntry]:
        file, pending = self._file, list[IncomingRows]()
        rows, size, held = 0, 0, HeldBytes()
        shown, check = dict(self._metadata.names), ValueCheck()
        for raw in file:
            batch = with_counts(self._names.of(raw), self._metadata.rows)
            batch = conform_batch(batch, self._schema, file.path, shown)
            if not file.is_checked:
                batch = _checked(batch, check)
            self._check_keys(batch, file.path)
            self.rows += batch.num_rows
            incoming, start = IncomingRows.of(batch), 0
            while start < incoming.rows:
                head = incoming.slice(start, self._options.rows_per_fragment - rows)
                start += head.rows
                pending.append(head)
                rows += head.rows
                size += max(held.add(head.batch), head.rows * _MIN_ROW_BYTES)
                if rows >= self._options.rows_per_fragment or size >= self._options.buffer_bytes:
                    yield from self._write_windows(pending)
                    pending, rows, size, held = [], 0, 0, HeldBytes()
            on_progress(file.bytes_consumed, file.bytes_total)
        if pending:
            yield from self._write_windows(pending)

    def _check_keys(self, batch: pa.RecordBatch, path: str) -> None:
        names = [column.column for column in ordering(self._metadata.sort)]
        keys = [to_storage(batch.column(name)) for name in names]
        if sum(map(heaviest_value_bytes, keys)) <= MAX_KEY_BYTES:
            return
        sizes = np.sum([np.diff(cumulative_bytes(key)) for key in keys], axis=0)
        row = int(np.argmax(sizes)) if len(sizes) else 0
        if len(sizes) and sizes[row] > MAX_KEY_BYTES:
            shown = map(self._metadata.shown_name, names)
            raise InputError(
                f"{path}, row {self.rows + row + 1:,}: its sort columns ({names_text(shown)}) take "
                f"{sizes[row]:,} bytes, more than {MAX_KEY_BYTES:,}: shorten their values, or sort the table "
                "by other columns"
            )

    def _write_windows(self, pending: list[IncomingRows]) -> Iterator[FragmentEntry]:
        """Writes one fragment, or one per time window of the rows."""
        windows = self._metadata.windows
        if windows is None:
            yield self._write_fragment(pending, None)
            return
        parts: dict[int | None, list[IncomingRows]] = {}
        for rows in pending:
            for window, places in rows_by_window(rows.batch, windows):
                parts.setdefault(window, []).append(rows.take(places))
        for window, part in parts.items():
            yield self._write_fragment(part, window)

    def _write_fragment(self, rows: list[IncomingRows], window: int | None) -> FragmentEntry:
        schema, sort = self._schema, self._metadata.sort
        key = fragment_key(self._base_version, self._attempt_id, self._written)
        with (
            self._store.start_upload(key) as upload,
            FragmentWriter(
                upload,
                schema,
                sort,
                self._options.writer,
                spool_memory_bytes=self._options.spool_memory_bytes,
                on_row_group=self._summarise,
                pool=self._pool,
                sequence=self._sequence,
            ) as writer,
        ):
            row_statistics = RowStatistics()
            in_order = SortedRows(rows, schema, self._metadata, self._rule)
            for columns in in_order.columns():
                keys = [columns[column.column] for column in sort]
                row_statistics += self._rule.row_statistics(keys)
                writer.write_sorted(columns)
            written = writer.finish()
            summary = written.summary
            check_stored(self._file.path, summary.rows, in_order.row_hash, summary.row_hash)
            self._file.before_waiting()
            upload.complete()
        self._written += 1
        return FragmentEntry.from_summary(
            key,
            written.summary,
            size_bytes=written.bytes_written,
            level=0,
            run=key,
            window=window,
            row_statistics=row_statistics,
            skip_index=self._take_skips(),
        )

    def _summarise(self, columns: dict[str, pa.Array]) -> None:
        spec = self._metadata.skips
        for name, kind in spec.columns:
            if name in columns:
                summary = build_summary(kind, columns[name], spec.bytes_per_row_group)
                self._summaries.setdefault(name, []).append(summary)

    def _take_skips(self) -> SkipIndex | None:
        """Returns the location of the last fragment's skip index.

        The blocks are buffered until all fragments are written (`write_skips`).
        """
        places = dict.fromkeys((name for name, _ in self._metadata.skips.columns), (0, 0))
        for name, summaries in self._summaries.items():
            if any(summary is not None for summary in summaries):
                block = pack(summaries)
                places[name] = self._skips_bytes, len(block)
                self._skips.append(block)
                self._skips_bytes += len(block)
        self._summaries = {}
        return SkipIndex(self._skips_key, places) if places else None

    def write_skips(self) -> None:
        """Writes the skip indexes. Must precede the commit, since the entries refer to them."""
        if self._skips:
            create_own(self._store, self._skips_key, b"".join(self._skips))

    @property
    def _skips_key(self) -> str:
        return skip_index_key(self._base_version, self._attempt_id)


def _checked(batch: pa.RecordBatch, check: ValueCheck) -> pa.RecordBatch:
    """Returns the rows in canonical form. Raises `SchemaError` for invalid values."""
    try:
        return canonical(batch, check.check)
    except ValueError as error:
        raise SchemaError(str(error)) from error
