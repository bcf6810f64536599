"""The rows to compact: one set of log rows, sorted in two ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.workload import make_overlapping_inputs, sort_rows

_SEED: Final = 7
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True)
class Workload:
    name: str
    sort: tuple[str, ...]
    """All ascending."""


WORKLOADS: Final = (
    Workload("grouped", ("service", "host", "timestamp")),
    Workload("interleaved", ("timestamp",)),
)
"""Grouped: rows of one host come in stretches from one input. Interleaved: about every row from another."""


def choose_workloads(names: Sequence[str]) -> list[Workload]:
    """Raises ValueError for a name that is none."""
    known = {workload.name: workload for workload in WORKLOADS}
    for name in names:
        if name not in known:
            raise ValueError(f"no workload {name!r}; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def arrow_files(folder: Path) -> list[Path]:
    return sorted((folder / "arrow").glob("*.arrow"))


def make_arrow_files(
    workloads: Sequence[Workload],
    rows: int,
    inputs: int,
    folder_of: Callable[[Workload], Path],
    on_file: Callable[[str], None],
) -> None:
    """Sorted Arrow files of every workload, of the very same rows. What is there already stays."""
    todo = [w for w in workloads if len(arrow_files(folder_of(w))) != inputs]
    if not todo:
        return
    for number, table in enumerate(make_overlapping_inputs(rows, inputs, seed=_SEED)):
        on_file(f"making input {number + 1} of {inputs}")
        for workload in todo:
            path = folder_of(workload) / "arrow" / f"input-{number:03d}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            ordered = sort_rows(table, [(name, "ascending") for name in workload.sort])
            unfinished = path.with_suffix(".unfinished")
            with (
                pa.OSFile(str(unfinished), "wb") as sink,
                pa.ipc.new_file(sink, ordered.schema) as writer,
            ):
                writer.write_table(ordered, max_chunksize=_BATCH_ROWS)
            unfinished.rename(path)
