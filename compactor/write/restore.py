"""Restores an earlier version in one commit of metadata that rewrites no fragment.

The new version has the fragments of the earlier one, with the rows that were deleted then, and its metadata.
History goes on: the versions in between stay readable, and a restore can itself be undone by another one.

What comes back has to be safe from vacuums. The commit names the version to which it returns, and the log
refuses it if that version is no longer kept (`CommitLog._check_base_version`).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import CommitConflictError, RestoreError
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import COUNTER, TableMetadata
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.whole_versions import check_whole
from lsm_fragment.names import names_text

_CHANGES_ROWS: Final = frozenset(
    (
        Operation.INGEST,
        Operation.DELETE,
        Operation.OVERWRITE,
        Operation.UPDATE,
        Operation.ALTER,
        Operation.DROP,
        Operation.RESTORE,
    )
)
"""Operations of people and writers, whose work a restore must not take away unseen."""


class RestoreReport(Struct, frozen=True, kw_only=True):
    """The result of a restore, or of its dry run."""

    version: int
    """The committed version, or the newest one if nothing was committed."""
    restored: int
    """The version whose rows and columns the table has again."""
    fragments_added: int
    """Fragments that came back, or have other deleted rows again."""
    fragments_removed: int
    """Fragments of later versions that left."""
    columns_changed: bool
    """Whether the metadata (columns, names, indexes) are others than before."""
    rows_before: int
    """Rows of the newest version, without deleted ones."""
    rows: int
    """Rows after the restore, without deleted ones."""


class _NothingToDoError(Exception):
    """The table is as it was at that version."""


def restore_version(
    log: CommitLog, target: Snapshot, *, dry_run: bool = False, seen: Snapshot | None = None
) -> RestoreReport:
    """Makes the table what it was at a version that is kept, in one commit. target: that version.

    seen: the version that the caller has looked at; None means the newest one.

    A commit that changes rows or columns between the beginning and the commit is a conflict, because the
    caller has not seen it; compactions in between are not. The commit ends all leases, so that no running
    compaction brings back what left.
    Raises `VersionNotFoundError` if the version or an object of it is gone, `RestoreError` if values were
    redacted since, both before anything is committed; `CommitConflictError`.
    """
    newest = log.current()
    begun = newest if seen is None else seen
    _check_not_redacted(log, target, begun)
    check_whole(log, target)
    last = newest

    def prepare(latest: Snapshot) -> Changes:
        nonlocal last
        last = latest
        changes = restored(target, latest)
        if not (changes.adds or changes.removes or changes.metadata):
            raise _NothingToDoError
        _check_same_rows(log, begun, latest)
        return changes

    try:
        after = newest if dry_run else log.commit(prepare)
    except _NothingToDoError:
        after = last
    changes = restored(target, last)
    return RestoreReport(
        version=after.version,
        restored=target.version,
        fragments_added=len(changes.adds),
        fragments_removed=len(changes.removes),
        columns_changed=changes.metadata is not None,
        rows_before=last.live_rows,
        rows=target.live_rows,
    )


def restored(target: Snapshot, latest: Snapshot) -> Changes:
    """Returns the changes that lead from the latest version back to `target`. Pure.

    Fragments that come back are in quarantine if they were then. All leases end: outputs of running
    compactions might overlap what comes back.
    """
    before = {entry.key: entry for entry in latest.fragments.all()}
    wanted = {entry.key: entry for entry in target.fragments.all()}
    adds = tuple(entry for entry in wanted.values() if before.get(entry.key) != entry)
    metadata = _metadata_again(target.table, latest.table)
    return Changes(
        operation=Operation.RESTORE,
        metadata=metadata if metadata != latest.table else None,
        removes=tuple(key for key, entry in before.items() if wanted.get(key) != entry),
        adds=adds,
        ended_leases=tuple(latest.leases),
        quarantines=tuple(
            target.quarantine[entry.key]
            for entry in adds
            if entry.key in target.quarantine and entry.key not in before
        ),
        returns_to=target.version,
    )


def _metadata_again(target: TableMetadata, latest: TableMetadata) -> TableMetadata:
    """Returns the earlier metadata, with columns that were dropped since and did not exist then, and counters
    as they are now.

    A writer that began before they were dropped may still have their values, which must stay unread.
    Settings stay as they are.
    """
    gone = (name for name in latest.retired if name not in target.schema.names)
    retired = dict.fromkeys((*target.retired, *gone))
    counters = {name: text for name, text in latest.remembered if name.startswith(COUNTER)}
    remembered = {**dict(target.remembered), **counters}
    again = replace(
        target,
        retired=tuple(retired),
        redacted=latest.redacted,
        remembered=tuple(remembered.items()),
    )
    return _with_settings_of(latest, again)


def _with_settings_of(latest: TableMetadata, table: TableMetadata) -> TableMetadata:
    """Returns metadata with the properties and the retention of others.

    They say how the table is worked on, not what is in it, and rows of windows that now are kept must not
    expire by an earlier retention.
    """
    windows = table.windows
    if windows is not None and latest.windows is not None:
        windows = dataclasses.replace(windows, retention_seconds=latest.windows.retention_seconds)
    return replace(table, windows=windows, properties=latest.properties)


# --- what stands between ---


def _check_same_rows(log: CommitLog, begun: Snapshot, latest: Snapshot) -> None:
    """Raises `CommitConflictError` if rows or columns were changed after the restore had begun."""
    table = begun.table
    for version in log.history.versions_after(begun, latest.version):
        operation, metadata = version.changes.operation, version.changes.metadata
        before, table = table, metadata or table
        is_of_settings = metadata is not None and metadata == _with_settings_of(metadata, before)
        if operation is Operation.ALTER and is_of_settings:
            continue  # a restore leaves them as they are
        if operation in _CHANGES_ROWS:
            raise CommitConflictError(
                f"{log.store.url}: version {version.number} ({operation}) was committed after the restore "
                "had begun, and would be undone unseen; nothing was changed: look at the table, and "
                "restore again"
            )


def _check_not_redacted(log: CommitLog, target: Snapshot, latest: Snapshot) -> None:
    """Raises `RestoreError` if the earlier version has a column whose values were redacted since."""
    again = set(latest.table.redacted).intersection(target.table.schema.names)
    if not again:
        return
    names = names_text(sorted(map(target.table.shown_name, again)))
    last = target.version
    for version in log.history.versions_after(target, latest.version):
        metadata = version.changes.metadata
        if metadata is not None and not again.isdisjoint(metadata.redacted):
            again.difference_update(metadata.redacted)
            last = version.number
    raise RestoreError(
        f"{log.store.url}: version {target.version} still has values of {names}, which version {last} "
        "redacted, and a restore would show them again; nothing was changed. The oldest version after it "
        f"without them is {last}"
    )
