"""Ingests files as level-0 fragments: read, conform, sort, write, commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from typing import Final, Self

import pyarrow as pa
from msgspec import Struct

from compactor.common.clock import Ids, random_id
from compactor.common.garbage import older_objects_left_alone
from compactor.common.heap import set_up_heap
from compactor.errors import InputError
from compactor.files.names import BINARY_FORMATS, FileFormat, kind_of
from compactor.files.parquet_codes import ANY_CODES
from compactor.files.places import check_local
from compactor.files.promote import PromotedBatches
from compactor.files.read import DEFAULT_BATCH_BYTES, open_table_file
from compactor.files.source import BadRow, FileBatches
from compactor.rows.policy import APPEND, RowPolicy
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.write.back_pressure import BackPressure, OnDebt
from compactor.write.file_schema import OnConflict, becomes_text, conflicting, same_kind
from compactor.write.ingest.adding import Adding
from compactor.write.ingest.agreed_types import Agreed, agreed_types, types_of, with_agreed
from compactor.write.ingest.ahead import BatchesAhead
from compactor.write.ingest.columns import fixed_shown, schema_to_read
from compactor.write.ingest.fragments import (
    ByteProgress,
    FragmentsOfFiles,
)
from compactor.write.ingest.next_commit import IngestReport, NextCommit, Together, report_of
from compactor.write.ingest.options import IngestOptions
from compactor.write.ingest.plan import IngestPlan, plan_ingest
from compactor.write.ingest.rejects import Rejects
from lsm_fragment.container.writer import FragmentSequence
from lsm_fragment.keys.sort_schema import SortSchema
from lsm_fragment.threads import ALONE, ThreadPool, Work

OnFile = Callable[[str], AbstractContextManager[ByteProgress]]
_PARQUET_BATCH_BYTES: Final = 32 << 20
"""Decode batches of this size. Larger batches split fewer row groups, whose rows must be copied; memory
hardly grows, since sorting holds all rows of a fragment anyway."""


@contextmanager
def _without_progress(_path: str) -> Iterator[ByteProgress]:
    yield lambda _done, _total: None


class FilesIngest:
    """An ingest of files in order. Use it as a context manager.

    A thread reads ahead. With several threads it reads the next rows of a file, and the first rows of the
    next file while the last ones are written and committed; with one thread it reads only the next file,
    during waits for the disk.
    """

    def __init__(
        self,
        store: Store,
        log: CommitLog,
        sort: SortSchema | None,
        options: IngestOptions,
        *,
        ids: Ids = random_id,
        skips_empty: bool = False,
        adding: Adding | None = None,
        on_debt: OnDebt | None = None,
        rejects: Rejects | None = None,
    ) -> None:
        """sort: of a new table; None takes it from the metadata of a Parquet, Arrow or fragment file.

        skips_empty: adds nothing for text files without rows to tell their columns, instead of an error.
        adding: how rows join the table; None appends them. on_debt: as for `BackPressure`. rejects: takes
        rows of text files that can't be read, or do not fit; without it the first one is an error.
        """
        self._pressure = BackPressure(options.told, on_debt=on_debt)
        self._adding = adding or Adding()
        self._rejects = rejects
        self._skips_empty = skips_empty
        self._store = store
        self._log = log
        self._sort = sort
        self._options = options
        self._ids = ids
        set_up_heap()
        self._pool = ThreadPool(options.threads)
        self._reader = self._pool if options.threads > 1 else ThreadPool(2)
        self._sequence = FragmentSequence()
        self._begun: Work[_OpenFile] | None = None
        """The pending opening of the next file."""
        self._fragments: FragmentsOfFiles | None = None
        """The last ones, of which one may still be being stored."""
        self._rejected_before: list[int] = []
        """How many rows were rejected before each file of the next commit."""
        self._agreed = Agreed()
        """Types for the columns of text files whose types differ."""

    def add(
        self,
        paths: Sequence[str],
        on_file: OnFile = _without_progress,
        *,
        in_one_commit: bool = False,
    ) -> Iterator[IngestReport]:
        """Adds the files' rows to the table, which it creates if necessary. Yields a report of each file once
        its rows are visible.

        Small files share a fragment, as long as they have the same columns, and a commit, since each costs
        syncs, requests and a version. If a file fails, those before it are committed, and then the error is
        raised; `in_one_commit` adds all files or none. If text files of a table's first commit have
        different types for a column, such as integer and double, all are read again by the wider one, if
        `on_conflict` is an error. With rejects the wider one is found first.

        on_file: entered with each path while the file is read; yields a progress callback. Raises
        `InputError` if a file cannot be read or does not fit, `TableNotFoundError` if there is neither a
        table nor a sort schema, `UsageError` for an address and for a sort schema other than the table's, and
        what `BackPressure.admit` raises, before each commit.
        """
        for path in paths:
            check_local(path)
        commit: NextCommit | None = None
        in_one_commit = in_one_commit or self._adding.is_whole
        if self._rejects is not None and self._log.refresh().metadata is None:
            self._agree(paths)  # a row that only the wider type holds must not be rejected
        for path, following in itertools.zip_longest(paths, paths[1:]):
            if commit is None:
                latest = self._adding.admitted(self._log, self._pressure)
                commit = NextCommit(
                    self._store, self._log, latest, self._adding, is_whole=in_one_commit
                )
            if self._rejects is not None:
                self._rejected_before.append(len(self._rejects))
            try:
                with on_file(path) as on_progress:
                    self._read(path, following, commit, on_progress)
            except Exception as error:
                keeps_earlier = commit.has_rows and not in_one_commit
                may_agree = commit.is_first and (keeps_earlier or self._is_sound(path))
                if isinstance(error, InputError) and may_agree and self._agree(paths):
                    commit.discard()
                    if self._rejects is not None:
                        self._rejects.forget_after(0)
                        self._rejected_before = []
                    yield from self.add(paths, on_file, in_one_commit=in_one_commit)
                    return
                if not in_one_commit:
                    yield from self._made(commit)
                raise
            if commit.is_full:
                yield from self._made(commit)
                commit = None
        if commit is not None:
            yield from self._made(commit)

    def _made(self, commit: NextCommit) -> Iterator[IngestReport]:
        commit.end()
        if self._rejects is not None:
            before, self._rejected_before = self._rejected_before, []
            left_out = before[len(commit.paths) :]
            if left_out:
                self._rejects.forget_after(left_out[0])
            self._rejects.write()
        yield from commit.made()

    def _is_sound(self, path: str) -> bool:
        """Returns whether a file that was refused has no errors of its own, so that other types may help."""
        return _has_own_types(path) or types_of(path, self._options.text) is not None

    def _agree(self, paths: Sequence[str]) -> bool:
        """Finds types for all files of text, unless `on_conflict` says what to do with other types. Returns
        whether some differ that were not known to."""
        texts, given = [path for path in paths if not _has_own_types(path)], self._options
        if len(texts) < 2 or self._agreed.types or given.on_conflict is not OnConflict.ERROR:
            return False
        self._agreed = agreed_types(
            texts, given.text, leaves_out_bad_rows=self._rejects is not None
        )
        self._drop_begun()
        return len(self._agreed.types) > 0

    def _read(
        self, path: str, following: str | None, commit: NextCommit, on_progress: ByteProgress
    ) -> None:
        """Reads a file for the next commit, and writes what makes full fragments."""
        table = commit.snapshot.metadata
        opened = self._take_begun(path, table) or self._open(path, table)
        with opened.batches as batches:
            if self._rejects is not None:
                self._rejects.add(path, opened.bad_rows)
            if following is not None:
                batches.on_end = partial(self._begin, following, table)
            if opened.lacks_columns:
                commit.skip(path)
                return
            together = commit.joined(batches.schema, opened.not_promoted)
            if together is None:
                together = self._begin_together(batches, opened, commit)
            together.fragments.add(batches, on_progress)
            commit.include(together)

    def _begin_together(
        self, batches: FileBatches, opened: _OpenFile, commit: NextCommit
    ) -> Together:
        """Begins fragments with a file whose columns are not those of the files before."""
        commit.end_together()
        plan, sort_of_file = _plan_of(
            self._log, commit.snapshot, batches, self._sort, self._options
        )
        commit.check_fits(plan)
        self._fragments = fragments = FragmentsOfFiles(
            self._store,
            plan,
            self._ids(),
            pool=self._pool,
            sequence=self._sequence,
            on_rows=partial(self._adding.take, plan),
        )
        together = Together(
            plan=plan,
            schema=batches.schema,
            fragments=fragments,
            not_promoted=opened.not_promoted,
            sort_of_file=sort_of_file,
        )
        commit.open = together
        return together

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            resources.enter_context(older_objects_left_alone())
            resources.callback(self._reader.close)
            resources.callback(self._drop_begun)
            resources.callback(self._drop_storing)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._resources.close()

    def _begin(self, path: str, table: TableMetadata | None) -> None:
        self._begun = self._reader.begin(partial(self._open, path, table))

    def _take_begun(self, path: str, table: TableMetadata | None) -> _OpenFile | None:
        """Returns the file opened ahead; None for another file, or if its options are no longer valid."""
        begun, self._begun = self._begun, None
        if begun is None or (opened := self._opened(begun)) is None:
            return None
        if opened.path == path and (opened.table == table or _has_own_types(path)):
            return opened
        opened.batches.close()
        return None

    def _drop_begun(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and not begun.cancel():
            opened = self._opened(begun)
            if opened is not None:
                opened.batches.close()

    def _drop_storing(self) -> None:
        if self._fragments is not None:
            self._fragments.close()

    def _opened(self, begun: Work[_OpenFile]) -> _OpenFile | None:
        """Returns the file opened ahead; None if that failed, since opening it again reports the error."""
        try:
            return self._reader.wait(begun)
        except Exception:  # noqa: BLE001 - reported when it is opened again
            return None

    def _open(self, path: str, table: TableMetadata | None) -> _OpenFile:
        known = with_agreed(None if table is None else schema_to_read(table), self._agreed.types)
        open_file = partial(
            _open_for,
            path,
            table,
            known,
            self._options,
            may_be_empty=self._skips_empty,
            max_bad_rows=None if self._rejects is None else self._rejects.limit,
        )
        file: FileBatches
        try:
            if self._options.promotes:
                file = promoted = PromotedBatches(open_file, self._options.promotes)
                absent = promoted.absent
            else:
                file, absent = open_file(), ()
        except InputError as error:
            raise self._agreed.explained(error) from None
        bad_rows = file.bad_rows
        batches = BatchesAhead(file, self._reader, is_free=self._pool.threads > 1)
        return _OpenFile(
            path=path,
            table=table,
            batches=batches,
            not_promoted=absent,
            lacks_columns=file.lacks_columns,
            bad_rows=bad_rows,
        )


class _OpenFile(Struct, frozen=True, kw_only=True):
    path: str
    table: TableMetadata | None
    """The table's metadata at the time of opening."""
    batches: BatchesAhead
    not_promoted: tuple[str, ...]
    lacks_columns: bool
    bad_rows: list[BadRow]


def ingest_file(
    store: Store,
    log: CommitLog,
    path: str,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    adding: Adding | None = None,
    on_debt: OnDebt | None = None,
) -> IngestReport:
    """Adds one file's rows to the table, as `FilesIngest.add` does."""
    with FilesIngest(store, log, sort, options, ids=ids, adding=adding, on_debt=on_debt) as ingest:
        (report,) = ingest.add([path])
        return report


def _has_own_types(path: str) -> bool:
    """Returns whether a file is read by its own types, regardless of the table's."""
    kind = kind_of(path)
    return kind is not None and kind.format in BINARY_FORMATS


def _open_for(
    path: str,
    table: TableMetadata | None,
    known: pa.Schema | None,
    options: IngestOptions,
    *,
    may_be_empty: bool,
    max_bad_rows: int | None,
) -> FileBatches:
    """Opens a file; columns whose values fit the known types get these, and those for whose values the
    table's column becomes text are read as text, as the file has it.

    max_bad_rows: how many rows may be left out; None for none.
    """
    kind = kind_of(path)
    is_parquet = kind is not None and kind.format is FileFormat.PARQUET
    open_as = partial(
        open_table_file,
        path,
        options=options.text,
        may_be_empty=may_be_empty,
        batch_bytes=_PARQUET_BATCH_BYTES if is_parquet else DEFAULT_BATCH_BYTES,
        max_codes=0 if options.promotes else ANY_CODES,
        mixes_kinds=options.on_conflict is not OnConflict.ERROR,
    )
    leaving_out = partial(
        open_as, leaves_out_bad_rows=max_bad_rows is not None, max_bad_rows=max_bad_rows
    )
    if known is None or options.on_conflict is OnConflict.ERROR:
        return leaving_out(known)
    try:
        return open_as(known)
    except InputError:
        if table is None:
            return leaving_out(None)
        with open_table_file(
            path,
            options=options.text,
            mixes_kinds=True,
            leaves_out_bad_rows=max_bad_rows is not None,
        ) as file:
            fixed = fixed_shown(table)
            conflicts = conflicting(known, file.schema, fixed)
    if max_bad_rows is not None:  # a fixed column stays as it is, so what it can't hold is rejected
        conflicts = [(name, dtype) for name, dtype in conflicts if name not in fixed]
    texts = []
    if options.on_conflict is OnConflict.STRING:
        both = [(known.field(name), pa.field(name, dtype)) for name, dtype in conflicts]
        texts = [
            field.with_type(pa.string()) for of, field in both if becomes_text(of, field, fixed)
        ]
    # Columns of another kind cannot be read as the table's type; those of the same kind may.
    other_kind = {n for n, t in conflicts if not same_kind(t, known.field(n).type)}
    try:
        return open_as(
            pa.schema(
                [
                    *(f for f in known if f.name not in other_kind),
                    *(f for f in texts if f.name in other_kind),
                ]
            ),
            text_holds_all=True,
        )
    except InputError:
        if not conflicts and max_bad_rows is None:
            raise  # the next attempt would be the same
        return leaving_out(
            pa.schema([*(f for f in known if f.name not in dict(conflicts)), *texts]),
            text_holds_all=True,
        )


def ingest_batches(
    store: Store,
    log: CommitLog,
    snapshot: Snapshot,
    file: FileBatches,
    sort: SortSchema | None,
    options: IngestOptions,
    *,
    ids: Ids = random_id,
    adding: Adding | None = None,
    pool: ThreadPool = ALONE,
) -> IngestReport:
    """Like `FilesIngest.add`, for batches opened with the snapshot's schema."""
    adding = adding or Adding()
    adding.begin(log, snapshot)
    plan, sort_of_file = _plan_of(log, snapshot, file, sort, options)
    on_rows = partial(adding.take, plan)
    fragments = FragmentsOfFiles(store, plan, ids(), pool=pool, on_rows=on_rows)
    with closing(fragments):
        fragments.add(file)
        written = fragments.finish()
    after = adding.commit(log, snapshot, plan, written.entries)
    return report_of([plan.path], written, after.version, sort_of_file)


def _plan_of(
    log: CommitLog,
    snapshot: Snapshot,
    file: FileBatches,
    sort: SortSchema | None,
    options: IngestOptions,
) -> tuple[IngestPlan, SortSchema | None]:
    """Returns the plan, and the sort schema of a new table if it is that of the file."""
    sort_of_file = None
    if sort is None and snapshot.metadata is None:
        sort_of_file = _sort_of(file, options.rows or APPEND)
    plan = plan_ingest(log, snapshot, file.schema, file.path, sort or sort_of_file, options)
    return plan, sort_of_file


def _sort_of(file: FileBatches, rows: RowPolicy) -> SortSchema | None:
    """Returns the file's own sort schema, up to the sequence column, which the policy adds."""
    said = itertools.takewhile(lambda column: column.column != rows.sequence, file.sort or ())
    return tuple(said) or None
