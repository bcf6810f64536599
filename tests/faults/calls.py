"""Calls, faults around them, and the choice of calls that a fault hits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

Effect = Callable[[], Any]
"""Carries the call out and returns its answer."""


class Call(ABC):
    """One call of a host, which says in its own terms what its caller meets."""

    operation: str
    key: str

    @abstractmethod
    def dropped(self) -> BaseException:
        """Returns the error of a connection that broke before the call arrived."""

    @abstractmethod
    def unanswered(self) -> BaseException:
        """Returns the error of a call whose caller can't tell whether it took effect."""

    @abstractmethod
    def cut(self, answer: Any, after_bytes: int) -> Any:
        """Returns the answer as one that breaks after some bytes."""

    @abstractmethod
    def damaged(self, answer: Any, change: Callable[[Any], Any]) -> Any:
        """Returns the answer with its content changed."""

    @abstractmethod
    def ignore_conditions(self) -> None:
        """Makes the call unconditional."""


class Fault(Protocol):
    def around(self, call: Call, effect: Effect) -> Any:
        """Returns the answer, raises an error, or both carries out and raises."""


class Calls(Struct, frozen=True, kw_only=True):
    """A choice of calls; the numbers count the calls that fit everything else."""

    operations: tuple[str, ...] = ()
    prefix: str = ""
    where: Callable[[Any], bool] | None = None
    """Is given the `Call`; at a server that is the `Request`."""
    from_number: int = 1
    to_number: int | None = None
    chance: float = 1.0
    random: Random | None = None

    def nth(self, number: int) -> Calls:
        return replace(self, from_number=number, to_number=number)

    def first(self, count: int = 1) -> Calls:
        return replace(self, from_number=1, to_number=count)

    def from_nth(self, number: int) -> Calls:
        return replace(self, from_number=number, to_number=None)

    def by_chance(self, chance: float, random: Random) -> Calls:
        return replace(self, chance=chance, random=random)

    def fits(self, call: Call) -> bool:
        return (
            (not self.operations or call.operation in self.operations)
            and call.key.startswith(self.prefix)
            and (self.where is None or self.where(call))
        )

    def includes(self, number: int) -> bool:
        if number < self.from_number or number > (self.to_number or number):
            return False
        return self.random is None or self.random.random() < self.chance


def calls(*operations: str, prefix: str = "", where: Callable[[Any], bool] | None = None) -> Calls:
    """Returns all calls of some operations, of all without any, on keys with a prefix."""
    return Calls(operations=operations, prefix=prefix, where=where)
