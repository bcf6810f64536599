"""Undoes one compaction: its inputs take the place of its outputs again, and later ingests stay.

Rows of the outputs that were deleted since stay deleted: they are carried back to the inputs, whose keys
are read for that. Otherwise only the log changes, so the inputs have to be kept still. What overlaps them may
have come by an ingest since, but not by another compaction: whether that is older or newer than the inputs,
the log can't tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from compactor.common.clock import random_id
from compactor.compaction.carrying import CannotCarryError, OrderOf, order_of_keys
from compactor.compaction.carrying_back import carried_back
from compactor.compaction.compaction import Compaction
from compactor.errors import RestoreError, UsageError
from compactor.planner.spec import CompactionSpec
from compactor.settings.compaction import CompactionSettings
from compactor.settings.properties import tuned
from compactor.table.commit_log import CommitLog
from compactor.table.deletions import Deleted, write_deletions
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.fragment_ids import compaction_of
from compactor.table.object_names import deletions_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Version
from compactor.write.search import StaleSearchError, until_current
from compactor.write.whole_versions import check_whole
from lsm_fragment.names import names_text


class UndoReport(Struct, frozen=True, kw_only=True):
    """The result of an undo, or of its dry run."""

    version: int
    """The committed version, or the newest one of a dry run."""
    compacted: int
    """The version that committed the compaction."""
    fragments_added: int
    """Inputs that came back."""
    fragments_removed: int
    """Outputs that left."""
    rows_deleted: int
    """Rows of the inputs that stay deleted, because rows of the outputs were deleted since."""


def undo_compaction(
    log: CommitLog,
    compaction_id: str,
    *,
    dry_run: bool = False,
    order_of: OrderOf = order_of_keys,
) -> UndoReport:
    """Puts the inputs of a compaction in the place of its outputs, in one commit that ends all leases.

    compaction_id: may be shortened, or be the short id of an output. order_of: makes the row order again, if
    rows were deleted since.
    Raises `UsageError` for an unknown compaction, `VersionNotFoundError` if its inputs are no longer kept or
    gone, and `RestoreError` if its outputs, or what overlaps its inputs, changed since; what reading the keys
    of inputs raises, if rows were deleted since.
    """
    latest = log.current()
    compaction_id = compaction_of(_runs(latest.fragments.all()), compaction_id)
    version, compaction_id = _version_of(log, latest, compaction_id)
    undo = _Undo(log, version, compaction_id, order_of)
    undo.check_whole()
    return until_current(log, undo.dry_run if dry_run else undo.attempt, "undone")


class _Undo:
    """The undo of one compaction."""

    def __init__(
        self, log: CommitLog, version: Version, compaction_id: str, order_of: OrderOf
    ) -> None:
        """version: which committed the compaction."""
        self._log, self._order_of = log, order_of
        self._version, self._compaction_id = version, compaction_id
        self._before = log.at(version.number - 1)
        self._lease = self._before.leases[compaction_id]
        self._inputs = [self._before.fragments[key] for key in self._lease.inputs]
        self._outputs = [entry for entry in version.changes.adds if entry.run == compaction_id]

    def check_whole(self) -> None:
        """Raises `VersionNotFoundError` if an object of an input is gone."""
        others = self._before.fragments.keys() - set(self._lease.inputs)
        check_whole(self._log, self._before.without(others))

    def dry_run(self, latest: Snapshot) -> UndoReport:
        self._check(latest)
        found = self._deleted(latest)
        before = {entry.key: entry.deleted_rows for entry, _ in found}
        rows = sum(bits.true_count - before[entry.key] for entry, bits in found)
        return self._report(latest, rows)

    def attempt(self, latest: Snapshot) -> UndoReport:
        """Raises `StaleSearchError` if rows were deleted meanwhile."""
        self._check(latest)
        found = self._deleted(latest)
        entries: list[FragmentEntry] = []
        if found:
            key = deletions_key(latest.version, random_id())
            entries = write_deletions(self._log.store, key, found)
        changed = {entry.key: entry for entry in entries}
        deletions = {entry.key: latest.fragments[entry.key].deletion for entry in self._outputs}

        def prepare(newest: Snapshot) -> Changes:
            self._check(newest)
            is_same = all(newest.fragments[k].deletion == known for k, known in deletions.items())
            # A vacuum past the version by which the deletions are named may have removed them.
            if not is_same or (entries and newest.min_base_version > latest.version):
                raise StaleSearchError
            return Changes(
                operation=Operation.UNDO,
                removes=tuple(deletions),
                adds=tuple(changed.get(entry.key, entry) for entry in self._inputs),
                ended_leases=tuple(newest.leases),
                returns_to=self._before.version,
            )

        after = self._log.commit(prepare)
        rows = sum(entry.deleted_rows for entry in entries)
        rows -= sum(entry.deleted_rows for entry in self._inputs if entry.key in changed)
        return self._report(after, rows)

    def _report(self, after: Snapshot, rows_deleted: int) -> UndoReport:
        return UndoReport(
            version=after.version,
            compacted=self._version.number,
            fragments_added=len(self._inputs),
            fragments_removed=len(self._outputs),
            rows_deleted=rows_deleted,
        )

    def _deleted(self, latest: Snapshot) -> list[tuple[FragmentEntry, Deleted]]:
        """Returns the inputs that get deleted rows, with all of them. Raises `RestoreError`."""
        table = self._before.table
        compaction = Compaction(
            compaction_id=self._compaction_id,
            base_version=self._before.version,
            table_url=self._log.store.url,
            metadata=table,
            spec=CompactionSpec(inputs=tuple(self._inputs), output_level=self._lease.output_level),
            settings=tuned(CompactionSettings(), table.properties),
            now_unix_ms=self._lease.began_unix_ms,
        )
        outputs = [(entry, latest.fragments[entry.key]) for entry in self._outputs]
        try:
            return carried_back(self._log.store, compaction, outputs, order_of=self._order_of)
        except CannotCarryError as error:
            raise self._refused(f"rows of its outputs were deleted since, and {error}") from error

    def _check(self, latest: Snapshot) -> None:
        """Raises `RestoreError` if the inputs can't take the place of the outputs."""
        # A trivial move of an output changes no row, and the inputs come back at their own levels.
        for entry in self._outputs:
            if entry.key not in latest.fragments:
                raise self._refused(f"{entry.key} has been compacted, dropped or replaced since")
        _check_columns(self._refused, self._before, self._inputs, latest)
        outputs = {entry.key for entry in self._outputs}
        stranger = _stranger(self._before, self._version.number, self._inputs, outputs, latest)
        if stranger is not None:
            raise self._refused(
                f"{stranger.key}, whose keys overlap its inputs, was compacted since"
            )

    def _refused(self, reason: str) -> RestoreError:
        return RestoreError(
            f"{self._log.store.url}: compaction {self._compaction_id} of version {self._version.number} "
            f"can't be undone: {reason}; nothing was changed. `compactor restore --version "
            f"{self._before.version}` restores the whole version before it"
        )


def _runs(entries: Iterable[FragmentEntry]) -> dict[str, str]:
    """Returns the compactions of fragments that one has written, by key."""
    return {entry.key: entry.run for entry in entries if entry.run != entry.key}


def _version_of(log: CommitLog, latest: Snapshot, compaction_id: str) -> tuple[Version, str]:
    """Searches the kept versions, newest first, also by outputs that are no longer live. Returns the one that
    committed the compaction, and its id. Raises `UsageError`."""
    for number in range(latest.version, latest.oldest, -1):
        version = log.history.read(number, latest.table_id)
        changes = version.changes
        if changes.operation is not Operation.COMPACT:
            continue
        meant = compaction_of(_runs(changes.adds), compaction_id)
        if meant in changes.ended_leases:
            return version, meant
    gone = ", and a vacuum has removed what compactions before it read" if latest.oldest > 1 else ""
    raise UsageError(
        f"{log.store.url}: no version after {latest.oldest} has committed a compaction "
        f"{compaction_id!r}{gone}; name it by a fragment that it wrote, as `compactor inspect` shows them"
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
    kept = [field for field in before.table.schema if table.schema.get_field_index(field.name) >= 0]
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
