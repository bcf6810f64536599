"""Divides fragments with overlapping keys into stretches: key ranges covered by one fragment need no merge.

The key bounds of row groups in the footers suffice to find overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lsm_fragment.container.footer import RowGroupStats
from lsm_fragment.keys.comparator import KeyComparator


class Part(Struct, frozen=True):
    """Consecutive row groups of one fragment."""

    fragment: int
    """Index of the fragment among those that were divided."""
    start: int
    stop: int
    """The row group after the last."""


def whole_fragments(fragments: Sequence[Sequence[RowGroupStats]]) -> list[Part]:
    """Returns one part per fragment, with all of its row groups."""
    return [Part(place, 0, len(row_groups)) for place, row_groups in enumerate(fragments)]


def stretches_of(
    fragments: Sequence[Sequence[RowGroupStats]], compare: KeyComparator
) -> Iterator[list[Part]]:
    """Yields the parts of each stretch, in key order; within a stretch, in the order of fragments.

    fragments: the row groups of each. No two stretches share a key. A stretch of one part needs no merge.
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
    """Yields the smallest sets of row groups that share no key with the others."""
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
        # Bounds of long keys are truncated, so the bound of a row group may be below that of the previous
        # one.
        known = parts.get(place, Part(place, number, number + 1))
        parts[place] = Part(place, min(known.start, number), max(known.stop, number + 1))
        highest = max(highest, upper)
    if parts:
        yield [parts[fragment] for fragment in sorted(parts)]
