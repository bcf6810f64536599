"""The points where processes of the crash loop die: right before or after calls of their store."""

from __future__ import annotations

from msgspec import Struct

from tests.faults import Faults, Kill, calls
from tests.faults.kill import end_process


class Point(Struct, frozen=True):
    """The n-th call of an operation on keys with a prefix."""

    operation: str
    prefix: str
    number: int = 1
    after: bool = False
    """Whether the call takes effect first."""

    @classmethod
    def parse(cls, text: str) -> Point:
        """Reads `after create _log/ 2`."""
        moment, operation, prefix, number = text.split()
        return cls(operation, prefix, int(number), moment == "after")

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.operation} {self.prefix} {self.number}"

    def faults(self) -> Faults:
        faults = Faults()
        kill = Kill(after=self.after, die=end_process)
        faults.add(kill, at=calls(self.operation, prefix=self.prefix).nth(self.number))
        return faults


def _around(operation: str, prefix: str, number: int = 1) -> list[Point]:
    return [Point(operation, prefix, number, after) for after in (False, True)]


POINTS = [
    Point("list", "_log/"),
    Point("list", "data/"),
    Point("list", "data/", after=True),
    *_around("create", "_log/"),
    *_around("create", "_log/", 2),
    *_around("create", "data/"),
    *_around("create", "_checkpoint/"),
    Point("open_stream", "data/", 2),
    Point("write", "data/"),
    Point("write", "data/", 5),
    *_around("complete", "data/"),
    *_around("complete", "data/", 2),
    Point("delete", "data/"),
    Point("delete", "data/", 2, after=True),
    Point("delete", "_log/", after=True),
    Point("delete", "_log/", 2, after=True),
    Point("delete", "_checkpoint/"),
]
