"""Verifies a table by reading all of it: log and checkpoints, checksums, order, statistics, counts and
disjointness of sorted runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from compactor.errors import DataError, ObjectNotFoundError
from compactor.read.read_reports import VerifyReport
from compactor.read.skip_indexes import read_index
from compactor.stores.base import Store
from compactor.stores.resume import ResumingStream
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.not_null import null_place
from compactor.table.overtaken import overtaken_explained
from compactor.table.repair import log_faults
from compactor.table.snapshot import Snapshot
from compactor.table.windows import window_numbers
from format.cast import exact_range, widened
from format.directory import Directory
from format.errors import FormatError
from format.footer import ChunkStats, FragmentSummary
from format.hashing import add_column, fold_rows
from format.key_comparator import KeyComparator
from format.keys import Bound, key_at
from format.ordering import key_columns
from format.schema import ordering
from format.stream_reader import FragmentStream
from format.types import storage_type
from format.widening import is_stored_as


def verify(
    store: Store,
    snapshot: Snapshot,
    *,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> VerifyReport:
    """Reads all fragments of a snapshot and the whole log with its checkpoints.

    Reports faults instead of raising them. Counts rows without the deleted ones.

    on_progress: called with the number of fragments read so far.
    Raises `StoreError` only if the store cannot be reached or refuses a request, `OvertakenError` if a vacuum
    removes the version meanwhile.
    """
    report = VerifyReport(snapshot.version, faults=log_faults(store))
    exact: dict[str, tuple[Bound, Bound]] = {}
    for entry in snapshot.by_age():
        check = _FragmentCheck(store, snapshot.table, entry)
        try:
            with overtaken_explained(store, entry.key):
                check.run()
            deleted = read_deletion(store, entry)
            check.rows -= 0 if deleted is None else deleted.true_count
            for column in () if entry.skip_index is None else entry.skip_index.columns:
                place = snapshot.table.schema.get_field_index(column)
                dtype = pa.null() if place < 0 else snapshot.table.schema.field(place).type
                read_index(store, entry, column, dtype)
        except (FormatError, DataError) as error:
            check.faults.append(str(error))
        except ObjectNotFoundError as error:
            check.faults.append(f"{error}: the log refers to it")
        report.fragments += 1
        report.rows += check.rows
        report.bytes_read += check.bytes_read
        report.faults += check.faults
        if check.first_key is not None and check.last_key is not None:
            exact[entry.key] = (check.first_key, check.last_key)
        on_progress(report.fragments)
    report.faults += _overlaps_within_runs(store, snapshot, exact)
    return report


def _overlaps_within_runs(
    store: Store, snapshot: Snapshot, exact: dict[str, tuple[Bound, Bound]]
) -> list[str]:
    compare = snapshot.table.key_comparator()
    runs: dict[str, list[tuple[Any, Any, str]]] = {}
    for entry in snapshot.fragments.values():
        if entry.key in exact:
            first, last = exact[entry.key]
            runs.setdefault(entry.sorted_run, []).append(
                (compare.key(first), compare.key(last), entry.key)
            )
    faults = []
    for ranges in runs.values():
        ranges.sort(key=lambda item: item[0])
        for (_, last, key), (first, _, next_key) in itertools.pairwise(ranges):
            if first <= last:
                faults.append(
                    f"{store.url}/{next_key}: its keys overlap those of {key}, of the same sorted run"
                )
    return faults


class _FragmentCheck:
    """A check of one fragment in one pass."""

    def __init__(self, store: Store, table: TableMetadata, entry: FragmentEntry) -> None:
        self._store = store
        self._table = table
        self._entry = entry
        self._name = f"{store.url}/{entry.key}"
        self._compare: KeyComparator = table.comparator()
        self._numbers: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        self._nulls: dict[str, list[int]] = {}
        self._keys: list[tuple[Bound, Bound]] = []
        self._misfits: set[str] = set()
        self.rows = 0
        self.bytes_read = 0
        self.faults: list[str] = []
        self.first_key: Bound | None = None
        self.last_key: Bound | None = None

    def run(self) -> None:
        source = ResumingStream(self._store, self._entry.key)
        try:
            stream = FragmentStream(source, self._name)
            self._check_header(stream)
            self._check_keys(stream)
            while (name := stream.next_column()) is not None:
                dtype = storage_type(stream.header.schema.field(name).type)
                for group in range(len(stream.row_group_rows)):
                    block = stream.next_chunk()
                    array = block.decode(dtype, keep_dictionary=True)
                    self._check_values(name, array)
                    add_column(name, array, self._numbers[group])
                    self._nulls.setdefault(name, []).append(array.null_count)
            summary = FragmentSummary()

            def take(name: str, chunks: Sequence[ChunkStats]) -> None:
                summary.add_column(name, chunks, stream.row_group_rows)
                self._check_nulls(name, chunks)

            directory = stream.finish(take)
            self.bytes_read = stream.bytes_read
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
            if column.name not in known.names or not is_stored_as(
                column.type, known.field(column.name).type
            ):
                self._fault(
                    f"column {column.name!r} of type {column.type} does not fit the table's schema"
                )

    def _check_keys(self, stream: FragmentStream) -> None:
        sort = stream.header.sort
        types = [storage_type(stream.header.schema.field(c.column).type) for c in sort]
        while (blocks := stream.next_key_group()) is not None:
            keys = [b.decode(t, keep_dictionary=True) for b, t in zip(blocks, types, strict=True)]
            self._check_key_group(keys, len(self._numbers), blocks[0].offset)
            numbers = np.zeros(len(keys[0]), dtype=np.uint64)
            for column, array in zip(sort, keys, strict=True):
                add_column(column.column, array, numbers)
                self._nulls.setdefault(column.column, []).append(array.null_count)
                self._check_values(column.column, array)
            self._numbers.append(numbers)
            self.rows += len(numbers)

    def _check_key_group(self, keys: list[pa.Array], group: int, offset: int) -> None:
        ordered = keys[: len(ordering(self._table.sort))]
        first, last = key_at(ordered, 0), key_at(ordered, len(keys[0]) - 1)
        self._check_windows(keys, group, offset)
        row = key_columns(keys, self._table.sort).first_disorder()
        if row is not None:
            self._fault(f"byte {offset}: row {row} of row group {group} is out of order")
        if self.last_key is not None and self._compare.key(first) < self._compare.key(
            self.last_key
        ):
            self._fault(f"byte {offset}: row group {group} begins before the previous one ends")
        self._keys.append((first, last))
        self.first_key = first if self.first_key is None else self.first_key
        self.last_key = last

    def _check_windows(self, keys: list[pa.Array], group: int, offset: int) -> None:
        windows = self._table.windows
        if windows is None:
            return
        index = [column.column for column in self._table.sort].index(windows.column)
        dtype = self._table.schema.field(windows.column).type
        numbers, known = window_numbers(keys[index], dtype, windows)
        inside = ~known if self._entry.window is None else known & (numbers == self._entry.window)
        if not inside.all():
            row = int(np.argmin(inside))
            self._fault(
                f"byte {offset}: row {row} of row group {group} is not in time window {self._entry.window}"
            )

    def _check_values(self, name: str, array: pa.Array) -> None:
        """Checks that the table's type holds the values and allows their nulls; reports a column once."""
        place = self._table.schema.get_field_index(name)
        if place < 0 or name in self._misfits:
            return
        field, shown = self._table.schema.field(place), self._table.shown_name(name)
        try:
            null = null_place(array, field.with_name(shown))
            coded = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
            if exact_range(coded, storage_type(field.type)) is not None:
                widened(array, storage_type(field.type))
        except pa.ArrowInvalid as error:
            self._misfits.add(name)
            self._fault(f"column {shown!r} does not fit the table's type: {error}")
        else:
            if null is not None:
                self._misfits.add(name)
                self._fault(f"{null!r} has a null, which the table does not allow")

    def _check_nulls(self, name: str, chunks: Sequence[ChunkStats]) -> None:
        if [chunk.null_count for chunk in chunks] != self._nulls.get(name, []):
            self._fault(f"column {name!r}: its null counts differ from the footer's")

    def _check_directory(self, directory: Directory, columns: FragmentSummary) -> None:
        """Checks row groups and log. columns: a summary that has only columns."""
        entry = self._entry
        summary = replace(
            columns,
            rows=directory.rows,
            row_hash=directory.row_hash,
            row_groups=len(directory.row_groups),
            first_key=self.first_key or (),
            last_key=self.last_key or (),
        )
        found = FragmentEntry.from_summary(
            entry.key,
            summary,
            size_bytes=self.bytes_read,
            level=entry.level,
            run=entry.run,
            window=entry.window,
        )
        wrong = [
            name
            for name, value in found.to_json().items()
            if name != "sequence" and value != entry.to_json()[name]
        ]
        if wrong:
            self._fault(f"the table's log and the fragment disagree on {', '.join(wrong)}")
        for group, (stats, numbers) in enumerate(
            zip(directory.row_groups, self._numbers, strict=True)
        ):
            if fold_rows(numbers) != stats.row_hash:
                self._fault(f"row group {group}: the row hash does not match its rows")
            first, last = self._keys[group]
            if self._compare.key(stats.first_key) > self._compare.key(first) or self._compare.upper(
                stats.last_key
            ) < self._compare.key(last):
                self._fault(f"row group {group}: its keys are outside the footer's bounds")

    def _fault(self, cause: str) -> None:
        self.faults.append(f"{self._name}: {cause}")
