"""What one task may take on: passes over runs that are too many, or too heavy, to merge at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compactor.config import CompactionSettings
from compactor.memory_plan import need_bytes
from compactor.planner.tree import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the inputs of one merge."""

    target_fragment_bytes: int
    max_fan_in: int
    """Sorted runs merged at once."""
    memory_limit_bytes: int

    @classmethod
    def of(cls, settings: CompactionSettings) -> Limits:
        return cls(settings.target_fragment_bytes, settings.max_fan_in, settings.memory_limit_bytes)

    def fits(self, runs: Iterable[Run]) -> bool:
        """Whether one task may merge those; two runs always may, or nothing would ever end."""
        runs = list(runs)
        if len(runs) <= 2:
            return True
        inputs = sum(len(run.items) for run in runs)
        heaviest = max(run.peak_chunk_bytes for run in runs)
        return (
            len(runs) <= self.max_fan_in and need_bytes(inputs, heaviest) <= self.memory_limit_bytes
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
