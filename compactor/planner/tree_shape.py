"""The shape of an LSM tree: runs of level 0 and bytes by level, without its fragments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from compactor.table.numbers import MAX_LEVEL
from compactor.table.snapshot import Snapshot

_COLUMNS: Final = ("window", "level", "size_bytes", "sequence_version", "sequence_position")


class TreeShape(Struct, frozen=True):
    """The figures of one time window's tree on which debt depends."""

    level0_runs: int
    level_bytes: Mapping[int, int]


def shapes(snapshot: Snapshot) -> list[TreeShape]:
    """Returns the shapes of all windows, by sums over columns: cheap enough for writers of large tables."""
    table = snapshot.fragments.table()
    window, level, size, version, position = (table[name].to_numpy() for name in _COLUMNS)
    # Fragments without a window are NaN in this column, which counts as one value.
    windows, place = np.unique(window, return_inverse=True)
    sums = np.zeros((len(windows), MAX_LEVEL + 1), np.int64)
    np.add.at(sums, (place, level), size)
    # On level 0, fragments of one sequence are one run; on deeper levels runs are not counted.
    fresh = level == 0
    runs = set(zip(*(part[fresh].tolist() for part in (place, version, position)), strict=True))
    counts = Counter(run[0] for run in runs)
    return [
        TreeShape(counts[at], {int(deep): int(row[deep]) for deep in row.nonzero()[0]})
        for at, row in enumerate(sums)
    ]
