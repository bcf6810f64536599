"""The shape of an LSM tree: runs of level 0 and bytes by level, without its fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compactor.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The figures of one time window's tree on which debt depends."""

    level0_runs: int
    level_bytes: Mapping[int, int]


def shapes(snapshot: Snapshot) -> list[TreeShape]:
    """Returns the shapes of all windows, by sums over columns: cheap enough for writers of large tables."""
    table = snapshot.fragments.table()
    # Arrow waits for its threads for good where they cannot start.
    # On level 0, fragments of one sequence are one run; on deeper levels runs are not counted.
    runs = ["window", "level", "sequence_version", "sequence_position"]
    sums = (
        table.group_by(runs, use_threads=False)
        .aggregate([("size_bytes", "sum")])
        .group_by(["window", "level"], use_threads=False)
        .aggregate([("size_bytes_sum", "sum"), ("size_bytes_sum", "count")])
    )
    windows: dict[int | None, dict[int, dict[str, int]]] = {}
    for row in sums.to_pylist():
        windows.setdefault(row["window"], {})[row["level"]] = row
    return [
        TreeShape(
            levels[0]["size_bytes_sum_count"] if 0 in levels else 0,
            {level: row["size_bytes_sum_sum"] for level, row in levels.items()},
        )
        for levels in windows.values()
    ]
