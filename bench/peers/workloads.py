"""The rows to compact: one set of log rows, sorted in two ways, and a young run that touches a tenth of an
old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bench.workload import make_batch, make_overlapping_inputs, sort_rows

_SEED: Final = 7
_BATCH_ROWS: Final = 65_536
_COMPLETE: Final = "complete"


@dataclass(frozen=True)
class Workload:
    name: str
    sort: tuple[str, ...]
    """All ascending."""
    is_disjoint: bool = False
    """Whether it is two runs, one of them small, in few places."""


WORKLOADS: Final = (
    Workload("grouped", ("service", "host", "timestamp")),
    Workload("interleaved", ("timestamp",)),
    Workload("mostly-disjoint", ("timestamp",), is_disjoint=True),
)
"""Grouped: rows of one host come in stretches from one input. Interleaved: about every row from another.
Mostly disjoint: an old run, and a young one of a tenth of its rows, all in four stretches of time that hold a
tenth of the old run's rows."""

_STRETCHES: Final = 4
_YOUNG_SHARE: Final = 11
_TOUCHED_SHARE: Final = 10


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
    """Writes sorted Arrow files of every workload, of the very same rows. Existing files stay."""
    todo = [w for w in workloads if not _is_complete(folder_of(w))]
    sorts = {w: folder_of(w) / "arrow" for w in todo if not w.is_disjoint}
    if sorts:
        for number, table in enumerate(make_overlapping_inputs(rows, inputs, seed=_SEED)):
            on_file(f"making input {number + 1} of {inputs}")
            for workload, folder in sorts.items():
                _write(_sorted(table, workload), folder / f"input-{number:03d}.arrow")
    for workload in todo:
        folder = folder_of(workload) / "arrow"
        if workload.is_disjoint:
            on_file("making an old and a young run")
            for number, table in enumerate(_disjoint_runs(rows, inputs, workload)):
                _write(table, folder / f"input-{number:03d}.arrow")
        (folder / _COMPLETE).touch()


def _disjoint_runs(rows: int, inputs: int, workload: Workload) -> Iterator[pa.Table]:
    young_rows = rows // _YOUNG_SHARE
    parts = list(make_overlapping_inputs(rows - young_rows, inputs, seed=_SEED))
    old = _sorted(pa.concat_tables(parts), workload)
    parts.clear()
    yield old
    rng = np.random.default_rng(_SEED)
    times = old["timestamp"].cast(pa.int64()).to_numpy()
    width = len(times) // _TOUCHED_SHARE // _STRETCHES
    starts = (np.arange(_STRETCHES) * 2 + 1) * len(times) // (2 * _STRETCHES)
    picked = np.concatenate([times[start : start + width] for start in starts])
    drawn = np.sort(rng.choice(picked, young_rows))
    young = make_batch(young_rows, seed=_SEED + 1)
    index = young.schema.get_field_index("timestamp")
    stamps = pa.array(drawn).cast(young.schema.field(index).type)
    yield young.set_column(index, young.schema.field(index), stamps)


def _sorted(table: pa.Table, workload: Workload) -> pa.Table:
    return sort_rows(table, [(name, "ascending") for name in workload.sort])


def _is_complete(folder: Path) -> bool:
    return (folder / "arrow" / _COMPLETE).exists()


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS)
