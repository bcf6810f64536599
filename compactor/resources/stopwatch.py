"""Where the time goes: seconds by stage, each second counted once."""

from __future__ import annotations

import time
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
"""Of a merge, in the order in which rows go through them. `upload wait` is writing, too, where the store
takes bytes at once."""


class Stopwatch:
    """`with watch.on(stage)`: what runs within another stage is not counted for that one.

    For one thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[_Lap] = []

    def on(self, stage: str) -> _Lap:
        return _Lap(self, stage)

    def move(self, seconds: float, source: str, target: str) -> None:
        """Counts seconds of one stage for another: waiting that is measured where it happens."""
        seconds = min(seconds, self.seconds.get(source, 0.0))
        self.seconds[source] = self.seconds.get(source, 0.0) - seconds
        self.seconds[target] = self.seconds.get(target, 0.0) + seconds


class _Lap:
    __slots__ = ("_inner", "_stage", "_started", "_watch")

    def __init__(self, watch: Stopwatch, stage: str) -> None:
        self._watch = watch
        self._stage = stage
        self._inner = 0.0

    def __enter__(self) -> Self:
        self._watch._open.append(self)
        self._started = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        taken = time.perf_counter() - self._started
        watch = self._watch
        watch._open.pop()
        watch.seconds[self._stage] = watch.seconds.get(self._stage, 0.0) + taken - self._inner
        if watch._open:
            watch._open[-1]._inner += taken
