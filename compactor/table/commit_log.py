"""The commit log: versions are created only if absent, so that every change is all or nothing.

A commit ends in one of three ways: committed, conflict (another writer took the version: read on and try the
next), or unknown (no answer). After an unknown outcome, the same bytes are offered again for the same
version. If the version then exists, that is not yet a conflict: an earlier request of ours may have landed,
or the network may have delivered one request twice. Only the commit id in it says whose it is. A commit whose
outcome stays unknown is remembered, so that its objects are not added a second time.

All that rests on the store's conditional writes, so a log proves them before its first commit, and reads each
commit back.

Two rules keep out processes that slept for hours (`vacuum` relies on both):
- what a commit adds must come from an attempt based on a version not before the minimum base version;
- old log files are removed in ascending order, so the creation of version n + 1 counts only if the same
  version n is still there afterwards: otherwise n + 1 may have existed before, and been removed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from compactor.common.clock import Clock, Ids, SystemClock, random_id
from compactor.common.counts import counted
from compactor.common.process import process_name
from compactor.common.second_tries import patiently
from compactor.common.setting_keys import GRACE_SECONDS
from compactor.errors import (
    CommitConflictError,
    DataError,
    ObjectExistsError,
    ObjectNotFoundError,
    StaleAttemptError,
    StoreError,
    StoreUnreachableError,
    TableError,
    TableNotFoundError,
    UnknownOutcomeError,
    VersionNotFoundError,
)
from compactor.stores.base import MAX_READ_BYTES, Store
from compactor.stores.conditional_writes import prove_conditional_writes
from compactor.table import clocks
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.entry import check_entry
from compactor.table.history import History
from compactor.table.metadata import TableMetadata
from compactor.table.numbers import MAX_LEVEL, check_number
from compactor.table.object_names import (
    CHECKPOINT_PREFIX,
    DATA_PREFIX,
    LOG_PREFIX,
    PROBE_KEY,
    base_version,
    checkpoint_key,
    names_from,
    version_key,
)
from compactor.table.snapshot import Snapshot
from compactor.table.tags import unix_ms_of
from compactor.table.version import Changes, Version

_MAX_TRIES: Final = 64
_CHECKPOINT_VERSIONS: Final = 64
"""Write a checkpoint after this many versions at the earliest; see `_is_checkpoint_due` for large tables."""
_MAX_CHECKPOINT_VERSIONS: Final = 1024
_MAX_UNKNOWN: Final = 256
"""Remember at most this many commits of unknown outcome."""

log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

Prepare = Callable[[Snapshot], Changes]
"""Is called for every try: returns the changes for that snapshot, or raises if they no longer make sense."""


class _LostRaceError(Exception):
    """Another commit took the version."""


class _LandedError(Exception):
    """An earlier commit of this log, whose outcome was unknown, has made the change."""


class CommitLog:
    """The versions of one table under `_log/` of its store. Not shared between threads."""

    def __init__(
        self, store: Store, clock: Clock | None = None, ids: Ids = random_id, *, readers: int = 16
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._ids = ids
        self.history = History(store, readers)
        self._latest = Snapshot.empty()
        self._checkpointed = 0
        self._changed_since = 0
        self._are_writes_proved = False
        self._unknown: list[Version] = []

    @property
    def store(self) -> Store:
        return self._store

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def latest(self) -> Snapshot:
        """The snapshot last seen; does not ask the store."""
        return self._latest

    def refresh(self) -> Snapshot:
        """Returns the newest snapshot, or version 0 without a table. Reads only versions not seen yet."""
        loaded = self.history.newest(self._latest)
        if loaded.checkpoint is not None:
            self._checkpointed, self._changed_since = loaded.checkpoint, 0
        self._changed_since += loaded.changed
        self._latest = loaded.snapshot
        return self._latest

    def current(self) -> Snapshot:
        """Returns what `refresh` does. Raises `TableNotFoundError` if there is no table."""
        snapshot = self.refresh()
        if snapshot.version == 0:
            raise TableNotFoundError(
                f"{self._store.url}: no table here; `compactor ingest` creates one"
            )
        return snapshot

    def at(
        self,
        version: int | None = None,
        as_of_unix_ms: int | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Returns the newest snapshot, or that of a version, of a time or of a tag.

        The version of a time is the last one committed then or before. Raises `TableNotFoundError`, and
        `VersionNotFoundError` for a version that is not retained.
        """
        newest = self.current()
        if tag is not None:
            version = self.history.tagged(tag, newest)
        if as_of_unix_ms is not None:
            version = self.history.newest_not_after(as_of_unix_ms, newest)
            if version == 0:
                when = datetime.fromtimestamp(as_of_unix_ms / 1000, UTC)
                raise VersionNotFoundError(
                    f"{self._store.url}: no version from {when.isoformat(timespec='seconds')} or before is "
                    f"kept; the oldest kept is {newest.oldest}"
                )
        if version is None or version == newest.version:
            return newest
        return self.history.at(version, newest)

    def named(self, version: int | str | datetime) -> Snapshot:
        """Returns the snapshot of a version by its number, tag or time. Raises what `at` raises, and
        `UsageError` for a time before the year 1."""
        if isinstance(version, datetime):
            return self.at(as_of_unix_ms=unix_ms_of(version))
        return self.at(tag=version) if isinstance(version, str) else self.at(version)

    def commit(self, prepare: Prepare) -> Snapshot:
        """Commits a change atomically on top of the newest version. Returns the snapshot after it.

        If an earlier commit of this log that adds the same objects had an unknown outcome and did land,
        nothing is committed again.
        Raises what `prepare` raises, `TableError` for a change whose log file would be too large,
        `StaleAttemptError` for fragments of attempts that a vacuum has moved past, `CommitConflictError`
        after too many lost races, and `ClockError`.
        """
        commit_id = self._ids()
        try:
            snapshot = patiently(
                partial(self._try_commit, prepare, commit_id),
                lambda error: isinstance(error, _LostRaceError),
                tries=_MAX_TRIES,
                wait_seconds=0.01,
                sleep=self._clock.sleep,
            )
        except _LostRaceError:
            raise CommitConflictError(
                f"{self._store.url}: other writers took the next version {_MAX_TRIES} times in a "
                "row; nothing was changed. Try again, with fewer writers at a time"
            ) from None
        except _LandedError:
            return self._latest
        if self._is_checkpoint_due(snapshot):
            self.write_checkpoint(snapshot)
        return snapshot

    def landed(self, is_meant: Callable[[Changes], bool]) -> bool:
        """Says whether a commit of this log whose outcome was unknown is in the log after all."""
        for version in self._unknown:
            if version.number <= self._latest.version and is_meant(version.changes):
                with contextlib.suppress(ObjectNotFoundError):
                    if self._is_ours(version):
                        return True
        return False

    def check_expiry(self, snapshot: Snapshot) -> None:
        """Raises `ClockError` if this machine's clock may be wrong; is called before rows expire by it."""
        now = self._clock.now_unix_ms()
        clocks.check_expiry(now, self._store.time(), snapshot.committed_unix_ms, self._store.url)

    def lease_unix_ms(self) -> int:
        """Returns the time by which leases are made and expire; makes no request."""
        return clocks.lease_time(self._clock.now_unix_ms(), self._store.time())

    def write_checkpoint(self, snapshot: Snapshot) -> bool:
        """Writes a checkpoint, which spares later readers the log so far. Returns whether there is one now.

        A failure only costs those readers time. Nothing is written that is larger than readers take.
        """
        data = checkpoint_bytes(snapshot)
        if len(data) > MAX_READ_BYTES:
            log.warning(
                "no checkpoint at version %d: it would have %d bytes, and at most %d are allowed",
                snapshot.version, len(data), MAX_READ_BYTES,
            )  # fmt: skip
            return False
        try:
            self._store.create(checkpoint_key(snapshot.version), data)
        except ObjectExistsError:
            pass
        except StoreError as error:
            log.warning("no checkpoint at version %d: %s", snapshot.version, error)
            return False
        self._checkpointed, self._changed_since = snapshot.version, 0
        return True

    def _is_checkpoint_due(self, snapshot: Snapshot) -> bool:
        # A checkpoint holds all fragments: when a quarter of them changed, writing it costs a few times what
        # the versions since then cost. Until then readers of a large table read a longer log.
        versions = snapshot.version - self._checkpointed
        return versions >= _MAX_CHECKPOINT_VERSIONS or (
            versions >= _CHECKPOINT_VERSIONS and self._changed_since * 4 >= len(snapshot.fragments)
        )

    def _try_commit(self, prepare: Prepare, commit_id: str) -> Snapshot:
        snapshot = self.refresh()
        changes = prepare(snapshot)
        self._check_base_version(snapshot, changes)
        self._check_not_added(snapshot, changes)
        self._check_numbers(changes)
        self._prove_writes()
        if snapshot.version == 0:
            self.check_not_lost()
            if self._latest.version:
                raise _LostRaceError
        now = clocks.commit_stamp(
            self._clock.now_unix_ms(),
            self._store.time(),
            snapshot.committed_unix_ms,
            self._store.url,
        )
        table_id = snapshot.table_id if snapshot.version else commit_id
        version = Version(
            number=snapshot.version + 1,
            commit_id=commit_id,
            committed_unix_ms=now,
            changes=changes,
            table_id=table_id,
            committer=process_name(),
        )
        after = snapshot.apply(version)
        try:
            if not self._publish(version):
                raise _LostRaceError
            self._check_log_not_truncated(snapshot, version)
            self._check_in_place(version)
        except UnknownOutcomeError:
            self._unknown = [*self._unknown[-_MAX_UNKNOWN + 1 :], version]
            raise
        self._latest = after
        self._changed_since += len(changes.adds) + len(changes.removes)
        return after

    def _check_base_version(self, snapshot: Snapshot, changes: Changes) -> None:
        """Checks that no vacuum may have removed what becomes live, nor may remove it any more.

        Objects of attempts are safe if these began at the minimum base version or later. Objects that come
        back are safe if their version is kept: every vacuum before this commit spares what kept versions
        need, and every later one sees this commit. Raises `StaleAttemptError`, `VersionNotFoundError`.
        """
        if changes.returns_to is not None:
            self.history.check_kept(changes.returns_to, snapshot)
            return
        new = _new_keys(snapshot, changes)
        base = min((base_version(key) or 0 for key in new), default=snapshot.min_base_version)
        if base < snapshot.min_base_version:
            raise StaleAttemptError(
                f"{self._store.url}: this work began at version {base} of the "
                f"table and took so long that a vacuum has moved past it (to {snapshot.min_base_version}); "
                "nothing was changed; run it again, or vacuum with a longer ",
                GRACE_SECONDS,
            )

    def _check_not_added(self, snapshot: Snapshot, changes: Changes) -> None:
        """Raises `_LandedError` if a commit of unknown outcome has already added what this one adds.

        If the log file that would say so has been removed, the minimum base version has moved past those
        objects, so no version needs to be searched for them.
        """
        new = _new_keys(snapshot, changes) if self._unknown else set()
        if new and self.landed(lambda c: new <= _all_keys(c)):
            raise _LandedError
        if new and self.landed(lambda c: not new.isdisjoint(_all_keys(c))):
            raise TableError(
                f"{self._store.url}: some of these fragments were added before, by a commit whose answer was "
                "lost; nothing was changed"
            )

    def check_not_lost(self) -> None:
        """Raises `TableError` if there is no table, but fragments show that one was here whose log has gone.

        Is called before anything is written for a new table, and before it is created: those fragments would
        be garbage to it, and its next vacuum would remove them. Fragments based on version 0 say nothing,
        since failed attempts to create a table also leave them.
        """
        left = self._store.list(DATA_PREFIX, start_after=names_from(1))
        key = next((info.key for info in left if base_version(info.key)), None)
        if key is None or self.refresh().version:
            return
        raise TableError(
            f"{self._store.url}/{key}: this fragment belongs to a table whose log has gone; nothing was "
            f"changed. Restore {LOG_PREFIX} and {CHECKPOINT_PREFIX} from a backup, or create the table in "
            "another place"
        )

    def _prove_writes(self) -> None:
        """Proves the store's conditional writes once, before the first commit. Raises `StoreError`."""
        if self._are_writes_proved:
            return
        try:
            self._patiently(
                partial(prove_conditional_writes, self._store, PROBE_KEY),
                lambda error: isinstance(error, UnknownOutcomeError | StoreUnreachableError),
            )
        except UnknownOutcomeError as error:
            raise StoreUnreachableError(
                f"{self._store.url}: writes get no answer; nothing was committed: try again ({error})"
            ) from error
        self._are_writes_proved = True

    def _check_numbers(self, changes: Changes) -> None:
        """Raises `TableError` for numbers that readers would take for damage."""
        try:
            for entry in changes.adds:
                check_entry(entry)
            for lease in changes.leases:
                check_number("output_level", lease.output_level, MAX_LEVEL)
            if changes.metadata is not None:
                TableMetadata.from_json(changes.metadata.to_json())
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{self._store.url}: {error}, which no table can hold; nothing was changed"
            ) from error

    def _publish(self, version: Version) -> bool:
        """Creates the version's log file. Returns whether the version is ours now.

        Raises `UnknownOutcomeError` if a request was sent and neither its answer nor the log could be read:
        the commit may stand, whatever failed last.
        """
        key, data = version_key(version.number), version.to_bytes()
        if len(data) > MAX_READ_BYTES:
            changed = len(version.changes.adds) + len(version.changes.removes)
            raise TableError(
                f"{self._store.url}: the change adds or removes {counted(changed, 'fragment')}, its log file "
                f"would have {len(data):,} bytes, and {MAX_READ_BYTES:,} are allowed; nothing was changed. "
                "Change less at a time, such as fewer files, or write larger fragments"
            )
        doubt = ""

        def create() -> bool:
            nonlocal doubt
            try:
                self._store.create(key, data)
            except UnknownOutcomeError:
                doubt = "its answer was lost"
                raise
            except ObjectExistsError:
                doubt = doubt or "its log file was there already"
                return self._is_ours(version)
            self.history.remember(data, version)
            return True

        def is_worth_another_try(error: BaseException) -> bool:
            return isinstance(error, UnknownOutcomeError) or (
                bool(doubt) and isinstance(error, StoreUnreachableError)
            )

        try:
            return self._patiently(create, is_worth_another_try)
        except (StoreError, DataError) as error:
            if not doubt:
                raise
            raise self._outcome_unknown(version, f"{doubt} and then: {error}") from error

    def _is_ours(self, version: Version) -> bool:
        return self.history.read(version.number).commit_id == version.commit_id

    def _check_log_not_truncated(self, before: Snapshot, version: Version) -> None:
        """Raises `UnknownOutcomeError` if this version may have existed before and been removed."""
        if not self._known_after(version, lambda: self.history.is_followed(before)):
            raise self._outcome_unknown(
                version, "this process stood still for so long that the log was vacuumed meanwhile"
            )

    def _check_in_place(self, version: Version) -> None:
        """Raises `StoreError` if another version is in place of ours, which only a faulty store allows."""
        if not self._known_after(version, lambda: self._is_ours(version)):
            raise StoreError(
                f"{self._store.url}: version {version.number} was created by this commit (commit id "
                f"{version.commit_id}), and something else is in its place now: this change is lost. Either "
                "the store has no conditional writes (If-None-Match), or somebody overwrites the log. Stop "
                "all writers and find out who"
            )

    def _known_after(self, version: Version, is_so: Callable[[], bool]) -> bool:
        """Asks a question after a commit. Without an answer, the commit's outcome is unknown."""
        try:
            return self._patiently(is_so, lambda error: isinstance(error, StoreUnreachableError))
        except (StoreError, DataError) as error:
            raise self._outcome_unknown(version, f"and then: {error}") from error

    def _patiently(
        self, ask: Callable[[], _Answer], is_worth_another_try: Callable[[BaseException], bool]
    ) -> _Answer:
        return patiently(ask, is_worth_another_try, tries=8, sleep=self._clock.sleep)

    def _outcome_unknown(self, version: Version, cause: str) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"{self._store.url}: version {version.number} may be committed (commit id "
            f"{version.commit_id}), {cause}. Look at the table (`compactor inspect`) before you try "
            "again"
        )


def _new_keys(snapshot: Snapshot, changes: Changes) -> set[str]:
    """Returns the objects that attempts bring into the table; a fragment that only changes level is none.

    A change that returns to a version brings none: all its objects were in the table before.
    """
    if changes.returns_to is not None:
        return set()
    removed = set(changes.removes)
    keys: set[str] = set()
    for entry in changes.adds:
        before = snapshot.fragments.get(entry.key) if entry.key in removed else None
        if before is None:
            keys.add(entry.key)
        if entry.deletion and (before is None or before.deletion != entry.deletion):
            keys.add(entry.deletion.key)
    if changes.memo is not None:
        keys.add(changes.memo)
    return keys


def _all_keys(changes: Changes) -> set[str]:
    """Returns the objects that a change names as live."""
    others = {entry.deletion.key for entry in changes.adds if entry.deletion}
    if changes.memo is not None:
        others.add(changes.memo)
    return others.union(entry.key for entry in changes.adds)
