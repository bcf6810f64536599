"""The figures of each rule in a run's report: values found, left out, and shared by both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compactor.common.counts import counted
from compactor.entities.expressions import Values, shown
from compactor.entities.spec import Rule


@dataclass(slots=True)
class SideFigures:
    """One side of a rule."""

    expression: str
    values: int = 0
    """Values of all living entities."""
    dropped: int = 0
    """Values left out, because they are blank or of a type that a function does not take."""

    def add(self, values: int, dropped: int) -> None:
        self.values += values
        self.dropped += dropped


@dataclass(slots=True)
class RuleFigures:
    left: SideFigures
    right: SideFigures
    matches: int = 0
    """Distinct values that both sides have."""

    @classmethod
    def none_of(cls, rule: Rule) -> RuleFigures:
        """Returns the figures of a rule before any entity is read."""
        return cls(SideFigures(shown(rule.left)), SideFigures(shown(rule.right)))

    def add(self, sides: Sequence[Sequence[int]]) -> None:
        """Adds figures as `counts_of` returns them."""
        for side, counts in zip((self.left, self.right), sides, strict=True):
            side.add(*counts)


def counts_of(sides: Sequence[Values]) -> list[tuple[int, int]]:
    """Returns the numbers of values and of values left out, for each side of a rule."""
    return [(len(values.rows), values.dropped) for values in sides]


def dropping_sides(rules: Sequence[RuleFigures]) -> Iterator[SideFigures]:
    """Yields the sides whose functions left something out, each expression once."""
    sides = {side.expression: side for rule in rules for side in (rule.left, rule.right)}
    yield from (side for side in sides.values() if side.dropped)


def warnings_of(rules: Sequence[RuleFigures]) -> Iterator[str]:
    """Yields a line for each rule that matches nothing, with the likely reason."""
    for rule in rules:
        sides = (rule.left, rule.right)
        start = f"rule [eq, {rule.left.expression}, {rule.right.expression}] matches nothing: "
        empty = [side for side in sides if not side.values + side.dropped]
        if empty:
            names = " and ".join(side.expression for side in empty)
            yield f"{start}no entity has {names}; correct the name, or leave the rule out"
        elif not rule.matches:
            found = " and ".join(f"{counted(s.values, 'value')} of {s.expression}" for s in sides)
            yield f"{start}{found} have none in common; compare types and forms of the values"
