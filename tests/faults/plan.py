"""The faults of one host: which call meets which, and which have been met."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from tests.faults.calls import Call, Calls, Effect, Fault
from tests.faults.kill import Crash


class Rule:
    """A fault at some calls; `hits` are the operations and keys that it has met."""

    def __init__(self, fault: Fault, at: Calls) -> None:
        self.fault, self.at = fault, at
        self.hits: list[tuple[str, str]] = []
        self._number = 0

    def hit(self, call: Call) -> bool:
        """Counts the call if it fits, and returns whether the fault is due."""
        if not self.at.fits(call):
            return False
        self._number += 1
        if not self.at.includes(self._number):
            return False
        self.hits.append((call.operation, call.key))
        return True


class Faults:
    """What `FaultyStore` and `S3Server` ask at each call, from any thread."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._is_dead = False

    def add(self, fault: Fault, at: Calls | None = None) -> Rule:
        """Adds a fault at every call, or at some; numbers of calls count from now."""
        rule = Rule(fault, at or Calls())
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def carry_out(self, call: Call, effect: Effect) -> Any:
        """Returns the answer within the faults that are due. After a `Crash` nothing takes effect."""
        if self._is_dead:
            raise Crash
        with self._lock:
            due = [rule.fault for rule in self._rules if rule.hit(call)]
        for fault in reversed(due):
            effect = partial(fault.around, call, effect)
        try:
            return effect()
        except Crash:
            self._is_dead = True
            raise
