"""Actors that run one at a time, in an order that a seed decides, on a clock without waiting.

An actor is an ordinary function on a greenlet of its own. It hands over at every call of its store and
whenever it sleeps; the scheduler picks who goes on. Same seed, same run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from greenlet import greenlet
from msgspec import Struct

from tests.faults import Crash

START_MS = 1_700_000_000_000


class Actor(Struct, eq=False):
    name: str
    thread: greenlet
    skew_ms: int
    """How far its clock is off."""
    wake_ms: int = 0


class Scheduler:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.steps = 0
        self.trace: list[str] = []
        self.visits: Counter[str] = Counter()
        """What happened in this run, and how often."""
        self.skews_ms = [0, 0, 0, -2_000, 2_000, 30_000, -30_000]
        """How far the clocks of actors are off, to choose from."""
        self._actors: list[Actor] = []
        self._main = greenlet.getcurrent()
        self._running: Actor | None = None

    def spawn(self, name: str, run: Callable[[], None]) -> None:
        """An actor of its own, with a clock of its own."""

        def guarded() -> None:
            try:
                run()
                self.note("ends")
            except Crash:
                self.note("crashes")

        skew = self.random.choice(self.skews_ms)
        self._actors.append(Actor(name, greenlet(guarded, self._main), skew))

    def run(self, max_steps: int) -> None:
        """Until all actors have ended. Raises whatever an actor raises."""
        while self._actors:
            self.steps += 1
            assert self.steps < max_steps, "the actors come to no end"
            ready = [actor for actor in self._actors if actor.wake_ms <= self.now_ms]
            if not ready:
                self.now_ms = min(actor.wake_ms for actor in self._actors)
                continue
            self.now_ms += self.random.randrange(20)
            self._running = actor = self.random.choice(ready)
            actor.thread.switch()
            if actor.thread.dead:
                self._actors.remove(actor)
        self._running = None

    def hand_over(self) -> None:
        """Others may go on; called by actors. Outside of `run`, nothing happens."""
        if self._running is not None:
            self._main.switch()

    def sleep(self, seconds: float) -> None:
        if self._running is None:
            self.now_ms += round(seconds * 1000)
            return
        self._running.wake_ms = self.now_ms + round(seconds * 1000)
        self._main.switch()

    def note(self, text: str) -> None:
        name = self._running.name if self._running else "-"
        self.trace.append(f"{self.now_ms - START_MS:>10} {name}: {text}")

    def jump(self, skew_ms: int) -> None:
        """Sets the clock of some actor."""
        actor = self.random.choice(self._actors)
        actor.skew_ms = skew_ms
        self.note(f"the clock of {actor.name} is off by {skew_ms} ms")

    @property
    def skew_ms(self) -> int:
        return self._running.skew_ms if self._running else 0


class SimulatedClock:
    """The clock of whichever actor asks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_unix_ms(self) -> int:
        return self._scheduler.now_ms + self._scheduler.skew_ms

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)
