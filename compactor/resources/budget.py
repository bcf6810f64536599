"""The memory of one task, accounted: every buffer that grows with data is charged once when it is
filled and discharged when it is drained.

Above the soft threshold nothing is fetched ahead and what can be spilled is; beyond the limit there is
an error that names stage and need. The order is ClickHouse's and Spark's: wait, spill, fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from compactor.resources.allocator import Trimmer
from compactor.resources.errors import MemoryLimitError
from compactor.resources.stage import StagePlan

SOFT_RATIO: Final = 0.80
"""Of the limit: above, fetching pauses and stages spill."""
_SLACK_SHARE: Final = 20
"""Of the limit: what the resident set may be above what is charged before the allocator is trimmed."""

Spiller = Callable[[int], int]
"""Asked to free so many bytes; discharges what it frees and returns how much that was."""


class MemoryBudget:
    """Charges of one run by stage. Thread-safe; spillers run in the thread that charges.

    Only the consuming thread may `charge`. Fetching threads use `try_charge`, sending ones `discharge`.
    """

    def __init__(self, plan: StagePlan, *, soft_bytes: int | None = None) -> None:
        """soft_bytes: by default four fifths of the plan's limit."""
        self.limit_bytes = plan.limit_bytes
        self.soft_bytes = int(plan.limit_bytes * SOFT_RATIO) if soft_bytes is None else soft_bytes
        self._held = dict.fromkeys(plan.names, 0)
        self._peaks = dict.fromkeys(plan.names, 0)
        self._priorities = {stage.name: stage.spill_priority for stage in plan}
        self._spillers: dict[str, Spiller] = {}
        self._draining: set[str] = set()
        self._finish: Callable[[], None] = _nothing
        self._changed = threading.Condition()
        self._trimmer = Trimmer(self.soft_bytes, plan.limit_bytes // _SLACK_SHARE)
        self.used_bytes = 0
        self.peak_bytes = 0

    @property
    def peaks(self) -> dict[str, int]:
        """Most bytes each stage held at a time."""
        return dict(self._peaks)

    def held_bytes(self, stage: str) -> int:
        return self._held[stage]

    def spill_by(self, stage: str, spiller: Spiller) -> None:
        """How to free what `stage` holds; asked in order of the plan's spill priorities."""
        assert self._priorities[stage] is not None, f"{stage} does not spill"
        self._spillers[stage] = spiller

    def drains_by_itself(self, stage: str) -> None:
        """Other threads discharge it without the charging one: rather than fail, a charge waits for that."""
        self._draining.add(stage)

    def finish_first(self, finish: Callable[[], None]) -> None:
        """What to wait for before anything is spilled: work that was begun ahead gives its memory back."""
        self._finish = finish

    def charge(self, stage: str, size: int) -> None:
        """Waits and spills as needed. Raises `MemoryLimitError` if that is not enough."""
        if size <= 0:
            return
        self._trimmer.look(self.used_bytes)
        if self.used_bytes + size > self.soft_bytes:
            self._finish()
        excess = self.used_bytes + size - self.soft_bytes
        if excess > 0:
            self._spill(excess)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.used_bytes + size <= self.limit_bytes
                    or not any(self._held[name] for name in self._draining)
                )
            )
            if self.used_bytes + size > self.limit_bytes:
                raise MemoryLimitError(self._explain(stage, size))
            self._add(stage, size)

    def try_charge(self, stage: str, size: int, *, is_urgent: bool = False) -> bool:
        """Whether there was room below the soft threshold; if urgent, below the limit."""
        with self._changed:
            room = self.limit_bytes if is_urgent else self.soft_bytes
            if self.used_bytes + size > room:
                return False
            self._add(stage, size)
            return True

    def force(self, stage: str, size: int) -> None:
        """Counts what is in memory already."""
        with self._changed:
            self._add(stage, size)

    def discharge(self, stage: str, size: int) -> None:
        if size <= 0:
            return
        with self._changed:
            assert self._held[stage] >= size, f"{stage} gives back more than it holds"
            self._held[stage] -= size
            self.used_bytes -= size
            self._changed.notify_all()

    def move_when_below(self, source: str, target: str, size: int, most: int) -> None:
        """What one stage held is another's, which drains by itself, once that holds no more than `most` with
        it, or nothing else."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._held[target] == 0 or self._held[target] + size <= most
            )
            self._held[source] -= size
            self.used_bytes -= size
            self._add(target, size)

    @contextmanager
    def holding(self, stage: str, size: int) -> Iterator[None]:
        """Charged while the block runs."""
        self.charge(stage, size)
        try:
            yield
        finally:
            self.discharge(stage, size)

    def has_room(self, size: int, reserve: int = 0) -> bool:
        """Whether so much would stay below the soft threshold, and leave the reserve below the limit."""
        return self.used_bytes + size <= min(self.soft_bytes, self.limit_bytes - reserve)

    def make_room(self, size: int) -> bool:
        """Waits and spills as a charge does; whether so much would then stay below the soft threshold."""
        if size <= self.soft_bytes and not self.has_room(size):
            self._finish()
            self._spill(self.used_bytes + size - self.soft_bytes)
        return self.has_room(size)

    def _spill(self, excess: int) -> None:
        for stage in sorted(self._spillers, key=lambda name: (self._priorities[name] or 0, name)):
            if excess <= 0:
                return
            if self._held[stage]:
                excess -= self._spillers[stage](excess)

    def _add(self, stage: str, size: int) -> None:
        self._held[stage] += size
        self.used_bytes += size
        self._peaks[stage] = max(self._peaks[stage], self._held[stage])
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def _explain(self, stage: str, size: int) -> str:
        held = sorted(((n, name) for name, n in self._held.items() if n), reverse=True)
        parts = ", ".join(f"{name} {_mib(n)}" for n, name in held[:4]) or "nothing"
        need = self.used_bytes + size
        return (
            f"stage {stage} needs {_mib(size)} more with {_mib(self.used_bytes)} held ({parts}), the memory "
            f"limit is {_mib(self.limit_bytes)}: raise --memory-limit to {_mib(round(need * 1.25))} or more"
        )


def _nothing() -> None:
    pass


def _mib(size: int) -> str:
    return f"{max(1, -(-size // (1 << 20)))} MiB"
