"""Measures seconds by stage, counting each second once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

STAGES: Final = (
    "fetch wait",
    "decode",
    "order",
    "gather",
    "hash",
    "encode",
    "pass on",
    "upload wait",
)
"""Stages of a merge in the order in which rows pass through them. `upload wait` includes writing, where the
store takes bytes synchronously."""


class Stopwatch:
    """A stopwatch for one thread: `with watch.on(stage)` counts a nested stage only for itself."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}
        self._open: list[_Lap] = []

    def on(self, stage: str) -> _Lap:
        return _Lap(self, stage)

    def add(self, seconds: Mapping[str, float]) -> None:
        """Adds seconds by stage that were measured elsewhere, such as another thread's."""
        for stage, more in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + more

    def move(self, seconds: float, source: str, target: str) -> None:
        """Moves seconds from one stage to another, such as waiting that was measured elsewhere."""
        seconds = min(seconds, self.seconds.get(source, 0.0))
        self.seconds[source] = self.seconds.get(source, 0.0) - seconds
        self.seconds[target] = self.seconds.get(target, 0.0) + seconds


class Laps:
    """A stopwatch for stages that follow each other without a gap."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stage: str | None = None
        self._began = 0.0
        self.seconds: dict[str, float] = {}
        """Seconds of the stages that have ended."""

    def begin(self, stage: str) -> None:
        """Ends the stage before, and begins another."""
        self.end()
        self._stage = stage

    def end(self) -> None:
        """Ends the stage, if there is one."""
        now = self._clock()
        if self._stage is not None:
            taken = now - self._began
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + taken
        self._stage, self._began = None, now


class _Lap:
    __slots__ = ("_inner", "_stage", "_started", "_watch")

    def __init__(self, watch: Stopwatch, stage: str) -> None:
        self._watch = watch
        self._stage = stage
        self._inner = 0.0

    def __enter__(self) -> Self:
        self._watch._open.append(self)
        self._started = self._watch.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        watch = self._watch
        taken = watch.clock() - self._started
        watch._open.pop()
        watch.seconds[self._stage] = watch.seconds.get(self._stage, 0.0) + taken - self._inner
        if watch._open:
            watch._open[-1]._inner += taken
