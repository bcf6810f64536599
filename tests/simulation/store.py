"""A store in memory shared by all actors, with the faults of a real one.

Modelled: a request fails before its effect, after it, or its answer is lost either way, and then it may
still take effect much later, when its sender has long given up; it is delivered twice, at once or much later,
and the second answer may be the one that comes back; it is slow, or so slow that its process seems dead; a
listing breaks off after some keys; the process dies before or after. The store may have no room, refuse what
it is asked, or know no conditions. `vandal` changes what is stored.
Not modelled: listings or reads that are behind (S3 is strongly consistent).
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any

from compactor.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.stores.base import ObjectInfo, StoreTime, UnfinishedUpload
from compactor.table.object_names import LOG_PREFIX
from compactor.table.vacuum import VacuumSettings
from tests.simulation.scheduler import Crash, Scheduler

_PAGE_KEYS = 5
UPLOADS = frozenset({"start_upload", "complete"})
WRITES = UPLOADS | {"create"}


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Chances at every request."""

    crash: float = 0.0
    refused: float = 0.0
    """Fails before its effect."""
    lost: float = 0.0
    """A write whose answer is lost, with or without its effect."""
    slow: float = 0.0
    stalled: float = 0.0
    """Slower than every grace period."""
    twice: float = 0.0
    """A write is delivered twice: the sender gets the second answer, or the second delivery comes later."""
    hesitates: float = 0.0
    """A process pauses right before it creates or removes a version: others commit meanwhile."""


class SharedObjects:
    """What is stored; `created` and `deleted` are told to the auditor before anybody else runs."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.objects: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        """By the store's own clock, which is right."""
        self.uploads: dict[str, UnfinishedUpload] = {}
        self.created: Callable[[str, bytes, bytes | None, VacuumSettings | None], None]
        self.created_again: Callable[[str], object]
        self.deleted: Callable[[str, VacuumSettings | None], None]
        self.faults = Faults()
        self.uploads_begun = 0
        self.has_conditions = True
        """Whether a conditional write is refused where an object is: old S3-compatible servers ignore it."""
        self.refusal: StoreError | None = None
        """What writes end in, such as for want of room."""
        self.refused_writes = WRITES
        self._now_seconds = now_seconds
        self._keys: list[str] = []

    def set(self, key: str, data: bytes) -> None:
        if key not in self.objects:
            insort(self._keys, key)
        self.objects[key] = data
        self.modified[key] = self._now_seconds()

    def remove(self, key: str) -> bool:
        """Whether it was there."""
        if key not in self.objects:
            return False
        del self.objects[key], self.modified[key]
        del self._keys[bisect_left(self._keys, key)]
        return True

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        """In order, as they are when each is asked for."""
        at = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            after = self._keys[at]
            yield after
            at = bisect_right(self._keys, after)

    def now_seconds(self) -> float:
        return self._now_seconds()


class SimulatedStore:
    """One actor's way to the shared objects."""

    url = "memory://table"

    def __init__(self, shared: SharedObjects, scheduler: Scheduler) -> None:
        self._shared = shared
        self._scheduler = scheduler
        self.vacuum: VacuumSettings | None = None
        """Of the vacuum that uses it now."""
        self._is_dead = False

    def die(self) -> None:
        """The process dies: it does nothing any more, whatever its `finally` says."""
        self._is_dead = True
        raise Crash

    def open_stream(
        self, key: str, *, start: int = 0, if_match: str | None = None
    ) -> SimulatedStream:
        assert if_match is None
        return SimulatedStream(self.read(key)[start:])

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        assert if_match is None
        return self.read(key)[start : start + length]

    def read(self, key: str) -> bytes:
        self._before("read", key)
        if key not in self._shared.objects:
            raise ObjectNotFoundError(key)
        return self._shared.objects[key]

    def head(self, key: str) -> ObjectInfo:
        self._before("head", key)
        if key not in self._shared.objects:
            raise ObjectNotFoundError(key)
        return self._info(key)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        self._before("create", key, late=lambda: self._create_if_absent(key, data))
        is_created = self._create_if_absent(key, data)
        if is_created and self._is_delivered_twice("create", key):
            is_created = self._create_if_absent(key, data)
        if not is_created:
            self._scheduler.note(f"create {key}: exists")
            raise ObjectExistsError(f"{key}: the object exists already")
        self._after("create", key, late=lambda: self._create_if_absent(key, data))
        return self._info(key)

    def _create_if_absent(self, key: str, data: bytes) -> bool:
        if key in self._shared.objects and self._shared.has_conditions:
            return False
        self.put(key, data)
        return True

    def _is_delivered_twice(self, operation: str, key: str) -> bool:
        if self._scheduler.random.random() >= self._shared.faults.twice:
            return False
        self._scheduler.note(f"{operation} {key}: delivered twice")
        self._scheduler.hand_over()
        return True

    def put(self, key: str, data: bytes) -> None:
        self._scheduler.note(f"created {key}")
        before = self._shared.objects.get(key)
        self._shared.set(key, data)
        self._shared.created(key, data, before, self.vacuum)

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> SimulatedUpload:
        self._before("start_upload", key)
        return SimulatedUpload(self, key, self._shared, self._scheduler)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        last = start_after or ""
        while True:
            self._before("list", prefix)
            keys = list(islice(self._shared.keys(prefix, last), _PAGE_KEYS + 1))
            for key in keys[:_PAGE_KEYS]:
                yield self._info(key)
            if len(keys) <= _PAGE_KEYS:
                return
            last = keys[_PAGE_KEYS - 1]

    def delete(self, key: str) -> None:
        self._before("delete", key)
        self._remove(key)
        self._after("delete", key, late=lambda: self._remove(key))

    def _remove(self, key: str) -> None:
        if self._shared.remove(key):
            self._scheduler.note(f"deleted {key}")
            self._shared.deleted(key, self.vacuum)

    def time(self) -> StoreTime | None:
        return StoreTime(self._scheduler.now_ms, is_independent=True)

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        self._before("list_unfinished", "")
        yield from list(self._shared.uploads.values())

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self._before("discard", upload.token)
        self._shared.uploads.pop(upload.token, None)

    def _info(self, key: str) -> ObjectInfo:
        data, modified = self._shared.objects.get(key, b""), self._shared.modified.get(key, 0.0)
        return ObjectInfo(key, len(data), f"{zlib.crc32(data):x}", modified)

    def _before(self, operation: str, key: str, *, late: Callable[[], Any] | None = None) -> None:
        """late: for writes, their effect: what a lost request may do after all."""
        if self._is_dead:
            raise Crash
        self._scheduler.hand_over()
        faults, chance = self._shared.faults, self._scheduler.random.random()
        if key.startswith(LOG_PREFIX) and operation in ("create", "delete"):
            self._hesitate()
        self._die_or_dawdle()
        if self._shared.refusal is not None and operation in self._shared.refused_writes:
            self._scheduler.note(f"{operation} {key}: {self._shared.refusal}")
            raise self._shared.refusal
        if chance < faults.refused:
            self._scheduler.note(f"{operation} {key}: refused")
            raise StoreUnreachableError(f"{operation} {key}")
        # Most uploads come through, so that there is something to commit.
        lost = faults.lost if operation == "create" else faults.lost / 5
        if late is not None and chance < faults.refused + lost:
            self._scheduler.note(f"{operation} {key}: lost before")
            if self._scheduler.random.random() < 0.3:
                self._scheduler.spawn(f"late {operation}", partial(self._take_effect, late))
            raise UnknownOutcomeError(f"{operation} {key}")

    def _hesitate(self) -> None:
        random = self._scheduler.random
        if random.random() < self._shared.faults.hesitates:
            self._scheduler.sleep(random.expovariate(1 / random.choice([30, 200, 1_000])))

    def _take_effect(self, late: Callable[[], Any]) -> None:
        self._scheduler.sleep(self._scheduler.random.choice([0, 1, 10, 300, 7_200]))
        late()

    def _after(self, operation: str, key: str, *, late: Callable[[], Any]) -> None:
        """late: the effect once more, as of a request that is delivered again after its answer."""
        self._scheduler.hand_over()
        if self._scheduler.random.random() < self._shared.faults.twice / 2:
            self._scheduler.spawn(f"second {operation}", partial(self._take_effect, late))
        self._die_or_dawdle()
        lost = self._shared.faults.lost / (1 if operation == "create" else 5)
        if self._scheduler.random.random() < lost:
            self._scheduler.note(f"{operation} {key}: answer lost")
            raise (
                StoreUnreachableError(key) if operation == "delete" else UnknownOutcomeError(key)
            )

    def _die_or_dawdle(self) -> None:
        faults, chance = self._shared.faults, self._scheduler.random.random()
        if chance < faults.crash:
            self.die()
        if chance < faults.crash + faults.slow:
            self._scheduler.sleep(self._scheduler.random.expovariate(1 / 20))
        elif chance < faults.crash + faults.slow + faults.stalled:
            self._scheduler.note("stands still")
            self._scheduler.sleep(self._scheduler.random.choice([300, 7_200, 100_000]))


class SimulatedStream(BytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.size_bytes = len(data)
        self.etag = ""


class SimulatedUpload:
    max_buffered_bytes = 0

    def __init__(
        self, store: SimulatedStore, key: str, shared: SharedObjects, scheduler: Scheduler
    ) -> None:
        self._store, self._key, self._shared = store, key, shared
        self._data = b""
        shared.uploads_begun += 1
        self._token = f"{key} {shared.uploads_begun}"
        shared.uploads[self._token] = UnfinishedUpload(self._token, scheduler.now_ms / 1000, key)

    def write(self, data: Any) -> None:
        self._data += bytes(data)

    def spill(self, disk: LocalDisk) -> None: ...

    def complete(self) -> ObjectInfo:
        self._store._before("complete", self._key, late=self._complete_late)
        if self._shared.uploads.pop(self._token, None) is None:
            raise StoreError(f"{self._key}: the upload is gone")
        self._store.put(self._key, self._data)
        self._store._after("complete", self._key, late=self._complete_again)
        return self._store._info(self._key)

    def _complete_late(self) -> None:
        # As a PUT of one part does, whether or not its sender aborted.
        self._shared.uploads.pop(self._token, None)
        self._store.put(self._key, self._data)

    def _complete_again(self) -> None:
        self._shared.set(self._key, self._data)
        self._shared.created_again(self._key)

    def abort(self) -> None:
        if not self._store._is_dead:
            self._shared.uploads.pop(self._token, None)

    def __enter__(self) -> SimulatedUpload:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()
