"""Explains that an object of a table is missing: a vacuum has overtaken its reader, or the object is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final

from compactor.common.counts import counted
from compactor.common.setting_keys import RETAIN_SECONDS, SKIP_MISSING
from compactor.errors import (
    CompactorError,
    FragmentMissingError,
    ObjectNotFoundError,
    OvertakenError,
    PermissionDeniedError,
)
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.history import History
from compactor.table.object_names import DATA_PREFIX, base_version
from compactor.table.snapshot import Snapshot
from compactor.table.version import Version

_MAX_SEARCHED: Final = 100
"""Look through at most this many versions, the newest first, for the one that removed a fragment."""


@contextmanager
def missing_explained(store: Store, key: str, fragment: str) -> Iterator[None]:
    """Turns a store's error about a missing object into one that says why it is missing.

    key: of the fragment's object, or of the one with its deleted rows. fragment: the key of the fragment.
    Raises `OvertakenError` if a vacuum removed the object, or it was given up, and `FragmentMissingError` if
    the newest version or another that is kept needs it: then the store has said "no such object", and does
    not list it either. S3 answers "permission denied" for a missing object to callers that may not list the
    whole bucket, which proves no loss.
    """
    try:
        yield
    except (ObjectNotFoundError, PermissionDeniedError) as error:
        history = History(store, readers=1)
        newest = _newest_without(store, history, key)
        if newest is None:
            raise
        needing = [e for e in newest.fragments.all() if key in e.needed_objects]
        found: tuple[FragmentEntry, int | None] | None
        if needing:
            found = next((e for e in needing if e.key == fragment), needing[0]), None
        elif given_up := _given_up(history, {fragment}):
            raise _dropped(store, key, given_up[fragment]) from error
        elif (found := next(_kept_with(history, newest, {key}), None)) is None:
            raise _overtaken(store, key) from error
        if isinstance(error, PermissionDeniedError):
            raise
        raise _missing(store, key, *found) from error


def unreadable(store: Store, snapshot: Snapshot) -> frozenset[str]:
    """Returns the keys of fragments in quarantine, and of those that are proven to be gone: the store does
    not list an object of theirs, and no vacuum can have removed it, since it left the snapshot's version
    alone or a version that is kept needs the object, or a version has given the fragment up.

    Lists the table's data. Raises `StoreError`.
    """
    there = {info.key for info in store.list(DATA_PREFIX)}
    gone = {
        entry.key: missing
        for entry in snapshot.fragments.all()
        if (missing := set(entry.needed_objects) - there)
    }
    lost = _lost(store, snapshot.version, gone) if gone else set()
    return frozenset(snapshot.quarantine) | lost


def _lost(store: Store, version: int, gone: Mapping[str, set[str]]) -> Set[str]:
    """Returns those of a version's fragments that no vacuum can have removed. gone: the objects of each that
    the store does not have."""
    history = History(store, readers=1)
    newest = history.newest(Snapshot.empty()).snapshot
    if newest.keeps(version):
        return gone.keys()
    needed = {
        key
        for key, missing in gone.items()
        if key in newest.fragments and missing.intersection(newest.fragments[key].needed_objects)
    }
    if older := {key: missing for key, missing in gone.items() if key not in needed}:
        kept = _kept_with(history, newest, set().union(*older.values()))
        objects = {key for entry, _ in kept for key in entry.needed_objects}
        needed |= {key for key, missing in older.items() if not objects.isdisjoint(missing)}
    return needed | _given_up(history, gone.keys() - needed).keys()


def _newest_without(store: Store, history: History, key: str) -> Snapshot | None:
    """Returns the newest snapshot if the store does not list the object; None if it does, or can't tell."""
    try:
        if any(info.key == key for info in store.list(key)):
            return None
        newest = history.newest(Snapshot.empty()).snapshot
    except CompactorError:
        return None
    return newest if newest.version else None


def _given_up(history: History, fragments: Set[str]) -> dict[str, Version]:
    """Returns the version that removed each of the fragments last, if it gave it up, and that can be told."""
    found: dict[str, Version] = {}
    if not fragments:
        return found
    left = set(fragments)
    try:
        first = min(base_version(fragment) or 0 for fragment in fragments)
        numbers = [number for number, _ in history.log_files(first)]
        for number in reversed(numbers[-_MAX_SEARCHED:]):
            if not left:
                break
            changes = (version := history.read_any(number)).changes
            removed = left.intersection(changes.removes)
            lost = removed.intersection(entry.key for entry in changes.lost_fragments)
            found |= dict.fromkeys(lost, version)
            left -= removed
    except CompactorError:
        pass
    return found


def _kept_with(
    history: History, newest: Snapshot, objects: Set[str]
) -> Iterator[tuple[FragmentEntry, int]]:
    """Yields the fragments that need one of the objects in versions that are kept, with a version each, as
    far as that can be told: vacuums leave those objects alone."""
    base = min(base_version(key) or 0 for key in objects)
    first = max(base, newest.oldest)
    tagged = [number for number in newest.tagged if base < number < newest.oldest]
    try:
        for number in (*tagged, first):
            snapshot = history.at(number, newest)
            for entry in snapshot.fragments.all():
                if not objects.isdisjoint(entry.needed_objects):
                    yield entry, number
        last = min(newest.version, first + _MAX_SEARCHED)
        for version in history.versions_after(snapshot, last):
            for entry in version.changes.adds:
                if not objects.isdisjoint(entry.needed_objects):
                    yield entry, version.number
    except CompactorError:
        pass


def _dropped(store: Store, key: str, dropping: Version) -> OvertakenError:
    """dropping: the version in which it was given up."""
    return OvertakenError(
        f"{store.url}/{key}: no such object, and version {dropping.number} has given its rows up "
        "(`compactor drop-fragment`): restore it from a backup, leave it out (",
        SKIP_MISSING,
        "), or read that version or a later one, and changes since then",
    )


def _overtaken(store: Store, key: str) -> OvertakenError:
    return OvertakenError(
        f"{store.url}/{key}: a vacuum removed it while an older version of the table was read; read "
        "again, and if readers take longer than the vacuum's ",
        RETAIN_SECONDS,
        ", vacuum with a longer one",
    )


def _missing(
    store: Store, key: str, entry: FragmentEntry, kept: int | None
) -> FragmentMissingError:
    """kept: a version that needs it; None for the newest."""
    needing = "the table" if kept is None else f"version {kept}, which is kept,"
    of = "" if key == entry.key else f"the deleted rows of {entry.key}, "
    if kept is None:
        ways = (
            "queries, exports and deletions may leave the fragment out (",
            SKIP_MISSING,
            "), or give its rows up (`compactor drop-fragment`)",
        )
    else:
        ways = ("read a version that does not, or leave the fragment out (", SKIP_MISSING, ")")
    return FragmentMissingError(
        f"{store.url}/{key}: no such object, and {needing} needs it ({of}a fragment of "
        f"{counted(entry.live_rows, 'row')}): restore it from a backup or the bucket's versions. Without "
        "one, ",
        *ways,
        name=f"{store.url}/{entry.key}",
    )
