"""Corrects the model of costs by what the newest compactions of a table have measured. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.planner.cost_model import ModelledCost, system_seconds
from compactor.planner.distinct_keys import key_pool, rows_of_keys
from compactor.planner.spread import Spread, sum_of
from compactor.table.compaction_record import CompactionRecord

_NEAREST: Final = 5
"""Learn from this many compactions: those of the most similar size, as small ones cost more per byte."""
_UNKNOWN: Final = Spread(0.3, 1.0, 4.0)
"""Seconds of another machine for each of the model's."""
_ONE_SECONDS: Final = 0.25
"""Seconds reach at least this share to both sides, learned from one compaction; half of it, from more."""
_ONE_MEMORY: Final = 0.15
"""So do the bytes of the resident set."""
_SYSTEM_BY_MODEL: Final = (1.0, 1.0)
"""The model's system time counts as two records. The same merge takes a tenth or ten times as much of it: how
long clearing a page takes depends on whether a virtual machine's host has given it before."""
_CLOCK_SECONDS: Final = 0.02
"""Systems tell whose CPU time it was by looking every 1 to 10 ms: take less than this for unknown."""
_LEAST_FRESH: Final = 0.2
"""Learn what becomes of fresh bytes where they are more than this for each settled one: beside few of them,
the small change of the others is most of the change."""
_MAX_FACTOR: Final = 1e4
"""Learn nothing from figures that are further from the model: no machine measures them."""


class Experience(Struct, frozen=True):
    """Compactions of a table that tell what the next one will cost: those most similar to it, at best."""

    records: Sequence[CompactionRecord]
    """The newest ones, newest first."""
    nearest: Sequence[CompactionRecord]

    @classmethod
    def of(cls, records: Sequence[CompactionRecord], cost: ModelledCost) -> Experience:
        """records: of the table's newest compactions, oldest first. cost: of the next one.

        Those that compressed otherwise tell nothing: levels differ by more than a hundred times in seconds.
        """
        known = [
            record
            for record in reversed(records)
            if _is_plausible(record) and record.compression_level == cost.compression_level
        ]

        def distance(record: CompactionRecord) -> float:
            return abs(math.log(record.model_cpu_seconds / cost.cpu_seconds))

        # Sorting is stable: of equally similar ones it keeps the newest first.
        return cls(known, sorted(known, key=distance)[:_NEAREST])

    def cpu_seconds(self, cost: ModelledCost) -> Spread:
        """Returns the CPU time of all threads."""
        grown_bytes = cost.grown_bytes + statistics.median(self._growth_errors() or [0])
        of_system = system_seconds(grown_bytes, cost.bytes_in)
        if not self.nearest:
            return _UNKNOWN.scaled(cost.cpu_seconds + of_system)
        own = [_own_seconds(r) / r.model_cpu_seconds for r in self.nearest]
        systems = [_system_seconds(r) / _modelled_system_seconds(r) for r in self.nearest]
        found = sum_of([
            Spread.of(own).scaled(cost.cpu_seconds),
            Spread.of([*_SYSTEM_BY_MODEL, *systems]).scaled(of_system),
        ])  # fmt: skip
        return found.widened(self._margin(_ONE_SECONDS))

    def seconds(self, cost: ModelledCost) -> Spread:
        """Returns the time that passes: by the CPU time, and how it passed on that machine lately."""
        slowness = [r.seconds / r.cpu_seconds for r in self.records[:_NEAREST]]
        cpu_seconds = self.cpu_seconds(cost)
        return cpu_seconds * Spread.of(slowness) if slowness else cpu_seconds

    def resident_bytes(self, cost: ModelledCost, base_bytes: int, bound_bytes: int) -> Spread:
        """Returns the peak of the resident set.

        base_bytes: of the process when the compaction begins. bound_bytes: by how much it can grow at most,
        by the plan.
        """
        errors = self._growth_errors()
        likely = base_bytes + cost.grown_bytes
        if not errors:
            low = base_bytes + cost.grown_bytes / 2
            return Spread(low, likely, max(base_bytes + bound_bytes, likely))
        found = Spread.of(errors)
        return Spread(
            *(max(base_bytes, likely + error) for error in (found.low, found.likely, found.high))
        ).widened(self._margin(_ONE_MEMORY))

    def _growth_errors(self) -> list[int]:
        """Returns by how many bytes the resident set grew more than the model says."""
        return [_grown_bytes(r) - r.model_grown_bytes for r in self.nearest if r.start_rss_bytes]

    def _margin(self, of_one: float) -> float:
        return of_one if len(self.nearest) == 1 else of_one / 2

    def bytes_out(self, cost: ModelledCost) -> int:
        """Returns the stored bytes of outputs that keep all live rows: fresh ones change their size."""
        ratios = [
            (r.bytes_out - r.settled_bytes) / r.fresh_bytes
            for r in self.nearest
            if r.fresh_bytes > _LEAST_FRESH * r.settled_bytes
        ]
        ratio = max(0.0, statistics.median(ratios)) if ratios else 1.0
        return round(cost.settled_bytes + ratio * cost.fresh_bytes)

    def merged_bytes_out(self, cost: ModelledCost, live_rows: Sequence[int]) -> int:
        """Returns the stored bytes of outputs that keep one row for each key.

        live_rows: the live rows of each input.
        """
        known = [r for r in self.nearest if r.rows_out and r.live_rows]
        if not known:
            return cost.fresh_bytes + cost.settled_bytes
        pool = statistics.median(key_pool(r.inputs, r.live_rows, r.rows_out) for r in known)
        row_bytes = statistics.median(r.bytes_out / r.rows_out for r in known)
        return round(rows_of_keys(live_rows, pool) * row_bytes)


def _grown_bytes(record: CompactionRecord) -> int:
    return record.peak_rss_bytes - record.start_rss_bytes


def _own_seconds(record: CompactionRecord) -> float:
    """Returns the CPU time without the system's."""
    return record.cpu_seconds - _system_seconds(record)


def _system_seconds(record: CompactionRecord) -> float:
    """Returns the system's CPU time; by the model where the clock is too coarse, and then not most of all."""
    if record.system_cpu_seconds < _CLOCK_SECONDS:
        return min(_modelled_system_seconds(record), record.cpu_seconds / 2)
    return record.system_cpu_seconds


def _modelled_system_seconds(record: CompactionRecord) -> float:
    """Returns the system's by the model, if it had known how far the resident set would grow."""
    grown_bytes = _grown_bytes(record) if record.start_rss_bytes else record.model_grown_bytes
    return system_seconds(grown_bytes, record.bytes_in)


def _is_plausible(record: CompactionRecord) -> bool:
    """Says whether a record has what is divided by, and times like those of a machine."""
    times = (record.model_cpu_seconds, _own_seconds(record), record.seconds)
    return record.bytes_in > 0 and min(times) > 0 and max(times) <= _MAX_FACTOR * min(times)
