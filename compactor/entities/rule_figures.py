"""The figures of each rule in a run's report: values found, left out, and shared by both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from compactor.common.counts import counted
from compactor.entities.expressions import Values, shown
from compactor.entities.spec import Rule

SHOWN_CHARACTERS: Final = 200
"""Cut values in reports after this many characters."""


def cut(text: str) -> str:
    """Returns a text as a report shows it."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class ValueFigures(Struct):
    """A value and how many entities have it."""

    value: str
    """JSON text, cut."""
    entities: int

    @property
    def order(self) -> tuple[int, str]:
        """Sorts the most shared value first."""
        return -self.entities, self.value


class AsideFigures(Struct):
    """The values of a rule that were put aside, because too many entities share them."""

    values: int = 0
    entities: int = 0
    """Entities of all these values; one that has several counts for each."""
    most_shared: ValueFigures | None = None


class SideFigures(Struct):
    """One side of a rule."""

    expression: str
    values: int = 0
    """Values of all living entities."""
    distinct: int = 0
    dropped: int = 0
    """Values left out, because they are blank or of a type that a function does not take."""

    def add(self, values: int, dropped: int) -> None:
        self.values += values
        self.dropped += dropped


class RuleFigures(Struct):
    left: SideFigures
    right: SideFigures
    matches: int = 0
    """Distinct values that both sides and at least two entities have, without those put aside."""
    most_shared: ValueFigures | None = None
    """The one of them that most entities have."""
    put_aside: AsideFigures = field(default_factory=AsideFigures)

    @property
    def text(self) -> str:
        """The rule as it stands in a spec."""
        return f"[eq, {self.left.expression}, {self.right.expression}]"

    @classmethod
    def none_of(cls, rule: Rule) -> RuleFigures:
        """Returns the figures of a rule before any entity is read."""
        return cls(SideFigures(shown(rule.left)), SideFigures(shown(rule.right)))

    def add(self, sides: Sequence[Sequence[int]]) -> None:
        """Adds figures as `counts_of` returns them."""
        for side, counts in zip((self.left, self.right), sides, strict=True):
            side.add(*counts)

    def add_distinct(self, left: int, right: int, shared: Shared) -> None:
        """Adds the distinct values of both sides, and the values in common."""
        self.left.distinct += left
        self.right.distinct += right
        self.matches += shared.matches
        found = [each for each in (self.most_shared, shared.most) if each is not None]
        self.most_shared = min(found, key=lambda each: each.order, default=None)


class Shared(NamedTuple):
    """Values that both sides of a rule have, and that are not put aside."""

    matches: int
    most: ValueFigures | None


def rule_text(rule: Rule) -> str:
    """Returns a rule as it stands in a spec."""
    return RuleFigures.none_of(rule).text


def counts_of(sides: Sequence[Values]) -> list[tuple[int, int]]:
    """Returns the numbers of values and of values left out, for each side of a rule."""
    return [(len(values.rows), values.dropped) for values in sides]


def lines_of_rules(rules: Sequence[RuleFigures]) -> Iterator[str]:
    """Yields lines about the values of each rule, then about those that functions left out."""
    for rule in rules:
        found = " and ".join(
            f"{s.values:,} ({s.distinct:,} distinct)" for s in (rule.left, rule.right)
        )
        line = f"{rule.text}: {found} values, {rule.matches:,} in common"
        if rule.most_shared is not None:
            most = rule.most_shared
            line += (
                f"; most shared is {most.value}, by {counted(most.entities, 'entity', 'entities')}"
            )
        yield line
        if rule.put_aside.most_shared is not None:
            aside, most = rule.put_aside, rule.put_aside.most_shared
            yield (
                f"{rule.text}: {counted(aside.values, 'value')} put aside, of "
                f"{counted(aside.entities, 'entity', 'entities')}; most shared is {most.value}, by "
                f"{counted(most.entities, 'entity', 'entities')}"
            )
    sides = {side.expression: side for rule in rules for side in (rule.left, rule.right)}
    for side in sides.values():
        if side.dropped:
            yield f"{side.expression} left out {counted(side.dropped, 'value')}"


def warnings_of(rules: Sequence[RuleFigures]) -> Iterator[str]:
    """Yields a line for each rule that matches nothing, with the likely reason."""
    for rule in rules:
        sides = (rule.left, rule.right)
        start = f"rule {rule.text} matches nothing: "
        empty = {side.expression: None for side in sides if not side.values + side.dropped}
        if empty:
            yield f"{start}no entity has {' and '.join(empty)}; correct the name, or leave the rule out"
        elif not rule.matches and rule.put_aside.values:
            yield (
                f"{start}all values that both sides have are put aside; correct the values, or raise "
                "max_merged"
            )
        elif unusable := {side.expression: None for side in sides if not side.values}:
            yield (
                f"{start}all values of {' and '.join(unusable)} are left out, as blank ones are, and those "
                "that a function does not take; correct the values"
            )
        elif not rule.matches and len({side.expression for side in sides}) == 1:
            found = f"{counted(rule.left.values, 'value')} of {rule.left.expression}"
            yield f"{start}{found}, each of one entity; compare forms of the values"
        elif not rule.matches:
            found = " and ".join(f"{counted(s.values, 'value')} of {s.expression}" for s in sides)
            yield f"{start}{found} have none in common; compare types and forms of the values"
