"""Decisions of a planner: compactions to run, trivial moves, expired windows. Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.common.message import Message
from compactor.table.entry import FragmentEntry
from lsm_fragment.keys.bounds import Bound

_ROW_GROUPS_PER_FRAGMENT: Final = 4


class CompactionSpec(Struct, frozen=True, kw_only=True):
    """Fragments to merge into disjoint ones. It becomes a compaction when it is leased under an id."""

    inputs: tuple[FragmentEntry, ...]
    """Oldest first: the order among equal keys."""
    output_level: int
    reason: str = ""
    """Why the planner wants it, for users."""
    priority: float = 0.0
    """The spec with the highest priority runs first."""
    cut_keys: tuple[Bound, ...] = ()
    """First keys of fragments of the level below the output.

    Outputs that are large enough end there, so that later compactions overlap fewer fragments.
    """
    is_bottom: bool = False
    """Whether the merge includes every older row of its keys, so that tombstones are no longer needed."""

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.inputs)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.inputs)

    @property
    def window(self) -> int | None:
        return self.inputs[0].window

    @property
    def moved_bytes(self) -> int:
        """Bytes for whose sake the rest is rewritten: those that change their level, or all on level 0."""
        moved = sum(e.size_bytes for e in self.inputs if e.level != self.output_level)
        return moved or self.size_bytes

    @property
    def rewrite_ratio(self) -> float:
        """Bytes written per byte moved: what the compaction adds to write amplification."""
        return self.size_bytes / max(1, self.moved_bytes)


class TrivialMove(Struct, frozen=True):
    """Fragments that overlap nothing on the way down: only the log changes."""

    entries: tuple[FragmentEntry, ...]
    output_level: int
    reason: str = ""


class Expiry(Struct, frozen=True):
    """Fragments of time windows that are past retention."""

    entries: tuple[FragmentEntry, ...]


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """Specs by priority, trivial moves and expired fragments. No fragment is in two of these parts."""

    specs: tuple[CompactionSpec, ...] = ()
    trivial_moves: tuple[TrivialMove, ...] = ()
    expiry: Expiry = Expiry(())
    blocked: tuple[str, ...] = ()
    """One line for each compaction that waits for a quarantined fragment or another compaction."""
    refused: tuple[Message, ...] = ()
    """One line for each compaction that the memory limit does not allow, with the limit that would."""
    held: frozenset[str] = frozenset()
    """Keys of fragments that are due, and are not among the specs and moves."""

    def __bool__(self) -> bool:
        return bool(self.specs or self.trivial_moves or self.expiry.entries)


def max_rows_per_group(
    entries: Sequence[FragmentEntry], *, target_fragment_bytes: int, max_rows: int
) -> int:
    """Returns the most rows of an output row group: a quarter of a fragment, which ends at a row group's end.

    The merge may use fewer for the largest column, which it sees from the inputs' own row groups.
    """
    rows = max(1, sum(entry.rows for entry in entries))
    stored = max(1, sum(entry.size_bytes for entry in entries))
    by_fragment = target_fragment_bytes * rows // (stored * _ROW_GROUPS_PER_FRAGMENT)
    return max(1, min(max_rows, by_fragment))
