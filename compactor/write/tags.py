"""Sets and ends tags: names of versions, which vacuums keep. Each change is one commit."""

from __future__ import annotations

import re

from compactor.common.setting_keys import KEEP_SECONDS, MOVE
from compactor.errors import UsageError
from compactor.read.changes import check_since
from compactor.table.commit_log import CommitLog
from compactor.table.numbers import LAST_UNIX_MS
from compactor.table.snapshot import Snapshot
from compactor.table.tags import TAG_PATTERN, Tag
from compactor.table.version import Changes, Operation
from compactor.write.whole_versions import check_whole


def check_tag_name(name: str) -> None:
    """Raises `UsageError` for a name that no tag may have."""
    if re.match(TAG_PATTERN, name) is None:
        raise UsageError(
            f"tag {name!r}: write up to 100 letters, digits, '.', '_' and '-', not digits alone, and begin "
            "with a letter or digit"
        )


def set_tag(
    log: CommitLog,
    name: str,
    target: Snapshot,
    *,
    keep_seconds: float | None = None,
    move: bool = False,
    keeps_later: bool = False,
) -> Tag:
    """Names a version that is kept. target: that version.

    keep_seconds: a vacuum ends the tag after that time; None keeps it. move: replaces a tag of that name.
    keeps_later: makes vacuums keep all versions after it, too.
    Raises `UsageError` for an invalid name, one that is taken, or a time of 0; `VersionNotFoundError` if the
    version, or an object of it, is gone.
    """
    check_tag_name(name)
    if keep_seconds is not None and round(keep_seconds * 1000) <= 0:
        raise UsageError(
            KEEP_SECONDS,
            f": a tag that is kept for {keep_seconds:g} seconds has expired when it is set; give a longer "
            "time, or none to keep it",
        )
    known = log.current()
    if not (keeps_later and _is_kept(known.tag(name), target)):
        check_whole(log, target)
    now = log.lease_unix_ms()
    expires = None if keep_seconds is None else min(now + round(keep_seconds * 1000), LAST_UNIX_MS)
    tag = Tag(name, target.version, now, expires, keeps_later)

    def prepare(latest: Snapshot) -> Changes:
        log.history.check_kept(target.version, latest)
        if keeps_later:
            check_since(log, target.version, latest)
        before = latest.tag(name)
        if before is not None and not move:
            raise UsageError(
                f"{log.store.url}: tag {name!r} names version {before.version}; choose another, or give ",
                MOVE,
            )
        return Changes(operation=Operation.TAG, tags=(tag,))

    log.commit(prepare)
    return tag


def _is_kept(tag: Tag | None, target: Snapshot) -> bool:
    """Says whether vacuums have spared a version for the sake of a tag.

    A reader moves its tag forward after each batch, and listing all objects each time would cost too much.
    """
    return tag is not None and tag.keeps_later and tag.version <= target.version


def end_tag(log: CommitLog, name: str) -> int:
    """Ends a tag, and returns its version. Raises `VersionNotFoundError` if there is no such tag."""
    version = 0

    def prepare(latest: Snapshot) -> Changes:
        nonlocal version
        version = log.history.tagged(name, latest)
        return Changes(operation=Operation.TAG, ended_tags=(name,))

    log.current()
    log.commit(prepare)
    return version
