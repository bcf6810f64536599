"""Quarantines fragments that are damaged or gone, and drops them with their rows.

Compactions quarantine a fragment that fails them three times. These functions are for an operator whose
readers need a fragment that no compaction reads. They refuse intact fragments, whose rows can be deleted by a
condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from compactor.common.counts import counted
from compactor.common.setting_keys import LOSE_ROWS
from compactor.errors import UsageError
from compactor.read.fragment_check import check_fragment
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.fragment_ids import key_of
from compactor.table.key_text import key_text, key_types
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Quarantine
from lsm_fragment.threads import ALONE


class DropReport(Struct, frozen=True, kw_only=True):
    """The result of dropping a fragment."""

    version: int
    """The version without the fragment."""
    fragment: str
    rows: int
    """Rows lost, without those deleted before."""
    first_key: str
    last_key: str
    """The keys of its first and last row, as `inspect` shows them."""
    tombstones: int
    """Number of tombstones among these rows."""
    may_revive: bool
    """Whether older rows of the same keys may reappear, because readers merge rows of one key."""


def drop_fragment(log: CommitLog, fragment: str, *, lose_rows: bool) -> DropReport:
    """Drops a fragment that is in quarantine, damaged or gone, in one commit.

    Its object stays until a vacuum removes the versions that contain it. Raises `UsageError` without
    `lose_rows`, for an unknown fragment and for an intact one; `StoreError` if the fragment cannot be
    checked.
    """
    snapshot = log.current()
    entry = _live(log, snapshot, fragment)
    key = entry.key
    was_held = key in snapshot.quarantine
    if not was_held:
        _fault_of(log, snapshot, entry)
    if not lose_rows:
        raise UsageError(
            LOSE_ROWS,
            f": {fragment} has {counted(entry.live_rows, 'row')}, which would be lost; give this option if "
            "they can't be restored",
        )
    dropped = [entry]

    def prepare(latest: Snapshot) -> Changes:
        dropped[0] = _live(log, latest, key)
        if was_held and key not in latest.quarantine:
            raise UsageError(
                f"{fragment} was released from quarantine meanwhile; nothing was changed"
            )
        return Changes(operation=Operation.DROP, removes=(key,), lost_fragments=(dropped[0],))

    after = log.commit(prepare)
    lost, table = dropped[0], after.table
    types = key_types(table.schema, table.sort)
    return DropReport(
        version=after.version,
        fragment=key,
        rows=lost.live_rows,
        first_key=key_text(lost.first_key, types),
        last_key=key_text(lost.last_key, types),
        tombstones=lost.tombstones,
        may_revive=table.rows.merges,
    )


def quarantine(log: CommitLog, fragments: Sequence[str]) -> tuple[str, ...]:
    """Quarantines fragments that are damaged or gone. Returns the keys of those that were not quarantined
    yet.

    Raises `UsageError` for an unknown or intact fragment; `StoreError`.
    """
    snapshot = log.current()
    live = {entry.key: entry for entry in (_live(log, snapshot, name) for name in fragments)}
    now = log.clock.now_unix_ms()
    found = [
        Quarantine(entry.key, _fault_of(log, snapshot, entry), now)
        for entry in live.values()
        if entry.key not in snapshot.quarantine
    ]

    def prepare(latest: Snapshot) -> Changes:
        for item in found:
            _live(log, latest, item.key)
        return Changes(operation=Operation.QUARANTINE, quarantines=tuple(found))

    if found:
        log.commit(prepare)
    return tuple(item.key for item in found)


def _live(log: CommitLog, snapshot: Snapshot, fragment: str) -> FragmentEntry:
    entry = snapshot.fragments.get(key_of(snapshot.fragments, fragment))
    if entry is None:
        raise UsageError(
            f"{log.store.url}: {fragment!r} is no fragment of version {snapshot.version}; "
            "`compactor inspect` shows the fragments there are"
        )
    return entry


def _fault_of(log: CommitLog, snapshot: Snapshot, entry: FragmentEntry) -> str:
    """Reads and checks a fragment, and returns its fault. Raises `UsageError` if it is intact."""
    faults = check_fragment(log.store, snapshot.table, entry, ALONE).faults
    if not faults:
        raise UsageError(
            f"{log.store.url}/{entry.key}: nothing is wrong with this fragment; `compactor delete` removes "
            "rows by a condition"
        )
    return faults[0]


def release(log: CommitLog, fragments: Sequence[str] | None = None) -> tuple[str, ...]:
    """Releases fragments by their keys, or all if none are named. Returns the keys of those released.

    The count of workers that ended over a fragment begins anew. Raises `UsageError` for a fragment that is
    neither in quarantine nor under suspicion.
    """
    snapshot = log.current()
    held = {**snapshot.quarantine, **snapshot.suspects}
    keys = tuple(held) if fragments is None else tuple(key_of(held, name) for name in fragments)
    unknown = [key for key in keys if key not in held]
    if unknown:
        raise UsageError(f"{unknown[0]} is not in quarantine; `compactor inspect` shows what is")

    def prepare(_: Snapshot) -> Changes:
        return Changes(operation=Operation.QUARANTINE, released_fragments=keys)

    if keys:
        log.commit(prepare)
    return keys
