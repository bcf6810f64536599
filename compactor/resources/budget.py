"""Accounts the memory of one task: everything that grows with data holds a `Reservation` in it.

Above the soft limit nothing is fetched ahead, and stages spill what they can; beyond the limit an error
names the stage and its need. The order is that of ClickHouse and Spark: wait, spill, fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from compactor.common.interrupts import check
from compactor.common.message import Message
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES
from compactor.resources.errors import MemoryLimitError
from compactor.resources.stage import StagePlan
from compactor.resources.trimmer import Trimmer

SOFT_RATIO: Final = 0.80
"""Pause fetching, and let stages spill, above this part of the limit."""
_SLACK_DIVISOR: Final = 20
"""Trim the allocator once the resident set exceeds the charges by one part in this many of the limit."""

Spiller = Callable[[int], int]
"""Takes the number of bytes to free; frees reservations, and returns the bytes that this has freed."""


class MemoryBudget:
    """The charges of one task by stage. Thread-safe; spillers run in the thread that charges.

    Only a `Reservation` calls `charge`, `try_charge`, `force`, `discharge` and `move_when_below`. Only the
    consuming thread may `charge`; others `try_charge` and `discharge`.
    """

    def __init__(self, plan: StagePlan, *, soft_bytes: int | None = None) -> None:
        """soft_bytes: the soft limit; by default four fifths of the plan's limit."""
        self.limit_bytes = plan.limit_bytes
        self.need_bytes = plan.need_bytes
        self.soft_bytes = int(plan.limit_bytes * SOFT_RATIO) if soft_bytes is None else soft_bytes
        self._held = dict.fromkeys(plan.names, 0)
        self._peaks = dict.fromkeys(plan.names, 0)
        self._priorities = {stage.name: stage.spill_priority for stage in plan}
        self._spillers: dict[str, Spiller] = {}
        self._draining: set[str] = set()
        self._finish: Callable[[], None] = _nothing
        self._lock = threading.RLock()
        """Reentrant, because a reservation may be dropped while Python collects cycles inside of it."""
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        """Number of threads that wait for a discharge: mostly none, so that there is nothing to notify."""
        self._trimmer = Trimmer(self.soft_bytes, plan.limit_bytes // _SLACK_DIVISOR)
        self.used_bytes = 0
        self.peak_bytes = 0

    @property
    def peaks(self) -> dict[str, int]:
        """The most bytes that each stage held at a time."""
        return dict(self._peaks)

    def held_bytes(self, stage: str) -> int:
        return self._held[stage]

    def spill_by(self, stage: str, spiller: Spiller) -> None:
        """Registers how `stage` frees memory; spillers are called in order of the plan's spill priorities."""
        assert self._priorities[stage] is not None, f"{stage} does not spill"
        self._spillers[stage] = spiller

    def drains_by_itself(self, stage: str) -> None:
        """Declares that other threads discharge `stage`: a charge waits for that instead of failing."""
        self._draining.add(stage)

    def finish_first(self, finish: Callable[[], None]) -> None:
        """Registers a function that ends work begun ahead, and so frees its memory; it runs before anything
        spills."""
        self._finish = finish

    def charge(self, stage: str, size: int) -> None:
        """Charges `size` bytes; waits and spills as needed.

        Raises `MemoryLimitError` if that is not enough.
        """
        check()
        if size <= 0:
            return
        self._trimmer.look(self.used_bytes, size)
        self._make_way(size)
        with self._lock:
            while self.used_bytes + size > self.limit_bytes:
                if not any(self._held[name] for name in self._draining):
                    raise MemoryLimitError(self._explain(stage, size))
                self._wait()
            self._add(stage, size)

    def try_charge(
        self, stage: str, size: int, *, is_urgent: bool = False, reserve_bytes: int = 0
    ) -> bool:
        """Charges bytes if they fit below the soft limit (if urgent, the limit), and leave `reserve_bytes`
        below the limit. Returns whether they did."""
        with self._lock:
            room = self.limit_bytes if is_urgent else self.soft_bytes
            if self.used_bytes + size > min(room, self.limit_bytes - reserve_bytes):
                return False
            self._add(stage, size)
            return True

    def force(self, stage: str, size: int) -> None:
        """Charges bytes that are in memory already, even beyond the limit."""
        with self._lock:
            self._add(stage, size)
        self._trimmer.look(self.used_bytes, size)

    def discharge(self, stage: str, size: int) -> None:
        if size <= 0:
            return
        with self._lock:
            assert self._held[stage] >= size, f"{stage} gives back more than it holds"
            self._held[stage] -= size
            self.used_bytes -= size
            if self._waiting:
                self._changed.notify_all()

    def move_when_below(self, source: str, target: str, size: int, max_bytes: int) -> None:
        """Moves a charge to `target`, which drains by itself.

        Waits until `target` would then hold at most `max_bytes` bytes, or holds nothing.
        """
        with self._lock:
            while self._held[target] and self._held[target] + size > max_bytes:
                self._wait()
            self._held[source] -= size
            self.used_bytes -= size
            self._add(target, size)

    def has_room(self, size: int, reserve: int = 0) -> bool:
        """Returns whether `size` bytes fit below the soft limit and leave `reserve` below the limit."""
        return self.used_bytes + size <= min(self.soft_bytes, self.limit_bytes - reserve)

    def has_room_at_last(self, size: int, reserve: int = 0) -> bool:
        """Returns whether `size` bytes fit (`has_room`), maybe once work begun ahead has ended."""
        if not self.has_room(size, reserve):
            self._finish()
        return self.has_room(size, reserve)

    def make_room(self, size: int, *, is_urgent: bool = False) -> bool:
        """Waits and spills as `charge` does; returns whether `size` bytes then fit (`has_room`; if urgent,
        below the limit)."""
        if size <= self.soft_bytes:
            self._make_way(size)
        return self.has_room(size) or (is_urgent and self.used_bytes + size <= self.limit_bytes)

    def _make_way(self, size: int) -> None:
        """Ends work begun ahead, and then spills, where `size` bytes do not fit below the soft limit."""
        if not self.has_room(size):
            self._finish()
            self._spill(self.used_bytes + size - self.soft_bytes)

    def _wait(self) -> None:
        """Waits for a discharge. The caller holds the lock."""
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _spill(self, excess: int) -> None:
        for stage in sorted(self._spillers, key=lambda name: (self._priorities[name] or 0, name)):
            if excess <= 0:
                return
            if self._held[stage]:
                excess -= self._spillers[stage](excess)

    def _add(self, stage: str, size: int) -> None:
        held = self._held[stage] = self._held[stage] + size
        used = self.used_bytes = self.used_bytes + size
        if held > self._peaks[stage]:
            self._peaks[stage] = held
        if used > self.peak_bytes:
            self.peak_bytes = used

    def _explain(self, stage: str, size: int) -> Message:
        held = sorted(((n, name) for name, n in self._held.items() if n), reverse=True)
        parts = ", ".join(f"{name} {_mib(n)}" for n, name in held[:4]) or "nothing"
        need = self.used_bytes + size
        return Message(
            f"stage {stage} needs {_mib(size)} more, with {_mib(self.used_bytes)} in use ({parts}) and a "
            f"memory limit of {_mib(self.limit_bytes)}: raise ",
            MEMORY_LIMIT_BYTES,
            f" to {_mib(round(need * 1.25))} or more",
        )


def _nothing() -> None:
    pass


def _mib(size: int) -> str:
    return f"{max(1, -(-size // (1 << 20)))} MiB"
