"""A store in memory shared by all actors, with the faults of a real one.

Modelled: a request fails before its effect, after it, or its answer is lost either way, and then it may
still take effect much later, when its sender has long given up; it is slow, or so slow that its process
seems dead; a listing breaks off after some keys; the process dies before or after.
Not modelled: listings or reads that are behind (S3 is strongly consistent), damaged bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from compactor.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.flow.disk import LocalDisk
from compactor.flow.upload_memory import UploadMemory
from compactor.names import LOG_PREFIX
from compactor.stores.base import ObjectInfo, StoreTime, UnfinishedUpload
from tests.simulation.scheduler import Crash, Scheduler
from tests.support.memory_store import TimedObjects, time_of

_PAGE_KEYS = 5


@dataclass(frozen=True)
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
    hesitates: float = 0.0
    """A process pauses right before it creates or removes a version: others commit meanwhile."""


class SharedObjects:
    """What is stored; `created` and `deleted` are told to the auditor before anybody else runs."""

    def __init__(self, now: Callable[[], float]) -> None:
        """now: Unix seconds, by the store's own clock."""
        self.objects: dict[str, bytes] = TimedObjects(now)
        self.uploads: dict[str, UnfinishedUpload] = {}
        self.created: Callable[[str, bytes], None] = lambda _key, _data: None
        self.deleted: Callable[[str], None] = lambda _key: None
        self.faults = Faults()
        self.uploads_begun = 0


class SimulatedStore:
    """One actor's way to the shared objects."""

    url = "memory://table"

    def __init__(self, shared: SharedObjects, scheduler: Scheduler) -> None:
        self._shared = shared
        self._scheduler = scheduler

    def open_stream(self, key: str, *, start: int = 0, if_match: str | None = None) -> Any:
        raise NotImplementedError("the data plane reads whole objects")

    def read_range(
        self, key: str, start: int, length: int, *, if_match: str | None = None
    ) -> bytes:
        raise NotImplementedError("the data plane reads whole objects")

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
        self._before("create", key, late=lambda: self._create_late(key, data))
        if key in self._shared.objects:
            self._scheduler.note(f"create {key}: exists")
            raise ObjectExistsError(key)
        self.put(key, data)
        self._after("create", key)
        return self._info(key)

    def _create_late(self, key: str, data: bytes) -> None:
        if key not in self._shared.objects:
            self.put(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._scheduler.note(f"created {key}")
        self._shared.objects[key] = data
        self._shared.created(key, data)

    def start_upload(self, key: str, memory: UploadMemory | None = None) -> SimulatedUpload:
        self._before("start_upload", key)
        return SimulatedUpload(self, key, self._shared, self._scheduler)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        last = start_after or ""
        while True:
            self._before("list", prefix)
            keys = sorted(k for k in self._shared.objects if k.startswith(prefix) and k > last)
            for key in keys[:_PAGE_KEYS]:
                yield self._info(key)
            if len(keys) <= _PAGE_KEYS:
                return
            last = keys[_PAGE_KEYS - 1]

    def delete(self, key: str) -> None:
        self._before("delete", key)
        if self._shared.objects.pop(key, None) is not None:
            self._scheduler.note(f"deleted {key}")
            self._shared.deleted(key)
        self._after("delete", key)

    def time(self) -> StoreTime | None:
        return StoreTime(self._scheduler.now_ms, is_independent=True)

    def list_unfinished(self) -> Iterator[UnfinishedUpload]:
        self._before("list_unfinished", "")
        yield from list(self._shared.uploads.values())

    def discard_unfinished(self, upload: UnfinishedUpload) -> None:
        self._before("discard", upload.token)
        self._shared.uploads.pop(upload.token, None)

    def _info(self, key: str) -> ObjectInfo:
        objects = self._shared.objects
        return ObjectInfo(key, len(objects.get(key, b"")), "", time_of(objects, key))

    def _before(self, operation: str, key: str, *, late: Callable[[], None] | None = None) -> None:
        """late: for writes, their effect: what a lost request may do after all."""
        self._scheduler.hand_over()
        faults, chance = self._shared.faults, self._scheduler.random.random()
        if key.startswith(LOG_PREFIX) and operation in ("create", "delete"):
            self._hesitate()
        self._die_or_dawdle()
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

    def _take_effect(self, late: Callable[[], None]) -> None:
        self._scheduler.sleep(self._scheduler.random.choice([0, 1, 10, 300, 7_200]))
        late()

    def _after(self, operation: str, key: str) -> None:
        self._scheduler.hand_over()
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
            raise Crash
        if chance < faults.crash + faults.slow:
            self._scheduler.sleep(self._scheduler.random.expovariate(1 / 20))
        elif chance < faults.crash + faults.slow + faults.stalled:
            self._scheduler.note("stands still")
            self._scheduler.sleep(self._scheduler.random.choice([300, 7_200, 100_000]))


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
        self._store._after("complete", self._key)
        return self._store._info(self._key)

    def _complete_late(self) -> None:
        # As a PUT of one part does, whether or not its sender aborted.
        self._shared.uploads.pop(self._token, None)
        self._store.put(self._key, self._data)

    def abort(self) -> None:
        self._shared.uploads.pop(self._token, None)

    def __enter__(self) -> SimulatedUpload:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            self.abort()
