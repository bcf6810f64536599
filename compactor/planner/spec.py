"""What a planner decides: compactions to run, moves, expired windows. Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compactor.table.entry import FragmentEntry
from format.keys import Bound

_ROW_GROUPS_PER_FRAGMENT: Final = 4


@dataclass(frozen=True, slots=True)
class CompactionSpec:
    """Fragments to merge into disjoint ones. A wish: a compaction once it is leased under an id."""

    inputs: tuple[FragmentEntry, ...]
    """Oldest first: the order among equal keys."""
    output_level: int
    reason: str = ""
    """For people: why the planner wants it."""
    priority: float = 0.0
    """Of several specs, the highest is run first."""
    cut_keys: tuple[Bound, ...] = ()
    """First keys of fragments of the level below the output: outputs end there if they are large enough, so
    that later compactions overlap fewer fragments."""
    is_bottom: bool = False
    """Whether no older row of any key is left out: tombstones have nothing more to do."""

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
        """Bytes for whose sake the rest is rewritten: those that change their level, or all at level 0."""
        moved = sum(e.size_bytes for e in self.inputs if e.level != self.output_level)
        return moved or self.size_bytes

    @property
    def rewrite_ratio(self) -> float:
        """Bytes written for a byte moved: what the compaction adds to write amplification."""
        return self.size_bytes / max(1, self.moved_bytes)


@dataclass(frozen=True, slots=True)
class TrivialMove:
    """Fragments that overlap nothing on the way down: only the log changes."""

    entries: tuple[FragmentEntry, ...]
    output_level: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Fragments of time windows that are past retention."""

    entries: tuple[FragmentEntry, ...]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Specs by priority. No fragment is in two of its parts."""

    specs: tuple[CompactionSpec, ...] = ()
    trivial_moves: tuple[TrivialMove, ...] = ()
    expiry: Expiry = Expiry(())
    blocked: tuple[str, ...] = ()
    """What would be due, but for a quarantined fragment or another's compaction: a line each."""
    refused: tuple[str, ...] = ()
    """What would be due, but not within the memory limit: a line each, with the limit that would do."""

    def __bool__(self) -> bool:
        return bool(self.specs or self.trivial_moves or self.expiry.entries)


def max_rows_per_group(
    entries: Sequence[FragmentEntry], *, target_fragment_bytes: int, max_rows: int
) -> int:
    """Rows of an output row group at most: a quarter of a fragment, since fragments end where row groups do.

    How many fewer the heaviest column allows is seen row by row, from the inputs' own row groups.
    """
    rows = max(1, sum(entry.rows for entry in entries))
    stored = max(1, sum(entry.size_bytes for entry in entries))
    by_fragment = target_fragment_bytes * rows // (stored * _ROW_GROUPS_PER_FRAGMENT)
    return max(1, min(max_rows, by_fragment))
