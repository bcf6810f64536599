"""What the next commit of an ingest adds: files, several of which may share fragments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.write.ingest.adding import Adding
from compactor.write.ingest.fitting import FittingCheck
from compactor.write.ingest.fragments import FragmentsOfFiles, WrittenFragments, names_of_files
from compactor.write.ingest.plan import IngestPlan
from lsm_fragment.keys.sort_schema import SortSchema

_COMMIT_BYTES: Final = 64 << 20
"""Commit once the files' fragments have this size: a second's work, beside which a commit costs little."""
_COMMIT_FILES: Final = 256


class IngestReport(Struct, frozen=True, kw_only=True):
    """The result of ingesting a file, or several small ones that share fragments."""

    paths: tuple[str, ...]
    version: int
    rows: int
    """Rows read."""
    superseded_rows: int
    """Rows merged into others of their key within a fragment, by the table's row policy."""
    fragments: int
    bytes_written: int
    sort_of_file: SortSchema | None = None
    """Sort schema of a new table, if taken from the file's metadata."""
    not_promoted: tuple[str, ...] = ()
    """Columns to promote that the files lack."""
    replaced_rows: int = 0
    """Rows that the same commit deleted, if it overwrites."""

    @property
    def path(self) -> str:
        """The file, or the first and the last one."""
        first, count = self.paths[0], len(self.paths)
        return first if count == 1 else f"{first} to {self.paths[-1]} ({count} files)"


class Together(Struct, kw_only=True):
    """Files that may share fragments, not committed yet."""

    plan: IngestPlan
    """Of the first file, and of all others but for the path."""
    schema: pa.Schema
    """Of each file."""
    fragments: FragmentsOfFiles
    not_promoted: tuple[str, ...]
    sort_of_file: SortSchema | None
    written: WrittenFragments = field(default_factory=lambda: WrittenFragments([], 0))

    def report(self, version: int) -> IngestReport:
        return report_of(
            self.fragments.paths, self.written, version, self.sort_of_file, self.not_promoted
        )


class NextCommit:
    """The files that the next commit adds."""

    def __init__(
        self, store: Store, log: CommitLog, before: Snapshot, adding: Adding, *, is_whole: bool
    ) -> None:
        """before: the newest snapshot. is_whole: whether all files are added, or none."""
        self._store, self._log, self._is_whole = store, log, is_whole
        self._adding = adding
        self._before = before
        adding.begin(log, before)
        self.snapshot = self._before
        """What the next file sees: the table with the columns of the files before."""
        self._files: list[Together | str] = []
        """Those written, and skipped ones."""
        self.open: Together | None = None
        """Those that the next file may join."""
        self._failure: Exception | None = None

    @property
    def is_full(self) -> bool:
        if self._is_whole:
            return False
        together = self._together
        size = sum(one.fragments.bytes_written for one in together)
        return (
            size >= _COMMIT_BYTES or sum(one.fragments.files for one in together) >= _COMMIT_FILES
        )

    @property
    def is_first(self) -> bool:
        return self._before.metadata is None

    @property
    def has_rows(self) -> bool:
        return any(one.fragments.files for one in self._together)

    @property
    def _together(self) -> list[Together]:
        written = [file for file in self._files if isinstance(file, Together)]
        return written if self.open is None else [*written, self.open]

    def discard(self) -> None:
        """Removes the fragments."""
        for together in self._together:
            together.fragments.discard()

    def skip(self, path: str) -> None:
        """Adds a file without rows and columns."""
        self.end_together()
        self._files.append(path)

    def joined(self, schema: pa.Schema, not_promoted: tuple[str, ...]) -> Together | None:
        """Returns the files that one of this schema may share fragments with."""
        joined = self.open
        if joined is not None and joined.schema.equals(schema, check_metadata=True):
            return joined if joined.not_promoted == not_promoted else None
        return None

    def check_fits(self, plan: IngestPlan) -> None:
        """Raises `InputError` if values of the files before do not fit the types of a plan."""
        table, fitting = plan.metadata, FittingCheck(self._store, plan.path)
        for earlier in self._together if table != self.snapshot.metadata else ():
            entries, name = earlier.written.entries, names_of_files(earlier.fragments.paths)
            fitting.check_earlier(entries, name, earlier.plan.metadata, table)

    def include(self, together: Together) -> None:
        """Adds the columns of a file that was read to its end."""
        self.snapshot = replace(self.snapshot, metadata=together.plan.metadata)

    def end_together(self) -> None:
        """Writes the rest of the files that share fragments. If it raises, the next call leaves out the
        files with rows in the fragment that failed."""
        if (together := self.open) is None:
            return
        together.written = together.fragments.finish()
        self.open = None
        if together.fragments.paths:
            self._files.append(together)

    @property
    def paths(self) -> list[str]:
        """The files that are written whole, and those skipped, in their order."""
        each = ([file] if isinstance(file, str) else file.fragments.paths for file in self._files)
        return list(itertools.chain.from_iterable(each))

    def end(self) -> None:
        """Writes the rest of all files. `made` raises what that failed by, unless no file is added then."""
        try:
            self.end_together()
        except Exception as error:
            if self._is_whole:
                raise
            self.end_together()
            self._failure = error

    def made(self) -> Iterator[IngestReport]:
        """Commits after `end`, and yields the files' reports. Does not commit without fragments."""
        yield from self._committed()
        if self._failure is not None:
            raise self._failure

    def _committed(self) -> Iterator[IngestReport]:
        version = self._before.version
        if written := self._together:
            paths = [path for together in written for path in together.fragments.paths]
            plan = replace(written[-1].plan, path=names_of_files(paths))
            entries = [entry for together in written for entry in together.written.entries]
            version = self._adding.commit(self._log, self._before, plan, entries).version
        for file in self._files:
            if isinstance(file, str):
                yield report_of([file], WrittenFragments([], 0), version)
            else:
                yield file.report(version)


def report_of(
    paths: Sequence[str],
    written: WrittenFragments,
    version: int,
    sort_of_file: SortSchema | None = None,
    not_promoted: tuple[str, ...] = (),
) -> IngestReport:
    return IngestReport(
        paths=tuple(paths),
        version=version,
        rows=written.rows,
        superseded_rows=written.rows - sum(entry.rows for entry in written.entries),
        fragments=len(written.entries),
        bytes_written=sum(entry.size_bytes for entry in written.entries),
        sort_of_file=sort_of_file,
        not_promoted=not_promoted,
    )
