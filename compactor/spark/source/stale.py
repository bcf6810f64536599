"""Detects writes of rows loaded from an older version of the same table.

Such a write would revert later commits, which is refused unless readers could not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.errors import (
    CommitConflictError,
    CompactorError,
    ObjectNotFoundError,
    UsageError,
    VersionNotFoundError,
)
from compactor.spark.source.origin import LoadedVersion, Origin
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation

_SEEN_BY_NO_READER: Final = frozenset(
    (
        Operation.COMPACT,
        Operation.TRIVIAL_MOVE,
        Operation.LEASE,
        Operation.QUARANTINE,
        Operation.TAG,
        Operation.UNDO,
        Operation.VACUUM,
    )
)
_HAPPENED: Final = {
    Operation.INGEST: "rows were added or deleted",
    Operation.DELETE: "rows were added or deleted",
    Operation.OVERWRITE: "rows were overwritten",
    Operation.UPDATE: "rows were updated",
    Operation.DROP: "damaged or lost fragments were given up with their rows",
    Operation.EXPIRE: "rows past their retention were dropped",
    Operation.ALTER: "columns were renamed, dropped or redacted",
    Operation.RESTORE: "an earlier version was restored",
}
_LOAD_AGAIN: Final = (
    "load the table again, or, if that is to be undone, name the newest version by option "
    "base_version"
)


class Base(Struct, frozen=True):
    """The newest version that a job has seen; the job must not revert later ones."""

    version: int
    meaning: str
    """Ending of "since version 3, "."""
    remedy: str
    commit_id: str | None = None
    """Commit id of the version; None if only the number is known."""


def base_now(latest: Snapshot) -> Base:
    """Returns the base of rows without a known origin."""
    meaning = "at which the overwrite began"
    return Base(latest.version, meaning, "run the job again", latest.commit_id)


class Staleness:
    """Compares rows to be written with the versions from which they were loaded."""

    def __init__(self, log: CommitLog, latest: Snapshot, origins: Sequence[Origin]) -> None:
        """latest: the newest snapshot of the log."""
        self._log = log
        self._latest = latest
        self._origins = origins
        self._known: dict[LoadedVersion, bool] = {}

    def base(self, named: int | None) -> Base:
        """Returns the base of an overwrite. named: the version named by the user, if any.

        Raises `UsageError` for a version that does not exist yet, `StoreError`, `DataError`.
        """
        latest, url = self._latest, self._log.store.url
        if named is not None:
            if named > latest.version:
                raise UsageError(
                    f"{url}: base_version: {named} is not there yet: the table is at version "
                    f"{latest.version}"
                )
            remedy = "load the table again, and name the version of that"
            return Base(named, "the base_version", remedy)
        ours = [origin for origin in self._origins if self._is_here(origin.loaded)]
        if not ours:
            return base_now(latest)
        oldest = min(ours, key=lambda origin: origin.loaded.version)
        meaning = f"from which column {oldest.column!r} was loaded"
        return Base(oldest.loaded.version, meaning, _LOAD_AGAIN, oldest.loaded.commit_id)

    def check_columns(self) -> None:
        """Raises `CommitConflictError` for a column dropped or redacted since it was loaded.

        A write would restore its values. Also raises `StoreError`, `DataError`.
        """
        retired = () if self._latest.metadata is None else self._latest.metadata.retired
        for origin in self._origins:
            if origin.stored in retired and self._is_here(origin.loaded):
                raise CommitConflictError(
                    f"{self._log.store.url}: column {origin.column!r} was loaded from version "
                    f"{origin.loaded.version}, and its values were dropped or redacted since; nothing was "
                    "written: load the table again, or leave the column out"
                )

    def _is_here(self, loaded: LoadedVersion) -> bool:
        if loaded not in self._known:
            self._known[loaded] = self._look(loaded)
        return self._known[loaded]

    def _look(self, loaded: LoadedVersion) -> bool:
        """Returns whether the version was loaded from this table, or may have been."""
        if loaded.table == self._log.store.url:
            return True
        commit_id = _commit_id(self._log, loaded.version)
        if commit_id == loaded.commit_id:
            return True
        is_vacuumed = commit_id is None and loaded.version <= self._latest.version
        try:
            there = CommitLog(open_store(loaded.table)).refresh()
        except CompactorError:
            return is_vacuumed
        if there.version == 0:
            return is_vacuumed
        return _commit_id(self._log, there.version) == there.commit_id


def check_unchanged(log: CommitLog, base: Base, latest: Snapshot) -> None:
    """Raises `CommitConflictError` unless readers see the same rows in both versions."""
    happened = _happened(log, base, latest)
    if happened is not None:
        raise CommitConflictError(
            f"{log.store.url}: {happened} since version {base.version}, {base.meaning}; nothing was "
            f"overwritten: {base.remedy}"
        )


def _happened(log: CommitLog, base: Base, latest: Snapshot) -> str | None:
    """Describes the changes since the base that readers see; None if they see none."""
    unknown = "it is not known what was changed"
    if base.version > latest.version or not _is_still_there(log, base, latest):
        return unknown
    try:
        numbers = range(base.version + 1, latest.version + 1)
        changes = [v.changes for v in map(log.history.read, numbers)]
    except ObjectNotFoundError:
        return unknown
    operations = {change.operation for change in changes} - _SEEN_BY_NO_READER
    for operation in Operation:
        if operation in operations and operation is not Operation.ALTER:
            return _HAPPENED.get(operation, "the table was changed")
    if Operation.ALTER not in operations:
        return None
    try:
        before = log.history.at(base.version, latest).table
    except VersionNotFoundError:
        return unknown
    is_same = before.stored_names == latest.table.stored_names
    return None if is_same else _HAPPENED[Operation.ALTER]


def _is_still_there(log: CommitLog, base: Base, latest: Snapshot) -> bool:
    """Returns whether the log still has the base's commit, and not another table's with that number."""
    if base.commit_id is None or base.version == 0:
        return True
    if base.version == latest.version:
        return base.commit_id == latest.commit_id
    return _commit_id(log, base.version) == base.commit_id


def _commit_id(log: CommitLog, number: int) -> str | None:
    """Returns the commit id of a version; None if it is no longer in the log."""
    try:
        return log.history.read(number).commit_id
    except ObjectNotFoundError:
        return None
