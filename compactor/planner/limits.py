"""What one task may take on: passes over runs that are too many, or too heavy, to merge at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from compactor.config import CompactionSettings
from compactor.planner.tree import Run

MIN_WINDOW_BYTES: Final = 256 << 10
"""Fetched ahead for every input, however many there are."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the inputs of one merge."""

    target_fragment_bytes: int
    max_fan_in: int
    """Sorted runs merged at once."""
    merge_memory_bytes: int
    """Bound on the sum of the runs' heaviest chunks, and on what is fetched ahead of the inputs."""

    @classmethod
    def of(cls, settings: CompactionSettings) -> Limits:
        return cls(settings.target_fragment_bytes, settings.max_fan_in, settings.merge_memory_bytes)

    @property
    def max_fragments(self) -> int:
        return max(2, self.merge_memory_bytes // MIN_WINDOW_BYTES)

    def fits(self, runs: Iterable[Run]) -> bool:
        """Whether one task may merge those; two runs always may, or nothing would ever end."""
        runs = list(runs)
        return len(runs) <= 2 or (
            len(runs) <= self.max_fan_in
            and sum(run.peak_chunk_bytes for run in runs) <= self.merge_memory_bytes
            and sum(len(run.items) for run in runs) <= self.max_fragments
        )

    def chunks(self, runs: Iterable[Run], max_runs: int) -> Iterator[list[Run]]:
        """The runs, neighbours staying neighbours, in parts that fit; a part has two at least if it can."""
        part: list[Run] = []
        for run in runs:
            if len(part) >= 2 and (len(part) >= max_runs or not self.fits([*part, run])):
                yield part
                part = []
            part.append(run)
        if part:
            yield part
