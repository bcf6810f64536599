"""The commit log: versions created only if absent, so that every change is all or nothing.

A commit ends in one of three ways: committed, conflict (another writer took the version: read on
and try the next), or unknown (no answer). After an unknown outcome the very same bytes are offered
again for the very same version: whichever of the two requests lands, the version holds our commit id.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from compactor.clock import Clock, Ids, SystemClock, random_id
from compactor.errors import (
    CommitConflictError,
    DataError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
    TableNotFoundError,
    UnknownOutcomeError,
)
from compactor.names import LOG_PREFIX, parse_version, version_key
from compactor.snapshot import FragmentEntry, Operation, Snapshot, TableMetadata, Version
from compactor.stores.base import Store

_READERS: Final = 16
_MAX_TRIES: Final = 64
_MAX_WAIT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit wants to do to the snapshot it was prepared for."""

    operation: Operation
    adds: tuple[FragmentEntry, ...] = ()
    removes: tuple[str, ...] = ()
    metadata: TableMetadata | None = None


Prepare = Callable[[Snapshot], Changes]
"""Called afresh for every try: checks that the change still makes sense on that snapshot, or raises."""


class _LostRaceError(Exception):
    """Another commit took the version."""


class CommitLog:
    """Versions of one table under `_log/` of its store. Not shared between threads."""

    def __init__(self, store: Store, clock: Clock | None = None, ids: Ids = random_id) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._ids = ids
        self._latest = Snapshot.empty()

    def refresh(self) -> Snapshot:
        """The newest snapshot; version 0 if there is no table. Reads only versions not seen yet."""
        start_after = version_key(self._latest.version) if self._latest.version else None
        keys = [
            info.key
            for info in self._store.list(LOG_PREFIX, start_after=start_after)
            if parse_version(info.key) is not None
        ]
        self._latest = self._replay(self._latest, keys)
        return self._latest

    def current(self) -> Snapshot:
        """Like `refresh`. Raises `TableNotFoundError` if there is no table."""
        snapshot = self.refresh()
        if snapshot.version == 0:
            raise TableNotFoundError(
                f"{self._store.url}: no table here; `compactor ingest` creates one"
            )
        return snapshot

    def commit(self, prepare: Prepare) -> Snapshot:
        """Makes a change visible, atomically, on top of the newest version; the snapshot after it.

        Raises what `prepare` raises, and `CommitConflictError` after too many lost races.
        """
        commit_id = self._ids()
        retrying = Retrying(
            retry=retry_if_exception_type(_LostRaceError),
            wait=wait_random_exponential(multiplier=0.01, max=_MAX_WAIT_SECONDS),
            stop=stop_after_attempt(_MAX_TRIES),
            sleep=self._clock.sleep,
            reraise=True,
        )
        try:
            return retrying(self._try_commit, prepare, commit_id)
        except _LostRaceError:
            raise CommitConflictError(
                f"{self._store.url}: other writers took the next version {_MAX_TRIES} times in a "
                "row; nothing was changed: try again, with fewer writers at a time"
            ) from None

    def _try_commit(self, prepare: Prepare, commit_id: str) -> Snapshot:
        snapshot = self.refresh()
        changes = prepare(snapshot)
        version = Version(
            snapshot.version + 1,
            commit_id,
            self._clock.now_unix_ms(),
            changes.operation,
            changes.adds,
            changes.removes,
            changes.metadata,
        )
        after = snapshot.apply(version)
        if not self._publish(version):
            raise _LostRaceError
        self._latest = after
        return after

    def _publish(self, version: Version) -> bool:
        """Whether the version is ours now. False: somebody else's.

        Raises `UnknownOutcomeError` if a request was sent and neither its answer nor the log could be
        read: whatever failed last, the commit may stand.
        """
        key, data = version_key(version.number), version.to_bytes()
        unknown = False

        def create() -> None:
            nonlocal unknown
            try:
                self._store.create(key, data)
            except UnknownOutcomeError:
                unknown = True
                raise

        def is_worth_another_try(error: BaseException) -> bool:
            return isinstance(error, UnknownOutcomeError) or (
                unknown and isinstance(error, StoreUnreachableError)
            )

        retrying = Retrying(
            retry=retry_if_exception(is_worth_another_try),
            wait=wait_random_exponential(multiplier=0.1, max=_MAX_WAIT_SECONDS),
            stop=stop_after_attempt(8),
            sleep=self._clock.sleep,
            reraise=True,
        )
        try:
            try:
                retrying(create)
            except ObjectExistsError:
                # An earlier try of ours may have landed although its answer was lost.
                return unknown and self._read(key).commit_id == version.commit_id
        except (StoreError, DataError) as error:
            if not unknown:
                raise
            raise UnknownOutcomeError(
                f"{self._store.url}: version {version.number} may be committed (commit id "
                f"{version.commit_id}), its answer was lost and then: {error}. Look at the table "
                "(`compactor inspect`) before you try again"
            ) from error
        return True

    def _replay(self, snapshot: Snapshot, keys: list[str]) -> Snapshot:
        with ThreadPoolExecutor(_READERS) as readers:
            for version in readers.map(self._read, keys):
                snapshot = snapshot.apply(version)
        return snapshot

    def _read(self, key: str) -> Version:
        try:
            return Version.from_bytes(self._store.read(key), name=f"{self._store.url}/{key}")
        except ObjectNotFoundError as error:
            raise DataError(f"{self._store.url}/{key}: the log file has gone") from error
