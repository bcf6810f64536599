"""A store in memory shared by all actors, with the faults of a real one, which `Chances` draw from the seed.

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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any

from compactor.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
)
from compactor.resources.disk import LocalDisk
from compactor.resources.upload_memory import UploadMemory
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.base import ObjectInfo, StoreTime, UnfinishedUpload
from compactor.table.object_names import LOG_PREFIX
from tests.faults import Call, Crash, Fault, LoseAnswer, Refuse
from tests.faults.chances import Chances
from tests.faults.store import unanswered
from tests.simulation.scheduler import Scheduler

_PAGE_KEYS = 5
UPLOADS = frozenset({"start_upload", "complete"})
UPLOADS_AND_CREATIONS = UPLOADS | {"create"}


class SimulatedCall(Call):
    """What an actor meets, noted in the trace of the run."""

    def __init__(self, operation: str, key: str, note: Callable[[str], None]) -> None:
        self.operation, self.key = operation, key
        self._note = note

    def dropped(self) -> StoreError:
        self._note(f"{self.operation} {self.key}: dropped")
        return StoreUnreachableError(f"{self.operation} {self.key}")

    def unanswered(self) -> StoreError:
        self._note(f"{self.operation} {self.key}: answer lost")
        return unanswered(self.operation, self.key)

    def cut(self, answer: Any, after_bytes: int) -> Any:
        raise NotImplementedError

    def damaged(self, answer: Any, change: Callable[[Any], Any]) -> Any:
        raise NotImplementedError("the vandal damages what is stored")

    def ignore_conditions(self) -> None:
        raise NotImplementedError("`SharedObjects.has_conditions` says so of the store")


class SharedObjects:
    """What is stored; `created` and `deleted` tell the auditor before another actor runs."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.objects: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        """By the store's own clock, which is right."""
        self.uploads: dict[str, UnfinishedUpload] = {}
        self.created: Callable[[str, bytes, bytes | None, VacuumSettings | None], None]
        self.created_again: Callable[[str], object]
        self.deleted: Callable[[str, VacuumSettings | None], None]
        self.chances = Chances()
        self.uploads_begun = 0
        self.has_conditions = True
        """Whether a conditional write is refused where an object is: old S3-compatible servers ignore it."""
        self.refusal: Refuse | None = None
        """The fault that writes meet, such as a full disk."""
        self.refused_writes = UPLOADS_AND_CREATIONS
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
        if self._scheduler.random.random() >= self._shared.chances.deliver_twice:
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
        random, chances = self._scheduler.random, self._shared.chances
        call = SimulatedCall(operation, key, self._scheduler.note)
        chance = random.random()
        if key.startswith(LOG_PREFIX) and operation in ("create", "delete"):
            self._meet(call, chances.hesitation(random, self._scheduler.sleep))
        self._meet(call, chances.of_process(random, self._stall, self.die))
        if self._shared.refusal is not None and operation in self._shared.refused_writes:
            self._scheduler.note(f"{operation} {key}: refused")
            self._meet(call, [self._shared.refusal])
        fault = chances.of_request(call, chance)
        if isinstance(fault, LoseAnswer) and late is not None and random.random() < 0.3:
            self._scheduler.spawn(f"late {operation}", partial(self._take_effect, late))
        if fault is not None:
            self._meet(call, [fault])

    def _meet(self, call: Call, faults: Iterable[Fault]) -> None:
        """Carries faults out one after the other: what others draw during a stall comes before the next."""
        for fault in faults:
            fault.around(call, lambda: None)

    def _stall(self, seconds: float) -> None:
        if seconds >= 300:
            self._scheduler.note(f"stands still for {seconds:.0f} s")
        self._scheduler.sleep(seconds)

    def _take_effect(self, late: Callable[[], Any]) -> None:
        self._scheduler.sleep(self._scheduler.random.choice([0, 1, 10, 300, 7_200]))
        late()

    def _after(self, operation: str, key: str, *, late: Callable[[], Any]) -> None:
        """late: the effect once more, as of a request that is delivered again after its answer."""
        self._scheduler.hand_over()
        random, chances = self._scheduler.random, self._shared.chances
        if random.random() < chances.deliver_twice / 2:
            self._scheduler.spawn(f"second {operation}", partial(self._take_effect, late))
        call = SimulatedCall(operation, key, self._scheduler.note)
        self._meet(call, chances.of_process(random, self._stall, self.die))
        if random.random() < chances.loss(call):
            self._meet(call, [LoseAnswer()])


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
