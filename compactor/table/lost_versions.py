"""Finds versions that were committed and have gone from the end of the log, by the names of other objects.

An attempt names its objects by the version at which it began, and it begins with a version that it has read
from the log. So an object based on version 12 proves that version 12 was committed, whether the attempt was
committed or not. A version after which no attempt began leaves no such proof.
"""

from __future__ import annotations

from itertools import takewhile

from msgspec import Struct

from compactor.errors import DataError
from compactor.stores.base import ReadOnlyStore
from compactor.table.history import MAX_LOST_VERSIONS, History
from compactor.table.object_names import (
    DATA_PREFIX,
    base_version,
    is_deletions_key,
    is_fragment_key,
    names_from,
    version_key,
)
from compactor.table.snapshot import Snapshot
from compactor.table.version import SEE_REPAIR


class LostVersion(Struct, frozen=True):
    """The last version that is proven to have gone from the end of the log."""

    number: int
    proof: str
    """Key of an object that is based on it."""
    end: int
    """The version with which the log ends now."""

    @property
    def reason(self) -> str:
        return (
            f"the log file is missing: {self.proof} was written at version {self.number}, but the log ends "
            f"with version {self.end}"
        )


def last_base(store: ReadOnlyStore, end: int) -> LostVersion | None:
    """Returns the last version after `end` that an object is based on; None if there is none.

    Like a log file far beyond a gap, a name far beyond the end proves nothing.
    """
    found = (0, "")
    for info in store.list(DATA_PREFIX, start_after=names_from(end + 1)):
        base = base_version(info.key)
        if base is not None and end < base <= end + MAX_LOST_VERSIONS:
            found = max(found, (base, info.key))
    return LostVersion(*found, end) if found[0] else None


def unnamed_objects(store: ReadOnlyStore, end: int) -> int:
    """Returns how many fragments and deletions are based on the last version of the log: none names them.

    They prove nothing: an attempt may run or have died, or its version, the newest, may have gone.
    """
    keys = (info.key for info in store.list(DATA_PREFIX, start_after=names_from(end)))
    near = takewhile(lambda key: base_version(key) in (None, end), keys)
    named = (is_fragment_key, is_deletions_key)
    return sum(base_version(key) == end and any(each(key) for each in named) for key in near)


def lost_version(store: ReadOnlyStore, history: History, newest: Snapshot) -> LostVersion | None:
    """Returns the last version that is lost after the newest one; None if nothing proves such a loss.

    Versions that a repair has given up are not lost. Raises what `History.newest` raises.
    """
    found = last_base(store, newest.version)
    if found is None:
        return None
    if history.given_up() >= found.number:
        return None
    # Others may have committed versions since the newest was read, and begun attempts on these.
    if history.newest(newest).snapshot.version >= found.number:
        return None
    return found


def check_no_version_lost(store: ReadOnlyStore, history: History, newest: Snapshot) -> None:
    """Raises `DataError` if a version after the newest one is lost."""
    lost = lost_version(store, history, newest)
    if lost is not None:
        raise DataError(
            f"{store.url}/{version_key(lost.number)}: {lost.reason}; restore it from a backup or the "
            f"bucket's versions{SEE_REPAIR}"
        )
