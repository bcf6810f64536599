"""Fragments whose compactions end without a word: how many others they may be merged with, and when to stop.

A worker that is killed by what it merges can't say so; its lease stays, until somebody else gives it up as
abandoned. The log counts that for every input. After a few, each input is rewritten alone: the one that kills
workers alone, too, is put in quarantine. The others may be merged once more as they were, for workers end by
chance, too; if that ends as before, they are merged in smaller groups from then on. So what is healthy gets
through, and what kills workers kills a few of them only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from compactor.common.conversion import convertible
from compactor.table.numbers import Natural

MOST_ABANDONED: Final = 3
"""So many workers may end over the same inputs before those are divided. One or two say little: machines are
taken away, and a lease also ends while slow work goes on."""


@convertible
@dataclass(frozen=True, slots=True)
class Suspect:
    """A live fragment that was among the inputs of abandoned leases."""

    key: str
    abandoned: Natural
    """Leases of as many inputs as `inputs`, or more."""
    inputs: Natural
    """Of the smallest of those leases."""
    is_cleared: bool = False
    """Whether its rows came through a compaction alone afterwards."""

    @property
    def is_deadly(self) -> bool:
        """Returns whether it ends workers all by itself."""
        return self.inputs == 1 and self.abandoned >= MOST_ABANDONED

    @property
    def most_inputs(self) -> int | None:
        """Returns with how many fragments, itself included, it may be merged at a time; None: with any."""
        if self.inputs == 1:
            return 1
        if self.abandoned < MOST_ABANDONED or (
            self.abandoned == MOST_ABANDONED and self.is_cleared
        ):
            return None
        return self.inputs // 2 if self.is_cleared else 1

    @property
    def reason(self) -> str:
        """Returns why it is put in quarantine."""
        return (
            f"{self.abandoned} workers ended without a word while they rewrote it alone: mostly for want of "
            "memory; it may be whole (`verify`)"
        )


def abandoned(before: Suspect | None, key: str, inputs: int) -> Suspect:
    """Returns what is known of a fragment after one more lease on it and others was abandoned."""
    if before is None or inputs < before.inputs:
        return Suspect(key, 1, inputs)
    return replace(before, abandoned=before.abandoned + 1)


def rewritten(before: Suspect, key: str) -> Suspect | None:
    """Returns what is known of a fragment that `before` became when it was compacted alone."""
    if before.inputs == 1 or before.most_inputs is None:
        return None
    return replace(before, key=key, is_cleared=True)
