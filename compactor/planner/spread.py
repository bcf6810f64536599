"""Spreads: predicted figures with the range in which they are expected."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final, Self

from msgspec import Struct


class Spread(Struct, frozen=True):
    """A predicted figure, and the range in which it is expected."""

    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Returns the quartiles of what was measured, at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))

    def __mul__(self, other: Spread) -> Spread:
        """Returns the product of two figures that are not negative."""
        return Spread(self.low * other.low, self.likely * other.likely, self.high * other.high)

    def scaled(self, factor: float) -> Spread:
        return Spread(self.low * factor, self.likely * factor, self.high * factor)

    def widened(self, share: float) -> Spread:
        """Returns the spread reaching at least this share of the likely figure to both sides."""
        margin = share * self.likely
        return Spread(
            max(0.0, min(self.low, self.likely - margin)),
            self.likely,
            max(self.high, self.likely + margin),
        )

    def less(self, amount: float) -> Spread:
        """Returns what is left of figures after that amount, at least 0."""
        return Spread(*(max(0.0, each - amount) for each in (self.low, self.likely, self.high)))

    def rounded(self, digits: int) -> Spread:
        return Spread(round(self.low, digits), round(self.likely, digits), round(self.high, digits))


NOTHING: Final = Spread()


def sum_of(spreads: Iterable[Spread]) -> Spread:
    """Returns the spread of a sum of figures that may all be low, or all high, together."""
    spreads = list(spreads)
    return Spread(
        sum(s.low for s in spreads), sum(s.likely for s in spreads), sum(s.high for s in spreads)
    )


def largest_of(spreads: Iterable[Spread]) -> Spread:
    """Returns the spread of the largest of several figures."""
    spreads = list(spreads)
    return Spread(
        max((s.low for s in spreads), default=0.0),
        max((s.likely for s in spreads), default=0.0),
        max((s.high for s in spreads), default=0.0),
    )
