"""Faults by chance: what a run of the simulation draws from its seed at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from msgspec import Struct

from tests.faults.calls import Call, Fault
from tests.faults.drop import Drop
from tests.faults.kill import Kill
from tests.faults.lose_answer import LoseAnswer
from tests.faults.stall import Stall
from tests.faults.store import WRITES

Sleep = Callable[[float], object]
"""Is given seconds."""


class Chances(Struct, frozen=True, kw_only=True):
    """Chances at every call."""

    kill: float = 0.0
    drop: float = 0.0
    lose_answer: float = 0.0
    """Of a creation, before its effect and again after it; other writes lose a fifth of it."""
    slow: float = 0.0
    stall: float = 0.0
    """Slower than every grace period."""
    deliver_twice: float = 0.0
    """The sender gets the second answer; with half the chance, the second delivery comes later."""
    hesitate: float = 0.0
    """A process pauses right before it creates or removes a version: others commit meanwhile."""

    def hesitation(self, random: Random, sleep: Sleep) -> Iterator[Fault]:
        if random.random() < self.hesitate:
            yield Stall(partial(sleep, random.expovariate(1 / random.choice([30, 200, 1_000]))))

    def of_process(self, random: Random, sleep: Sleep, die: Callable[[], None]) -> Iterator[Fault]:
        """Yields what happens to the caller, before a call and after it."""
        chance = random.random()
        if chance < self.kill:
            yield Kill(die=die)
        if chance < self.kill + self.slow:
            yield Stall(partial(sleep, random.expovariate(1 / 20)))
        elif chance < self.kill + self.slow + self.stall:
            yield Stall(partial(sleep, random.choice([300, 7_200, 100_000])))

    def of_request(self, call: Call, chance: float) -> Fault | None:
        """Returns what happens to the request, by a number from 0 to 1."""
        if chance < self.drop:
            return Drop()
        if call.operation in WRITES and chance < self.drop + self.loss(call):
            return LoseAnswer(landed=False)
        return None

    def loss(self, call: Call) -> float:
        # Most uploads come through, so that there is something to commit.
        return self.lose_answer if call.operation == "create" else self.lose_answer / 5
