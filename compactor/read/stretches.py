"""Divides fragments with overlapping keys into stretches: rows that only one of them has need no merge.

The bounds of row groups, which footers state, are enough to see where fragments overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lsm_fragment.container.footer import RowGroupStats
from lsm_fragment.keys.comparator import KeyComparator


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring row groups of one fragment."""

    fragment: int
    """The fragment's place among those that were divided."""
    start: int
    stop: int
    """The row group after the last."""


def whole_fragments(fragments: Sequence[Sequence[RowGroupStats]]) -> list[Part]:
    """Returns one part for each fragment, with all of its row groups."""
    return [Part(place, 0, len(row_groups)) for place, row_groups in enumerate(fragments)]


def stretches_of(
    fragments: Sequence[Sequence[RowGroupStats]], compare: KeyComparator
) -> Iterator[list[Part]]:
    """Yields the parts of each stretch, in key order; within one, in the order of fragments.

    fragments: the row groups of each. No two stretches have a key in common. A stretch of one part has the
    rows of one fragment in their order.
    """
    waiting: Part | None = None
    for parts in _components(fragments, compare):
        if waiting is not None and len(parts) == 1 and parts[0].fragment == waiting.fragment:
            waiting = replace(waiting, stop=parts[0].stop)
            continue
        if waiting is not None:
            yield [waiting]
        waiting = parts[0] if len(parts) == 1 else None
        if waiting is None:
            yield parts
    if waiting is not None:
        yield [waiting]


def _components(
    fragments: Sequence[Sequence[RowGroupStats]], compare: KeyComparator
) -> Iterator[list[Part]]:
    """Yields the smallest sets of row groups that share no key with any others."""
    groups = sorted(
        (compare.key(group.first_key), place, number, compare.upper(group.last_key))
        for place, row_groups in enumerate(fragments)
        for number, group in enumerate(row_groups)
    )
    parts: dict[int, Part] = {}
    highest = b""
    for lowest, place, number, upper in groups:
        if parts and lowest > highest:
            yield [parts[fragment] for fragment in sorted(parts)]
            parts = {}
        # Bounds of long keys are cut, so a row group may have a lower one than the row group before it.
        known = parts.get(place, Part(place, number, number + 1))
        parts[place] = Part(place, min(known.start, number), max(known.stop, number + 1))
        highest = max(highest, upper)
    if parts:
        yield [parts[fragment] for fragment in sorted(parts)]
