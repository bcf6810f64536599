"""A table at one version, for reading. Imports nothing that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from html import escape
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from msgspec.structs import replace
from pydantic import NonNegativeInt

from compactor.api.changes import Changes
from compactor.api.scan import Scan
from compactor.common.clock import SystemClock
from compactor.common.counts import counted
from compactor.errors import UsageError
from compactor.predicate.tree import Predicate
from compactor.read.changes import first_of, versions_between
from compactor.read.pruning import without_unreadable
from compactor.read.read_reports import ScanReport, TemplatesReport, VerifyReport
from compactor.resources.cores import usable_cores
from compactor.resources.packages import needing
from compactor.rows.policy import RowPolicy
from compactor.settings.arguments import checked
from compactor.settings.fields import Threads
from compactor.settings.units import moment_unix_ms, unix_ms
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.describe import fragments_table, history_table, tags_table
from compactor.table.snapshot import Snapshot
from compactor.table.tags import Moment, named_in
from lsm_fragment.keys.sort_schema import ordering

if TYPE_CHECKING:
    import daft
    import polars as pl
    import ray.data

    from compactor.api.dataset import TableDataset


def moment_of(version: int | None, as_of: datetime | str | None, tag: str | None) -> Moment:
    """Raises `UsageError` if more than one is given, and for a text that is no time, or one before the year
    1."""
    try:
        time = moment_unix_ms(as_of, SystemClock()) if isinstance(as_of, str) else as_of
        moment = Moment(version, unix_ms(time) if isinstance(time, datetime) else time, tag)
    except ValueError as error:
        raise UsageError(f"as_of: {error}") from error
    if moment.is_ambiguous:
        raise UsageError("version, as_of and tag: give one of them")
    return moment


class TableView:
    """A table at one version, for reading. `Table` adds the methods that change it."""

    def __init__(self, log: CommitLog, snapshot: Snapshot) -> None:
        """Use `open` instead. log: the table's log."""
        self._store = log.store
        self._log = log
        self._snapshot = snapshot

    @classmethod
    @checked
    def open(
        cls,
        url: str | PathLike[str],
        *,
        version: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
    ) -> Self:
        """Opens the table in a folder or at s3://bucket/prefix, at its newest version by default.

        version: opens this version.
        as_of: opens the version that was current at this time: a `datetime`, an ISO 8601 text, or a duration
        before now such as "2h" or "3 days"; a time without a zone is UTC.
        tag: opens the version that this tag names.
        Raises `TableNotFoundError`, `VersionNotFoundError`, `StoreError`, and `UsageError` if more than one
        is given or `as_of` is no time.
        """
        moment = moment_of(version, as_of, tag)
        log = CommitLog(open_store(fspath(url)))
        return cls(log, log.at(*moment))

    @checked
    def scan(
        self,
        columns: Iterable[str] | None = None,
        where: str | None = None,
        *,
        limit: NonNegativeInt | None = None,
        threads: Threads | None = None,
        skip_missing: bool = False,
    ) -> Scan:
        """Returns columns of the rows that satisfy the SQL condition, in sort order. Reads nothing yet.

        columns: names in the wanted order, or a set for alphabetical order; None means all.
        limit: maximum number of rows; row groups after them are not read.
        threads: number that read and decode row groups; None means one per core of this process. Batches do
        not depend on it. The first row group is read alone, so that a caller that stops after it has read no
        other.
        skip_missing: leaves out fragments that are gone or in quarantine, and reports their number and rows;
        for that it lists the table's data. Otherwise a fragment that is damaged or gone is an error.
        Raises `UsageError` for an unknown column or an invalid condition.
        """
        names = None if columns is None else tuple(columns)
        condition = self._condition(where)
        return Scan(
            self._store,
            self._snapshot,
            names,
            condition,
            threads or usable_cores(),
            limit=limit,
            skip_missing=skip_missing,
        )

    def dataset(self) -> TableDataset:
        """Returns this version as a PyArrow dataset, which reads only wanted columns and row groups, lazily.

        DuckDB, and whatever else takes a `pyarrow.dataset.Dataset`, reads it in bounded memory.
        """
        from compactor.api.dataset import TableDataset

        return TableDataset(TableView(self._log, self._snapshot))

    def to_polars(self) -> pl.LazyFrame:
        """Returns this version as a lazy frame of Polars. Columns, conditions and limits of the query are
        pushed down. Reads no rows yet. Raises `UsageError` without Polars, or for a type that it lacks."""
        from compactor.api.lazy_frame import lazy_frame

        return lazy_frame(TableView(self._log, self._snapshot))

    def to_daft(self) -> daft.DataFrame:
        """Returns this version as a frame of Daft. Its tasks read only wanted columns, and skip row groups by
        conditions. Reads no rows yet. Raises `UsageError` without Daft, or for a type that it lacks."""
        with needing("Daft", "to_daft", "daft"):
            from compactor.api.daft_frame import daft_frame
        return daft_frame(self.url, self._snapshot)

    def to_ray(self) -> ray.data.Dataset:
        """Returns this version as a dataset of Ray. Its tasks read only wanted columns, and skip row groups
        by conditions. Reads no rows yet. Raises `UsageError` without Ray."""
        with needing("Ray", "to_ray", "'ray[data]'"):
            from compactor.api.ray_dataset import ray_dataset
        return ray_dataset(self.url, self._snapshot)

    @checked
    def to_duckdb(self, connection: Any, name: str) -> Any:
        """Gives this version a name in a connection of DuckDB, and returns it as a `DuckDBPyRelation`.

        Queries read only their columns, and skip row groups by comparisons with constants, `IN` and `IS
        NULL`. DuckDB does not tell us of limits, of comparisons of floating-point columns, and of functions,
        such as `LIKE`: these it applies to all rows that are left.
        connection: a `duckdb.DuckDBPyConnection`.
        Raises `UsageError` for a type that DuckDB lacks.
        """
        if not hasattr(connection, "register"):
            raise UsageError(f"connection: give one of DuckDB, not {connection!r}")
        from compactor.api.duckdb_relation import duckdb_relation

        return duckdb_relation(self, connection, name)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns all rows of this version as a stream, as `scan` does."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    @checked
    def verify(
        self,
        *,
        threads: Threads | None = None,
        against: int | str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> VerifyReport:
        """Reads and checks all data of this version; `faults` of the report has one line per fault.

        threads: number that decode and check; None means one per core of this process.
        against: number or tag of an earlier version. The report then says by the log which rows came and
        went since, and a compaction that changed rows is a fault.
        on_progress: called with the number of fragments read so far.
        Raises `StoreError` only if the store itself cannot be reached, `VersionNotFoundError` for a version
        that is not kept, and `UsageError` for one that is not earlier.
        """
        # Imported here, since scans do not need it.
        from compactor.read.verify import verify

        before = None if against is None else self._earlier(against)
        return verify(
            self._store,
            self._snapshot,
            before=before,
            threads=threads or usable_cores(),
            on_progress=on_progress or (lambda _done: None),
        )

    def _earlier(self, named: int | str) -> Snapshot:
        before = self._log.named(named)
        if before.version > self.version:
            raise UsageError(
                f"against: version {before.version} is later than version {self.version}, which is verified"
            )
        return before

    @checked
    def templates(
        self,
        column: str,
        where: str | None = None,
        *,
        threads: Threads | None = None,
        skip_missing: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> TemplatesReport:
        """Counts the templates of a string column: texts that differ only in words with digits share one.

        where: an SQL condition on the rows; None means all rows.
        threads: number that read and decode; None means one per core of this process.
        skip_missing: leaves out fragments that are gone or in quarantine, as `scan` does.
        on_progress: called with the number of rows read so far.
        Raises `UsageError` for a column without strings, and what `scan` raises.
        """
        # Imported here, since scans do not need it.
        from compactor.read.template_counts import count_templates

        condition, left_out = self._condition(where), ScanReport()
        report = count_templates(
            self._store,
            without_unreadable(self._store, self._snapshot, condition, left_out)
            if skip_missing
            else self._snapshot,
            column,
            condition,
            threads=threads or usable_cores(),
            on_progress=on_progress or (lambda _done: None),
        )
        return replace(
            report,
            fragments_left_out=left_out.fragments_left_out,
            rows_left_out=left_out.rows_left_out,
        )

    @checked
    def changes(
        self,
        since: int | str | datetime,
        until: int | str | datetime | None = None,
        columns: Iterable[str] | None = None,
        where: str | None = None,
        *,
        threads: Threads | None = None,
    ) -> Changes:
        """Returns the rows that came, went and changed after a version, in the schema of the last one.

        Compactions in between don't matter. Reads the log, and no rows yet.
        since: number, tag or time (also as text, or as a duration before now, such as `15m`) of the version
        after which changes begin; 0, or a time before the first version, means all changes.
        until: those of the last version; None means the one that is open here.
        columns, where, threads: as in `scan`. A row that begins to satisfy the condition came.
        Raises `VersionNotFoundError` if a vacuum has taken what is needed, and `UsageError` for an unknown
        column, an invalid condition, or an earlier `until`.
        """
        last = self._snapshot if until is None else self._log.named(self._meant(until))
        first = first_of(self._log, self._meant(since))
        return Changes(
            self._store,
            (first, last),
            versions_between(self._log, first, last),
            None if columns is None else tuple(columns),
            None if where is None else condition_on(last.table, where),
            threads or usable_cores(),
        )

    def fragments(self) -> pa.Table:
        """Returns the fragments of this version, oldest first, with sizes, key ranges and levels."""
        return fragments_table(self._snapshot)

    @checked
    def history(self, limit: NonNegativeInt | None = None) -> pa.Table:
        """Returns the retained versions up to this one, newest first, with time and changes of each.

        limit: maximum number of versions; each takes one GET. Raises `DataError` if a vacuum removes them
        meanwhile.
        """
        newest, history = self._snapshot, self._log.history
        before = newest.oldest if newest.oldest > 1 else 0
        if limit is not None:
            before = max(before, newest.version - limit)
        start = Snapshot.empty() if before == 0 else self._log.at(before)
        return history_table(history.versions_after(start, newest.version))

    def tags(self) -> pa.Table:
        """Returns the tags that stand at this version: names, versions, and times of tagging and expiry."""
        return tags_table(self._snapshot)

    def _meant(self, moment: int | str | datetime) -> int | str | datetime:
        """Returns what a text means; a text that means nothing is taken for a tag."""
        if not isinstance(moment, str):
            return moment
        try:
            return named_in(moment, {tag.name for tag in self._log.current().tags}, self._log.clock)
        except ValueError:
            return moment

    def _condition(self, where: str | None) -> Predicate | None:
        return None if where is None else condition_on(self._snapshot.table, where)

    def refresh(self) -> None:
        """Moves to the newest version."""
        self._snapshot = self._log.current()

    @property
    def url(self) -> str:
        """The address of the table."""
        return self._store.url

    @property
    def version(self) -> int:
        """The number of this version; counts commits from 1."""
        return self._snapshot.version

    @property
    def sort_by(self) -> str:
        """The sort key, in the form that `create` takes."""
        table = self._snapshot.table
        shown = [replace(c, column=table.shown_name(c.column)) for c in ordering(table.sort)]
        return ",".join(map(str, shown))

    @property
    def row_policy(self) -> RowPolicy:
        """The row policy, which defines how rows of equal key are merged."""
        return self._snapshot.table.shown_rows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema at this version."""
        return self._snapshot.table.shown_schema

    @property
    def rows(self) -> int:
        """Number of stored rows that are not deleted, before the row policy merges rows of equal key."""
        return self._snapshot.live_rows

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"<Table {self.url} version {self.version}: {counted(self.rows, 'row')}>"

    def _repr_html_(self) -> str:
        """Shows the table in a notebook: address, size and columns. Reads no rows."""
        fragments = self._snapshot.fragments.all()
        size = sum(entry.size_bytes for entry in fragments)
        facts = (
            f"version {self.version}, {counted(self.rows, 'row')}, "
            f"{counted(len(fragments), 'fragment')}, {size:,} bytes; sorted by {self.sort_by}"
        )
        columns = "".join(
            f"<tr><td>{escape(field.name)}</td><td>{escape(str(field.type))}</td></tr>"
            for field in self.schema
        )
        return (
            f"<div><b>{escape(self.url)}</b><br>{escape(facts)}"
            f"<table><tr><th>column</th><th>type</th></tr>{columns}</table></div>"
        )
