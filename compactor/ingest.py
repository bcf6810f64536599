"""Files to level-0 fragments: read, conform, sort, write, commit. One commit a file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pydantic import PositiveInt

from compactor.clock import Ids, random_id
from compactor.conform import (
    OnConflict,
    conflicting,
    conform_batch,
    merged_schema,
    require_columns,
    same_kind,
    split_name,
)
from compactor.errors import InputError, TableExistsError, TableNotFoundError, UsageError
from compactor.files.promote import PromotedBatches
from compactor.files.read import open_table_file
from compactor.files.source import FileBatches
from compactor.names import fragment_key, skip_index_key
from compactor.rows.flags import COUNTS, KEPT, Census, RowRule
from compactor.rows.fold import folded, kept_rows
from compactor.rows.policy import (
    APPEND,
    Function,
    Kind,
    RowPolicy,
    Ttl,
    check_policy,
    sort_with_policy,
    with_result_types,
)
from compactor.skipping.spec import NONE as NO_SKIPS
from compactor.skipping.spec import SkipSpec
from compactor.skipping.stored import pack
from compactor.skipping.summary import build as build_summary
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry, SkipIndex
from compactor.table.metadata import TableMetadata, TimeWindows
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.windows import check_windows, split_by_window
from format.arrays import concat_storage
from format.errors import SchemaError
from format.ordering import first_disorder, order_words, same_as_previous, stable_order
from format.schema import SortSchema, check_sort_schema, ordering
from format.types import is_stored_as, to_logical, to_storage
from format.writer import FragmentWriter, WriterOptions

BUFFER_BYTES = 256 << 20
"""Rows held for sorting take no more than this: a fragment ends earlier if its rows are heavy."""
_SORTED_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class IngestOptions:
    rows_per_fragment: PositiveInt = 1_000_000
    writer: WriterOptions = field(default_factory=WriterOptions)
    windows: TimeWindows | None = None
    """Time windows of a new table."""
    rows: RowPolicy | None = None
    """What rows of equal key mean in a new table; None: all stay."""
    ttl: Ttl | None = None
    """How long rows of a new table live."""
    skips: SkipSpec = NO_SKIPS
    """Which columns of a new table have a skip index."""
    on_conflict: OnConflict = OnConflict.ERROR
    """What is done with a column whose values have no place in the table's type."""
    promotes: tuple[str, ...] = ()
    """Map or struct columns of files that become a column for each of their keys."""
    buffer_bytes: PositiveInt = BUFFER_BYTES
    """Of Arrow data that is sorted into one fragment at most; sorting takes some three times as much."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of one file."""

    path: str
    version: int
    rows: int
    """That were read."""
    superseded_rows: int
    """Of those, by others of their key in the same fragment: the table's row policy left them out."""
    fragments: int
    bytes_written: int
    sort_of_file: SortSchema | None = None
    """Of a new table, if it was taken from what the file says of its order."""


Progress = Callable[[int, int], None]
"""Called with bytes of the file consumed, and in all."""
Amend = Callable[[Snapshot, Changes], Changes]
"""Called with the newest snapshot and what is to be committed on it, at each try: what is committed instead.
May raise, and nothing is."""


def _as_they_are(_latest: Snapshot, changes: Changes) -> Changes:
    return changes


def ingest_file(
    store: Store,
    log: CommitLog,
    path: str,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    on_progress: Progress = lambda _done, _total: None,
) -> IngestReport:
    """Adds a file's rows to the table, creating the table if there is none and `sort` is given.

    A new table may also be sorted as a Parquet, Arrow or fragment file says of itself that it is. Nothing is
    visible before the file's one commit. Raises `InputError` for what is wrong with the file,
    `TableNotFoundError` without sort schema and table, `UsageError` for a sort other than the table's.
    """
    snapshot = log.refresh()
    known = None if snapshot.metadata is None else _to_read(snapshot.metadata)
    with _open_promoted(path, known, snapshot.metadata, options) as file:
        return ingest_batches(
            store, log, snapshot, file, sort, options, ids=ids, on_progress=on_progress
        )


def _open_promoted(
    path: str, known: pa.Schema | None, table: TableMetadata | None, options: IngestOptions
) -> FileBatches:
    def open_file() -> FileBatches:
        return _open(path, known, table, options.on_conflict)

    return PromotedBatches(open_file, options.promotes) if options.promotes else open_file()


def _open(
    path: str, known: pa.Schema | None, table: TableMetadata | None, on_conflict: OnConflict
) -> FileBatches:
    """A file with the table's types, where its values have a place in them."""
    if known is None or table is None or on_conflict is OnConflict.ERROR:
        return open_table_file(path, known)
    try:
        return open_table_file(path, known)
    except InputError:
        with open_table_file(path) as file:
            conflicts = conflicting(known, file.schema, _fixed_shown(table))
        if not conflicts:
            raise
    # Those of another kind cannot be read as the table's; of those of the same, the file decides.
    other_kind = {n for n, t in conflicts if not same_kind(t, known.field(n).type)}
    try:
        return open_table_file(path, pa.schema([f for f in known if f.name not in other_kind]))
    except InputError:
        left = pa.schema([f for f in known if f.name not in dict(conflicts)])
        return open_table_file(path, left)


def ingest_batches(
    store: Store,
    log: CommitLog,
    snapshot: Snapshot,
    file: FileBatches,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    on_progress: Progress = lambda _done, _total: None,
    amend: Amend = _as_they_are,
) -> IngestReport:
    """As `ingest_file`, of batches that were opened with the snapshot's schema known."""
    sort_of_file = None
    if sort is None and snapshot.metadata is None:
        sort_of_file = _sort_of(file, options.rows or APPEND)
    plan = plan_ingest(store, snapshot, file.schema, file.path, sort or sort_of_file, options)
    written = write_fragments(store, plan, file, ids(), on_progress=on_progress)
    after = commit_fragments(log, snapshot, plan, written.entries, amend=amend)
    kept = sum(entry.rows for entry in written.entries)
    return IngestReport(
        file.path,
        after.version,
        written.rows,
        written.rows - kept,
        len(written.entries),
        sum(entry.size_bytes for entry in written.entries),
        sort_of_file,
    )


def _sort_of(file: FileBatches, rows: RowPolicy) -> SortSchema | None:
    """What a new table is sorted by, as the file says: up to the sequence column, which the policy adds."""
    said = itertools.takewhile(lambda column: column.column != rows.sequence, file.sort or ())
    return tuple(said) or None


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What rows of one schema become in a table. Picklable: others may write the fragments, who need no
    snapshot for it."""

    path: str
    """Of the file, for errors."""
    metadata: TableMetadata
    schema: pa.Schema
    """Of the fragments."""
    names: _Names
    base_version: int
    options: IngestOptions


@dataclass(frozen=True, slots=True)
class WrittenFragments:
    """Fragments in the order of their rows, not committed yet."""

    entries: list[FragmentEntry]
    rows: int
    """That were read."""


def plan_ingest(
    store: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    path: str,
    sort: SortSchema | None,
    options: IngestOptions,
) -> IngestPlan:
    """Raises as `ingest_file` does. schema: of the file."""
    names = _Names(snapshot.metadata, schema, path, options.on_conflict)
    metadata = _metadata(snapshot, names, sort, options, store, path)
    # Columns that the file has not cost its fragments nothing, not even a place in the header.
    present = {*names.stored.names, *(column.column for column in metadata.sort)}
    stored = pa.schema([field for field in metadata.schema if field.name in present])
    return IngestPlan(path, metadata, stored, names, snapshot.version, options)


def write_fragments(
    store: Store,
    plan: IngestPlan,
    file: FileBatches,
    attempt_id: str,
    *,
    on_progress: Progress = lambda _done, _total: None,
) -> WrittenFragments:
    """Nothing of it is visible before `commit_fragments`. attempt_id: of nobody else."""
    writer = _FragmentsOfFile(store, plan, attempt_id)
    entries = list(writer.write(file, on_progress))
    writer.write_skips()
    return WrittenFragments(entries, writer.rows)


def commit_fragments(
    log: CommitLog,
    snapshot: Snapshot,
    plan: IngestPlan,
    entries: list[FragmentEntry],
    *,
    amend: Amend = _as_they_are,
) -> Snapshot:
    """All of them in one commit, equal keys in the order of the entries. snapshot: as for `plan_ingest`."""
    on_conflict = plan.options.on_conflict
    return log.commit(
        lambda latest: amend(
            latest, _changes(latest, snapshot, plan.metadata, entries, plan.path, on_conflict)
        )
    )


def _metadata(
    snapshot: Snapshot,
    names: _Names,
    sort: SortSchema | None,
    options: IngestOptions,
    store: Store,
    path: str,
) -> TableMetadata:
    windows, file = options.windows, names.stored
    if snapshot.metadata is None:
        if sort is None:
            raise TableNotFoundError(
                f"{store.url}: no table here yet: name its sort schema to create it, such as "
                "--sort-by service,host,timestamp:desc"
            )
        rows = options.rows or APPEND
        schema = with_result_types(merged_schema(None, file, path), rows)
        if rows.delete_marker is not None and rows.delete_marker not in schema.names:
            schema = schema.append(pa.field(rows.delete_marker, pa.bool_()))
        require_columns(schema, [column.column for column in sort], path)
        full = sort_with_policy(sort, rows, options.ttl)
        check_policy(rows, options.ttl, schema, full)
        try:
            check_sort_schema(schema, full)
        except SchemaError as error:
            raise UsageError(f"--sort-by: {error}") from error
        if windows is not None:
            check_windows(windows, schema, rows.key_columns(full))
        metadata = TableMetadata(schema, full, windows, rows, options.ttl)
        return metadata.with_skips(options.skips)
    _check_options(snapshot.metadata, options)
    if sort is not None:
        sort = tuple(
            replace(c, column=snapshot.metadata.stored_name(c.column) or c.column) for c in sort
        )
        sort = sort_with_policy(sort, snapshot.metadata.rows, snapshot.metadata.ttl)
    if sort is not None and sort != snapshot.metadata.sort:
        raise UsageError(
            f"--sort-by: the table is sorted by {', '.join(map(str, snapshot.metadata.sort))}; "
            "leave the option out, or create another table"
        )
    known = snapshot.metadata
    if windows is not None and windows != known.windows:
        raise UsageError(
            f"--time-column: the table has {known.windows or 'no time windows'}; leave the option out, or "
            "create another table"
        )
    required = [known.shown_name(column.column) for column in ordering(known.sort)]
    require_columns(names.shown, required, path)
    file = with_result_types(file, known.rows)
    return replace(
        known,
        schema=merged_schema(known.schema, file, path, _fixed(known), options.on_conflict),
        names=known.names + names.new,
    )


def _fixed(table: TableMetadata) -> set[str]:
    """Columns whose stored values are in bounds of keys, or are added up and the like."""
    chosen = (Function.LAST, Function.FIRST)
    computed = {name for name, function in table.rows.aggregates if function not in chosen}
    return computed.union(column.column for column in table.sort)


def _fixed_shown(table: TableMetadata) -> set[str]:
    return {table.shown_name(name) for name in _fixed(table)}


class _Names:
    """The columns of a file by the names under which the table stores them."""

    def __init__(
        self,
        table: TableMetadata | None,
        file: pa.Schema,
        path: str,
        on_conflict: OnConflict,
    ) -> None:
        self.new: tuple[tuple[str, str], ...] = ()
        """Stored and shown name of columns that the table has not yet, where they differ."""
        splits = {}
        if table is not None and on_conflict is OnConflict.SPLIT:
            in_table = with_result_types(file, table.rows)
            conflicts = conflicting(table.shown_schema, in_table, _fixed_shown(table))
            splits = {name: split_name(name, dtype) for name, dtype in conflicts}
        self._is_same = table is None or not (table.names or table.retired or splits)
        self.stored = self.shown = file
        if table is None or self._is_same:
            return
        file = self._renamed(file, {name: splits.get(name, name) for name in file.names})
        self.shown = file
        if len(set(file.names)) < len(file.names):
            raise InputError(f"{path}: a column name comes twice: rename one")
        stored = {name: table.stored_name(name) for name in file.names}
        added: dict[str, str] = {}
        for name, known in stored.items():
            if not known:
                taken = [*added.values(), *filter(None, stored.values())]
                added[name] = table.new_stored_name(name, taken)
        self.new = tuple((new, shown) for shown, new in added.items() if new != shown)
        self.stored = self._renamed(file, {**stored, **added})

    @staticmethod
    def _renamed(schema: pa.Schema, names: Mapping[str, str | None]) -> pa.Schema:
        return pa.schema([f.with_name(names[f.name]) for f in schema], schema.metadata)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._is_same else batch.rename_columns(self.stored.names)


def _check_options(known: TableMetadata, options: IngestOptions) -> None:
    """Raises `UsageError` if they ask for another table than there is."""
    if options.rows is not None and options.rows != known.shown_rows:
        raise UsageError(
            f"--row-policy: the table has {known.shown_rows}; leave the options out, or create another table"
        )
    ttl = known.ttl and replace(known.ttl, column=known.shown_name(known.ttl.column))
    if options.ttl is not None and options.ttl != ttl:
        raise UsageError(
            f"--ttl: the table has {ttl or 'none'}; leave the options out, or create another table"
        )


def _to_read(table: TableMetadata) -> pa.Schema:
    """The types that a file's columns are to be read as: a column that is counted may be of any."""
    return pa.schema(
        [
            field.with_name(table.shown_name(field.name))
            for field in table.schema
            if table.rows.kind is not Kind.AGGREGATE
            or table.rows.function(field.name) is not Function.COUNT
        ]
    )


def _with_counts(batch: pa.RecordBatch, rows: RowPolicy) -> pa.RecordBatch:
    """Columns that are counted as ones, and zeros for null."""
    for name, function in rows.aggregates:
        place = batch.schema.get_field_index(name)
        if function is Function.COUNT and place >= 0:
            ones = batch.column(place).is_valid().cast(pa.int64())
            batch = batch.set_column(place, pa.field(name, pa.int64()), ones)
    return batch


def _changes(
    latest: Snapshot,
    planned_on: Snapshot,
    metadata: TableMetadata,
    entries: list[FragmentEntry],
    path: str,
    on_conflict: OnConflict,
) -> Changes:
    if latest.metadata is None or planned_on.metadata is None:
        if latest.version != planned_on.version:
            if replace(latest.table, schema=metadata.schema, properties=()) != metadata:
                raise TableExistsError(
                    f"{path}: the table was created meanwhile with another sort schema, row policy or other "
                    "time windows; nothing was added"
                )
            metadata = _united(latest.table, metadata, path, on_conflict)
    else:
        metadata = _united(latest.table, metadata, path, on_conflict)
    number = latest.version + 1
    aged = tuple(replace(e, sequence=(number, index)) for index, e in enumerate(entries))
    changed = latest.metadata is None or latest.metadata != metadata
    return Changes(Operation.INGEST, aged, metadata=metadata if changed else None)


def _united(
    latest: TableMetadata, ours: TableMetadata, path: str, on_conflict: OnConflict
) -> TableMetadata:
    """The latest metadata with our new columns and wider types, if another writer has not typed them
    otherwise. What we wrote is read by the types there are now.
    """
    # What was dropped meanwhile stays so: what was written of it is as if it had come before.
    written = pa.schema([field for field in ours.schema if field.name not in latest.retired])
    names = dict(latest.names)
    names.update(
        (s, n) for s, n in ours.names if s in written.names and s not in latest.schema.names
    )
    schema = merged_schema(latest.schema, written, path, _fixed(latest), on_conflict)
    shown = [names.get(name, name) for name in schema.names]
    if len(set(shown)) < len(shown):
        raise InputError(
            f"{path}: columns were renamed meanwhile to names that it has too; nothing was added: ingest the "
            "file again"
        )
    for column in written:
        if not is_stored_as(column.type, schema.field(column.name).type):
            raise InputError(
                f"{path}: column {column.name!r} was added meanwhile as "
                f"{schema.field(column.name).type}, here it is {column.type}; nothing was added: ingest "
                "the file again"
            )
    return replace(latest, schema=schema, names=tuple(names.items()))


class _FragmentsOfFile:
    def __init__(self, store: Store, plan: IngestPlan, attempt_id: str) -> None:
        self._names = plan.names
        self._store = store
        self._metadata = plan.metadata
        self._schema = plan.schema
        self._options = plan.options
        self._base_version = plan.base_version
        self._attempt_id = attempt_id
        self._written = 0
        self._summaries: dict[str, list[bytes | None]] = {}
        """Of the fragment that is being written."""
        self._skips: list[bytes] = []
        self._skips_bytes = 0
        self.rows = 0
        """Read so far."""
        table = plan.metadata
        self._rule = RowRule(table.rows, table.ttl, plan.schema, table.sort, is_bottom=False)

    def write(self, file: FileBatches, on_progress: Progress) -> Iterator[FragmentEntry]:
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        for raw in file:
            batch = _with_counts(self._names.of(raw), self._metadata.rows)
            batch = conform_batch(batch, self._schema, file.path)
            self.rows += batch.num_rows
            while batch.num_rows:
                head = batch.slice(0, self._options.rows_per_fragment - rows)
                batch = batch.slice(head.num_rows)
                pending.append(head)
                rows += head.num_rows
                size += head.nbytes
                if rows >= self._options.rows_per_fragment or size >= self._options.buffer_bytes:
                    yield from self._write_windows(pending)
                    pending, rows, size = [], 0, 0
            on_progress(file.bytes_consumed, file.bytes_total)
        if pending:
            yield from self._write_windows(pending)

    def _write_windows(self, batches: list[pa.RecordBatch]) -> Iterator[FragmentEntry]:
        """One fragment, or one for each time window of the rows."""
        windows = self._metadata.windows
        if windows is None:
            yield self._write_fragment(batches, None)
            return
        for window, part in split_by_window(batches, windows).items():
            yield self._write_fragment(part, window)

    def _write_fragment(self, batches: list[pa.RecordBatch], window: int | None) -> FragmentEntry:
        schema, sort = self._schema, self._metadata.sort
        key = fragment_key(self._base_version, self._attempt_id, self._written)
        with (
            self._store.start_upload(key) as upload,
            FragmentWriter(
                upload, schema, sort, self._options.writer, on_row_group=self._summarise
            ) as writer,
        ):
            census = Census()
            for batch in sorted_batches(batches, schema, sort, self._rule):
                keys = [to_storage(batch.column(column.column)) for column in sort]
                census += self._rule.census(keys)
                writer.write(batch)
            written = writer.finish()
            upload.complete()
        self._written += 1
        return FragmentEntry.from_summary(
            key,
            written.summary,
            size_bytes=written.bytes_written,
            level=0,
            run=key,
            window=window,
            census=census,
            skip_index=self._take_skips(),
        )

    def _summarise(self, columns: dict[str, pa.Array]) -> None:
        spec = self._metadata.skips
        for name, kind in spec.columns:
            if name in columns:
                summary = build_summary(kind, columns[name], spec.bytes_per_row_group)
                self._summaries.setdefault(name, []).append(summary)

    def _take_skips(self) -> SkipIndex | None:
        """Of the fragment just written; they go to storage when all are."""
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
        """Before the fragments are committed, what their entries point to."""
        if self._skips:
            self._store.create(self._skips_key, b"".join(self._skips))

    @property
    def _skips_key(self) -> str:
        return skip_index_key(self._base_version, self._attempt_id)


def sorted_batches(
    batches: list[pa.RecordBatch], schema: pa.Schema, sort: SortSchema, rule: RowRule
) -> Iterator[pa.RecordBatch]:
    """All rows of the batches in sort order, stably, a few thousand at a time; those of one key merged by the
    rule."""
    arrays = {
        name: concat_storage([to_storage(batch.column(name)) for batch in batches])
        for name in schema.names
    }
    words = order_words([arrays[column.column] for column in sort], sort)
    # Rows that came in order, as from a sorted file, are neither sorted nor moved.
    order = None if first_disorder(words) is None else stable_order(words)
    rows = len(words[0])
    if rule.merges:
        positions = pa.array(np.arange(rows) if order is None else order)
        arrays.update(_merged(arrays, positions, sort, rule))
        order, rows = None, len(arrays[sort[0].column])
    for start in range(0, rows, _SORTED_BATCH_ROWS):
        if order is None:
            batch = {f.name: arrays[f.name].slice(start, _SORTED_BATCH_ROWS) for f in schema}
        else:
            positions = pa.array(order[start : start + _SORTED_BATCH_ROWS])
            batch = {f.name: arrays[f.name].take(positions) for f in schema}
        columns = [to_logical(batch[f.name], f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _merged(
    arrays: Mapping[str, pa.Array], order: pa.Array, sort: SortSchema, rule: RowRule
) -> Iterator[tuple[str, pa.Array]]:
    """Column by column, in order, with one row of each key."""
    keys = [arrays[column.column].take(order) for column in sort]
    starts = ~same_as_previous(order_words(keys, rule.key))
    decision = rule.decide(keys, starts)
    # Even a row that is alone in its key has each element of a set once.
    flags = np.full(len(order), KEPT | COUNTS, np.uint8) if decision is None else decision.flags
    for name, array in list(arrays.items()):
        in_order = array.take(order)
        if rule.folds(name):
            yield name, folded(in_order, flags, rule.policy.function(name), name)
        else:
            yield name, kept_rows(in_order, flags)
