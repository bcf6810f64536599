"""Simulated fragments, as metadata only: those of a flush, and merge outputs.

Keys are integers, and a fragment's bytes spread evenly over its key range.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.planner.spec import CompactionSpec
from compactor.settings.compaction import CompactionSettings
from compactor.simulate.settings import Locality, Spread
from compactor.table.entry import FragmentEntry
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator
from lsm_fragment.keys.sort_schema import SortColumn

_BYTES_PER_ROW: Final = 40
_FLUSH_JITTER: Final = 0.1
_MIN_CUT_DIVISOR: Final = 4
"""Cut an output at a cut key only once it has reached 1/4 of its target size, as the real merge does."""


class IntegerKeys(KeyComparator):
    """A comparator for single non-negative integers, faster than the general one."""

    def __init__(self) -> None:
        super().__init__(pa.schema([pa.field("key", pa.int64())]), (SortColumn("key"),))

    def key(self, key: Bound) -> ComparableKey:
        number: int = key[0]
        return number.to_bytes(8, "big")

    def upper(self, bound: Bound) -> ComparableKey:
        return self.key(bound)


def fragment(
    name: str,
    size_bytes: int,
    keys: tuple[int, int],
    *,
    level: int,
    run: str,
    sequence: tuple[int, int],
    window: int | None,
    peak_chunk_bytes: int,
) -> FragmentEntry:
    return FragmentEntry(
        key=name,
        level=level,
        run=run,
        sequence=sequence,
        rows=max(1, size_bytes // _BYTES_PER_ROW),
        size_bytes=size_bytes,
        row_hash=0,
        first_key=keys[:1],
        last_key=keys[1:],
        row_groups=1,
        peak_chunk_bytes=min(peak_chunk_bytes, size_bytes),
        peak_row_bytes=_BYTES_PER_ROW,
        columns={},
        window=window,
    )


class Flushes:
    """Generates flush intervals and key ranges."""

    def __init__(
        self, locality: Locality, key_space: int, mean_seconds: float, rng: random.Random
    ) -> None:
        self._locality = locality
        self._key_space = key_space
        self._mean_seconds = mean_seconds
        self._rng = rng
        self._count = 0

    def next_seconds(self) -> float:
        """Returns the seconds to the next flush, with jitter: equal sizes would sit on size class
        boundaries."""
        return self._mean_seconds * self._rng.uniform(1 - _FLUSH_JITTER, 1 + _FLUSH_JITTER)

    def next_keys(self) -> tuple[int, int]:
        """Returns the first and last key of the next flush."""
        self._count += 1
        match self._locality.spread:
            case Spread.WHOLE:
                return 0, self._key_space - 1
            case Spread.RANDOM:
                width = max(1, round(self._key_space * self._locality.share))
                first = self._rng.randint(0, self._key_space - width)
                return first, first + width - 1
            case Spread.APPEND:
                width = max(1, self._key_space >> 20)
                return (self._count - 1) * width, self._count * width - 1


def merged(spec: CompactionSpec, settings: CompactionSettings, *, run: str) -> list[FragmentEntry]:
    """Returns the outputs of the real merge: disjoint, about the target size, cut where `spec` says."""
    sequence = min(entry.sequence for entry in spec.inputs)
    total = spec.size_bytes
    bytes_each = total / max(1, round(total / settings.target_fragment_bytes))
    profile = _Profile(spec.inputs)
    return [
        fragment(
            f"{run}-{number:05d}",
            size_bytes,
            keys,
            level=spec.output_level,
            run=run,
            sequence=sequence,
            window=spec.window,
            peak_chunk_bytes=settings.row_group_bytes,
        )
        for number, (size_bytes, keys) in enumerate(
            profile.pieces(bytes_each, [bound[0] for bound in spec.cut_keys])
        )
    ]


class _Profile:
    """Bytes below each key, a piecewise linear function: the sum over all inputs."""

    def __init__(self, inputs: Sequence[FragmentEntry]) -> None:
        firsts = np.array([entry.first_key[0] for entry in inputs], dtype=np.int64)
        ends = np.array([entry.last_key[0] for entry in inputs], dtype=np.int64) + 1
        sizes = np.array([entry.size_bytes for entry in inputs], dtype=np.float64)
        self._total = sum(entry.size_bytes for entry in inputs)
        # Densities change at edges. Count open ranges as integers, so that gaps are exactly zero.
        self._edges, where = np.unique(np.concatenate((firsts, ends)), return_inverse=True)
        steps = np.zeros(len(self._edges))
        np.add.at(steps, where, np.concatenate((sizes / (ends - firsts), -sizes / (ends - firsts))))
        opened = np.zeros(len(self._edges), dtype=np.int64)
        np.add.at(opened, where, np.repeat([1, -1], len(inputs)))
        self._is_filled = np.cumsum(opened)[:-1] > 0
        density = np.where(self._is_filled, np.cumsum(steps)[:-1], 0.0)
        self._before = np.concatenate(([0.0], np.cumsum(density * np.diff(self._edges))))

    def pieces(
        self, bytes_each: float, cut_keys: Sequence[int]
    ) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yields sizes and inclusive key ranges. Sizes add up exactly to those of the inputs."""
        cuts = np.array(cut_keys, dtype=np.int64)
        cut_bytes = np.interp(cuts, self._edges, self._before)
        start, end = int(self._edges[0]), int(self._edges[-1])
        given = 0
        while start < end:
            done = self._byte_at(start)
            stop = self._key_at(done + bytes_each)
            wanted = int(np.searchsorted(cut_bytes, done + bytes_each / _MIN_CUT_DIVISOR))
            if wanted < len(cuts) and start < cuts[wanted] < stop:
                stop = int(cuts[wanted])
            stop = max(stop, start + 1)
            size = (self._total if stop >= end else round(self._byte_at(stop))) - given
            given += size
            yield size, (start, self._last_filled(min(stop, end)))
            start = self._first_filled(stop)

    def _byte_at(self, key: int) -> float:
        """Returns the bytes below `key`."""
        return float(np.interp(key, self._edges, self._before))

    def _key_at(self, byte: float) -> int:
        """Returns the least key with `byte` bytes below it."""
        if byte >= self._before[-1] * (1 - 1e-9):
            return int(self._edges[-1])
        return int(np.ceil(np.interp(byte, self._before, self._edges)))

    def _last_filled(self, end: int) -> int:
        index = int(np.searchsorted(self._edges, end)) - 1
        if self._is_filled[index]:
            return end - 1
        while not self._is_filled[index]:
            index -= 1
        return int(self._edges[index + 1]) - 1

    def _first_filled(self, key: int) -> int:
        index = int(np.searchsorted(self._edges, key, side="right")) - 1
        if index >= len(self._is_filled) or self._is_filled[index]:
            return key
        while not self._is_filled[index]:
            index += 1
        return int(self._edges[index])
