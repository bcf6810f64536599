"""Releases fragments from quarantine."""

from __future__ import annotations

from collections.abc import Sequence

from compactor.errors import UsageError
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation


def release(log: CommitLog, fragments: Sequence[str] | None = None) -> tuple[str, ...]:
    """Releases fragments by their keys, or all if none are named. Returns the keys of those released.

    The count of workers that ended over a fragment begins anew. Raises `UsageError` for a fragment that is
    neither in quarantine nor under suspicion.
    """
    snapshot = log.current()
    held = {**snapshot.quarantine, **snapshot.suspects}
    unknown = [key for key in fragments or () if key not in held]
    if unknown:
        raise UsageError(f"{unknown[0]} is not in quarantine; `compactor inspect` shows what is")
    keys = tuple(held) if fragments is None else tuple(fragments)

    def prepare(_: Snapshot) -> Changes:
        return Changes(operation=Operation.QUARANTINE, released_fragments=keys)

    if keys:
        log.commit(prepare)
    return keys
