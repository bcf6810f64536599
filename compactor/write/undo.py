"""Undoes one compaction: its inputs take the place of its outputs again, and later ingests stay.

Only the log changes, so the inputs have to be kept still. What overlaps them may have come by an ingest
since, but not by another compaction: whether that is older or newer than the inputs, the log can't tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compactor.errors import RestoreError, UsageError
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Version
from compactor.write.whole_versions import check_whole
from lsm_fragment.names import names_text


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The result of an undo, or of its dry run."""

    version: int
    """The committed version, or the newest one of a dry run."""
    compacted: int
    """The version that committed the compaction."""
    fragments_added: int
    """Inputs that came back."""
    fragments_removed: int
    """Outputs that left."""


def undo_compaction(log: CommitLog, compaction_id: str, *, dry_run: bool = False) -> UndoReport:
    """Puts the inputs of a compaction in the place of its outputs, in one commit that ends all leases.

    Raises `UsageError` for an unknown compaction, `VersionNotFoundError` if its inputs are no longer kept or
    gone, and `RestoreError` if its outputs, or what overlaps its inputs, changed since.
    """
    latest = log.current()
    version = _version_of(log, latest, compaction_id)
    before = log.at(version.number - 1)
    inputs = set(before.leases[compaction_id].inputs)
    check_whole(log, before.without(before.fragments.keys() - inputs))

    def prepare(latest: Snapshot) -> Changes:
        return _undone(log.store.url, before, version, compaction_id, latest)

    changes = prepare(latest)
    after = latest if dry_run else log.commit(prepare)
    return UndoReport(after.version, version.number, len(changes.adds), len(changes.removes))


def _version_of(log: CommitLog, latest: Snapshot, compaction_id: str) -> Version:
    """Searches the kept versions, newest first. Raises `UsageError`."""
    for number in range(latest.version, latest.oldest, -1):
        version = log.history.read(number, latest.table_id)
        changes = version.changes
        if changes.operation is Operation.COMPACT and compaction_id in changes.ended_leases:
            return version
    raise UsageError(
        f"{log.store.url}: no version after {latest.oldest} has committed a compaction {compaction_id!r}; "
        "`compactor inspect --json` shows ids as the `run` of fragments"
    )


def _undone(
    url: str, before: Snapshot, version: Version, compaction_id: str, latest: Snapshot
) -> Changes:
    """Returns the changes that undo a compaction. Pure. Raises `RestoreError`.

    before: the snapshot before the compaction's commit.
    """

    def refused(reason: str) -> RestoreError:
        return RestoreError(
            f"{url}: compaction {compaction_id} of version {version.number} can't be undone: {reason}; "
            f"nothing was changed. `compactor restore --version {before.version}` restores the whole version "
            "before it"
        )

    outputs = [entry for entry in version.changes.adds if entry.run == compaction_id]
    inputs = [before.fragments[key] for key in before.leases[compaction_id].inputs]
    for entry in outputs:
        now = latest.fragments.get(entry.key)
        if now is None:
            raise refused(f"{entry.key} has been compacted, dropped or replaced since")
        if now.level != entry.level:
            raise refused(f"{entry.key} has moved to level {now.level} since")
        if now.deletion != entry.deletion:
            raise refused(f"rows of {entry.key} were deleted since")
    _check_columns(refused, before, inputs, latest)
    stranger = _stranger(before, version.number, inputs, {e.key for e in outputs}, latest)
    if stranger is not None:
        raise refused(f"{stranger.key}, whose keys overlap its inputs, was compacted since")
    return Changes(
        operation=Operation.UNDO,
        removes=tuple(entry.key for entry in outputs),
        adds=tuple(inputs),
        ended_leases=tuple(latest.leases),
        returns_to=before.version,
    )


def _check_columns(
    refused: Callable[[str], RestoreError],
    before: Snapshot,
    inputs: Sequence[FragmentEntry],
    latest: Snapshot,
) -> None:
    """Refuses inputs with redacted values, or of types whose values were checked without theirs."""
    table = latest.table
    redacted = {name for entry in inputs for name in entry.columns if name in table.redacted}
    if redacted:
        raise refused(f"its inputs have redacted values of {names_text(sorted(redacted))}")
    kept = [field for field in before.table.schema if field.name in table.schema.names]
    changed = [f.name for f in kept if table.schema.field(f.name).type != f.type]
    if changed:
        raise refused(f"{names_text(changed)} got another type since")


def _stranger(
    before: Snapshot,
    compacted: int,
    inputs: Sequence[FragmentEntry],
    outputs: set[str],
    latest: Snapshot,
) -> FragmentEntry | None:
    """Returns a fragment that overlaps an input, and is neither as it was then nor ingested since."""
    compare = latest.table.key_comparator()
    ranges = [(entry.window, *key_range(entry, compare)) for entry in inputs]
    for entry in latest.fragments.all():
        then = before.fragments.get(entry.key)
        is_as_it_was = then is not None and then.level == entry.level
        is_newer = entry.level == 0 and entry.sequence[0] >= compacted
        if entry.key in outputs or is_as_it_was or is_newer:
            continue
        first, last = key_range(entry, compare)
        if any(w == entry.window and low <= last and first <= high for w, low, high in ranges):
            return entry
    return None
