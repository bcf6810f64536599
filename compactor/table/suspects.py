"""Suspects: fragments whose compactions end without a report. Bounds how many others they may be merged with.

A worker that is killed by what it merges cannot report it: its lease stays until another worker gives it up
as abandoned. The log counts abandoned leases for every input. After a few, each input is rewritten alone; an
input that kills workers even alone is put in quarantine. The others may be merged once more as they were,
since workers also end by chance; if that ends as before, they are merged in smaller groups from then on. So
healthy fragments get through, and a deadly one kills only a few workers.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.common.counts import counted
from compactor.table.numbers import Natural

MAX_ABANDONED: Final = 3
"""Number of workers that may end over the same inputs before these are divided.

One or two prove little: machines are taken away, and a lease also ends while slow work goes on.
"""


class Suspect(Struct, frozen=True):
    """A live fragment that was among the inputs of abandoned leases."""

    key: str
    abandoned: Natural
    """Number of abandoned leases with at least `inputs` inputs."""
    inputs: Natural
    """Number of inputs of the smallest of those leases."""
    is_cleared: bool = False
    """Whether its rows have since come through a compaction alone."""

    @property
    def is_deadly(self) -> bool:
        """Whether it ends workers all by itself."""
        return self.inputs == 1 and self.abandoned >= MAX_ABANDONED

    @property
    def max_inputs(self) -> int | None:
        """Limit on the fragments of a merge with it, itself included; None sets no limit."""
        if self.inputs == 1:
            return 1
        if self.abandoned < MAX_ABANDONED or (self.abandoned == MAX_ABANDONED and self.is_cleared):
            return None
        return self.inputs // 2 if self.is_cleared else 1

    @property
    def reason(self) -> str:
        """Why it is put in quarantine."""
        return (
            f"{counted(self.abandoned, 'worker')} ended without a word while they rewrote it "
            "alone, mostly for lack of "
            "memory; the fragment may be intact (`compactor verify` tells)"
        )


def abandoned(before: Suspect | None, key: str, inputs: int) -> Suspect:
    """Returns the suspect after one more lease on it and others was abandoned."""
    if before is None or inputs < before.inputs:
        return Suspect(key, 1, inputs)
    return replace(before, abandoned=before.abandoned + 1)


def rewritten(before: Suspect, key: str) -> Suspect | None:
    """Returns the suspect that `before` became when it was compacted alone; None if it is cleared."""
    if before.inputs == 1 or before.max_inputs is None:
        return None
    return replace(before, key=key, is_cleared=True)
