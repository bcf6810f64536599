"""Checks that all objects of an earlier version are there, before a restore or a tag relies on them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from compactor.common.counts import counted
from compactor.errors import VersionNotFoundError
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.object_names import DATA_PREFIX
from compactor.table.snapshot import Snapshot
from compactor.table.version import Version

_log: Final = logging.getLogger(__name__)


def check_whole(log: CommitLog, target: Snapshot) -> None:
    """Raises `VersionNotFoundError` if an object that a version needs is gone. Lists the table's objects.

    Only warns of lost skip indexes: queries do without.
    """
    there = {info.key for info in log.store.list(DATA_PREFIX)}
    _warn_of_lost_indexes(log.store.url, target, there)
    lost = {entry.key: gone for entry in target.fragments.all() if (gone := _gone(entry, there))}
    if not lost:
        return
    latest = log.current()
    log.history.check_kept(target.version, latest)  # or a vacuum has taken it meanwhile
    first = min(lost.values())
    whole = _first_whole(lost, log.history.versions_after(target, latest.version), there)
    way_out = (
        f"the oldest version after it that is whole is {whole}"
        if whole
        else "no later version is whole either"
    )
    raise VersionNotFoundError(
        f"{log.store.url}/{first}: version {target.version} needs this object, which is gone "
        f"({counted(len(lost), 'fragment is', 'fragments are')} incomplete); nothing was changed. Restore "
        f"what is gone from a backup or the bucket's versions; {way_out}"
    )


def _warn_of_lost_indexes(url: str, target: Snapshot, there: set[str]) -> None:
    indexes = [e.skip_index.key for e in target.fragments.all() if e.skip_index is not None]
    if lost := [key for key in indexes if key not in there]:
        _log.warning(
            "%s/%s: this object is gone, and skip indexes of version %d with it (those of %s): queries do "
            "without, and read more; a compaction that rewrites the fragments makes them anew, such as "
            "`compactor compact --strategy full`",
            url,
            min(lost),
            target.version,
            counted(len(lost), "fragment"),
        )


def _gone(entry: FragmentEntry, there: set[str]) -> str | None:
    """Returns the first needed object of a fragment that is gone, if any."""
    return next((key for key in entry.needed_objects if key not in there), None)


def _first_whole(lost: Iterable[str], versions: Iterable[Version], there: set[str]) -> int | None:
    """Returns the first of these versions all of whose objects are there. lost: fragments before them."""
    left = set(lost)
    for version in versions:
        left.difference_update(version.changes.removes)
        left.update(entry.key for entry in version.changes.adds if _gone(entry, there))
        if not left:
            return version.number
    return None
