"""Maps key ranges to rank intervals, and fragments to bars in lanes. Pure.

Keys can have any types, so the axis shows ranks among all first and last keys. Each rank is a cell of width
one; a fragment covers the cells from its first key to its last.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.common.escaping import shortened
from compactor.report.data import Bar, LevelRow, Panel, SizeBin, Tick
from compactor.table.entry import FragmentEntry, key_range
from compactor.table.key_text import key_parts, key_text, key_types
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.comparator import ComparableKey

MAX_LANES: Final = 16
"""Maximum lanes of a level; beyond, it is drawn as a depth profile."""
MAX_BARS: Final = 500
"""Maximum bars of a panel over all lanes; beyond, neighbours are drawn as one bar."""
_MAX_TICKS: Final = 6
_TICK_CHARACTERS: Final = 16

Ranks = npt.NDArray[np.int64]


class KeyAxis:
    """The ranks of the first and last keys of fragments."""

    def __init__(self, table: TableMetadata, entries: Iterable[FragmentEntry]) -> None:
        self._compare = table.comparator()
        self._types: Sequence[pa.DataType] = key_types(table.schema, table.sort)
        bounds: dict[ComparableKey, Bound] = {}
        for entry in entries:
            if entry.rows:
                first, last = key_range(entry, self._compare)
                bounds.setdefault(first, entry.first_key)
                bounds.setdefault(last, entry.last_key)
        ordered = sorted(bounds)
        self._bounds = [bounds[comparable] for comparable in ordered]
        self._rank = {comparable: rank for rank, comparable in enumerate(ordered)}

    def __len__(self) -> int:
        return len(self._bounds)

    def interval(self, entry: FragmentEntry) -> tuple[int, int]:
        """Returns the first cell of a non-empty fragment, and the cell after its last. Tolerates damage that
        has swapped its keys."""
        first, last = sorted(self._rank[key] for key in key_range(entry, self._compare))
        return first, last + 1

    def text(self, bound: Bound) -> str:
        return key_text(bound, self._types)

    def text_at(self, rank: int) -> str:
        return self.text(self._bounds[rank])

    def ticks(self) -> tuple[Tick, ...]:
        """Returns labels centred on equal parts of the axis, so that none exceeds its ends."""
        count = min(_MAX_TICKS, len(self._bounds))
        ranks = [(2 * place + 1) * len(self._bounds) // (2 * count) for place in range(count)]
        return tuple(
            Tick(
                rank,
                tuple(
                    shortened(part, _TICK_CHARACTERS)
                    for part in key_parts(self._bounds[rank], self._types)
                ),
            )
            for rank in ranks
        )


class ReadCost(Struct, frozen=True):
    """The read amplification of a version."""

    sorted_runs: int
    """Sorted runs that a full scan merges."""
    worst_point_runs: int
    """Fragments that contain the worst key."""
    mean_point_runs: float
    """Average number of fragments that contain the key of a random row, if rows spread evenly over cells."""


def read_cost(starts: Ranks, ends: Ranks, rows: Ranks, sorted_runs: int) -> ReadCost:
    """Computes the read cost. starts, ends, rows: per non-empty fragment, shape (fragments,)."""
    if not len(starts):
        return ReadCost(0, 0, 0.0)
    cells = int(ends.max())
    depth = _summed(starts, ends, np.ones(len(starts)), cells)
    density = _summed(starts, ends, rows / (ends - starts), cells)
    mean = float((depth * density).sum() / density.sum())
    return ReadCost(sorted_runs, round(float(depth.max())), mean)


def _summed(
    starts: Ranks, ends: Ranks, heights: npt.NDArray[np.float64], cells: int
) -> npt.NDArray[np.float64]:
    """Sums the heights of all intervals per cell. Shape (cells,)."""
    steps = np.bincount(starts, heights, cells + 1) - np.bincount(ends, heights, cells + 1)
    return np.asarray(steps[:cells].cumsum())


def panel(snapshot: Snapshot, axis: KeyAxis) -> Panel:
    """Lays the fragments of a version out as bars."""
    entries = snapshot.fragments.all()
    by_level: dict[int, list[FragmentEntry]] = defaultdict(list)
    for entry in entries:
        by_level[entry.level].append(entry)
    placed = {
        level: [(*axis.interval(e), e) for e in by_level[level] if e.rows]
        for level in sorted(by_level)
    }
    lanes = {level: _in_lanes(found) for level, found in placed.items()}
    max_bars = max(
        1, MAX_BARS // max(1, sum(min(MAX_LANES, len(found)) for found in lanes.values()))
    )
    levels, bars = [], []
    for level, found in lanes.items():
        per_lane = -(-len(found) // MAX_LANES) or 1
        if per_lane == 1:
            drawn = [
                _bar(level, number, group, axis, snapshot.quarantine)
                for number, lane in enumerate(found)
                for group in _neighbours(lane, max_bars)
            ]
        else:
            drawn = _profile(level, placed[level], per_lane, axis, max_bars)
        count = max((bar.lane + 1 for bar in drawn), default=0)
        levels.append(_level_row(level, by_level[level], count, per_lane))
        bars += drawn
    return Panel(
        version=snapshot.version,
        committed_unix_ms=snapshot.committed_unix_ms,
        fragments=len(entries),
        levels=tuple(levels),
        bars=tuple(bars),
        sizes=_sizes(entries),
    )


_Placed = tuple[int, int, FragmentEntry]
"""Start, end and fragment of an interval."""
_Item = TypeVar("_Item")


def _in_lanes(placed: list[_Placed]) -> list[list[_Placed]]:
    """Returns the fewest lanes without overlaps, each ordered by start, then age."""
    lanes: list[list[_Placed]] = []
    free: list[tuple[int, int]] = []
    for item in sorted(placed, key=lambda item: (item[0], item[2].age)):
        if free and free[0][0] <= item[0]:
            _, number = heapq.heappop(free)
        else:
            number = len(lanes)
            lanes.append([])
        lanes[number].append(item)
        heapq.heappush(free, (item[1], number))
    return lanes


def _neighbours(lane: Sequence[_Item], max_groups: int) -> list[Sequence[_Item]]:
    """Groups a lane into at most `max_groups` groups of neighbours."""
    size = -(-len(lane) // max_groups) or 1
    return [lane[n : n + size] for n in range(0, len(lane), size)]


def _profile(
    level: int, placed: Sequence[_Placed], per_lane: int, axis: KeyAxis, max_bars: int
) -> list[Bar]:
    """Returns the bars of a depth profile: lane n, from 0, covers where more than n times `per_lane`
    fragments overlap."""
    starts, ends = np.array([item[:2] for item in placed], np.int64).T
    depth = _summed(starts, ends, np.ones(len(starts)), int(ends.max()))
    bars = []
    for lane in range(-(-round(float(depth.max())) // per_lane)):
        steps = np.diff((depth > lane * per_lane).astype(np.int8), prepend=0, append=0)
        intervals = list(zip(np.flatnonzero(steps > 0), np.flatnonzero(steps < 0), strict=True))
        for group in _neighbours(intervals, max_bars):
            start, end = int(group[0][0]), int(group[-1][1])
            at_most = round(float(depth[start:end].max()))
            bars.append(
                Bar(
                    level=level,
                    lane=lane,
                    start=start,
                    end=end,
                    fragments=at_most,
                    rows=0,
                    size_bytes=0,
                    first_key=axis.text_at(start),
                    last_key=axis.text_at(end - 1),
                    key="",
                    is_quarantined=False,
                )
            )
    return bars


def _bar(
    level: int,
    lane: int,
    placed: Sequence[_Placed],
    axis: KeyAxis,
    quarantine: Mapping[str, object],
) -> Bar:
    entries = [entry for _, _, entry in placed]
    last = max(placed, key=lambda item: item[1])[2]
    return Bar(
        level=level,
        lane=lane,
        start=min(start for start, _, _ in placed),
        end=max(end for _, end, _ in placed),
        fragments=len(placed),
        rows=sum(entry.live_rows for entry in entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        first_key=axis.text(entries[0].first_key),
        last_key=axis.text(last.last_key),
        key=entries[0].key,
        is_quarantined=any(entry.key in quarantine for entry in entries),
    )


def _level_row(
    level: int, entries: Sequence[FragmentEntry], lanes: int, fragments_per_lane: int
) -> LevelRow:
    return LevelRow(
        level=level,
        fragments=len(entries),
        sorted_runs=len({entry.sorted_run for entry in entries}),
        rows=sum(entry.live_rows for entry in entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        lanes=lanes,
        fragments_per_lane=fragments_per_lane,
    )


def _sizes(entries: Sequence[FragmentEntry]) -> tuple[SizeBin, ...]:
    counts = Counter((e.level, max(0, e.size_bytes.bit_length() - 1)) for e in entries)
    return tuple(SizeBin(level, 1 << power, n) for (level, power), n in sorted(counts.items()))
