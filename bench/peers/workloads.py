"""The rows of workloads: generated, real log lines, or your own files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from bench.kinds import accounts, made_in_parts, requests, samples, trips
from bench.peers.contract import Measure
from bench.peers.parquet import write_source
from bench.real_logs import read_lines, real_log_rows
from bench.string_kinds import KINDS
from bench.whole_lines import lines
from bench.workload import SortOrder, make_batch, make_overlapping_inputs, sort_rows

_SEED: Final = 7
_STRETCHES: Final = 4
_YOUNG_DIVISOR: Final = 11
_TOUCHED_DIVISOR: Final = 10
_GROUPED: Final = ("service", "host", "timestamp")
_INTERLEAVED: Final = ("timestamp",)

Make = Callable[[int, int], Iterator[pa.Table]]
"""Makes the given number of rows, in the given number of tables, to be sorted afterwards."""


class Workload(Struct, frozen=True):
    """Sorted Parquet files, existing or to be made."""

    name: str
    sort: tuple[str, ...]
    """All ascending."""
    make: Make | None = None
    """None if the files exist."""
    files: tuple[Path, ...] = ()

    def sources(self, folder: Path) -> list[Path]:
        return list(self.files) or sorted((folder / "sources").glob("*.parquet"))


class Facts(Struct, frozen=True):
    """The size of a workload, and its columns for scans."""

    rows: int
    inputs: int
    columns: dict[str, list[str]]
    """By measure; measures without suitable columns are missing."""


def known_workloads(folder: Path | None) -> list[Workload]:
    """Returns the available workloads, hardest first.

    folder: real lines in `.log` files; without it there is no workload of real lines. Raises ValueError if it
    has none.
    """
    found = []
    if folder is not None:
        logs = read_lines(folder)
        found = [
            Workload("real-logs-grouped", _GROUPED, partial(_real, logs, True)),
            Workload("real-logs-interleaved", _INTERLEAVED, partial(_real, logs, False)),
        ]
    return [
        *found,
        Workload("lines", ("source", "time"), partial(made_in_parts, lines, _SEED)),
        Workload("requests", ("time",), partial(made_in_parts, requests, _SEED)),
        Workload("accounts", ("id",), partial(made_in_parts, accounts, _SEED)),
        Workload("trips", ("pickup",), partial(made_in_parts, trips, _SEED)),
        Workload("samples", ("metric", "host", "time"), partial(made_in_parts, samples, _SEED)),
        *(
            Workload(name, ("time",), partial(made_in_parts, make, _SEED))
            for name, make in KINDS.items()
        ),
        Workload("grouped", _GROUPED, _overlapping),
        Workload("interleaved", _INTERLEAVED, _overlapping),
        Workload("mostly-disjoint", _INTERLEAVED, _disjoint_runs),
    ]


def of_files(folder: Path, sort: Sequence[str]) -> Workload:
    """Returns a workload of all Parquet files in a folder. Raises ValueError if their schemas differ.

    sort: the sort columns of every file, ascending and without nulls.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ValueError(f"--files {folder}: there is no .parquet file")
    schemas = [pq.read_schema(path).remove_metadata() for path in files]
    for path, schema in zip(files, schemas, strict=True):
        if not schema.equals(schemas[0]):
            raise ValueError(f"--files: {path.name} has another schema than {files[0].name}")
    for name in sort:
        if name not in schemas[0].names:
            known = ", ".join(schemas[0].names)
            raise ValueError(f"--sort-by {name}: there is no such column; there are {known}")
    for path in files:
        for name, column in zip(sort, pq.read_table(path, columns=list(sort)).columns, strict=True):
            if column.null_count:
                raise ValueError(f"--sort-by {name}: {path.name} has nulls in it")
    return Workload(
        folder.resolve().name, tuple(sort), None, tuple(path.resolve() for path in files)
    )


def facts_of(workload: Workload, folder: Path) -> Facts:
    files = [pq.ParquetFile(path) for path in workload.sources(folder)]
    schema = files[0].schema_arrow
    strings = [
        f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)
    ]
    numbers = [f for f in schema if f.name not in workload.sort]
    integers = [f.name for f in numbers if pa.types.is_integer(f.type)]
    others = [f.name for f in numbers if pa.types.is_floating(f.type)]
    columns = {str(Measure.SCAN_ALL): schema.names}
    if not any(pa.types.is_nested(field.type) for field in schema):
        columns[Measure.INGEST_CSV] = schema.names
    if strings:
        columns[Measure.SCAN_STRING] = [max(strings, key=lambda name: _raw_bytes(files, name))]
    if len(found := [*integers, *others][:2]) == 2:
        columns[Measure.SCAN_NUMBERS] = found
    return Facts(sum(file.metadata.num_rows for file in files), len(files), columns)


def make_sources(
    workload: Workload, rows: int, inputs: int, folder: Path, on_file: Callable[[str], None]
) -> None:
    """Writes the files of a workload unless they exist."""
    complete = folder / "sources" / "complete"
    if workload.make is None or complete.exists():
        return
    order: SortOrder = [(name, "ascending") for name in workload.sort]
    for number, table in enumerate(workload.make(rows, inputs)):
        on_file(f"making input {number + 1} of {workload.name}")
        write_source(sort_rows(table, order), complete.parent / f"input-{number:03d}.parquet")
    complete.touch()


def _real(
    logs: dict[str, list[str]], has_disjoint_times: bool, rows: int, inputs: int
) -> Iterator[pa.Table]:
    return real_log_rows(logs, rows, inputs, has_disjoint_times=has_disjoint_times, seed=_SEED)


def _overlapping(rows: int, inputs: int) -> Iterator[pa.Table]:
    """Yields inputs of generated log rows. In grouped order, stretches of rows come from one input. In
    interleaved order, most rows come from another input than the row before."""
    return make_overlapping_inputs(rows, inputs, seed=_SEED)


def _disjoint_runs(rows: int, inputs: int) -> Iterator[pa.Table]:
    """Yields an old run, and a young one a tenth its size, which lies in four periods that hold a tenth of
    the old run's rows."""
    young_rows = rows // _YOUNG_DIVISOR
    parts = list(make_overlapping_inputs(rows - young_rows, inputs, seed=_SEED))
    old = sort_rows(pa.concat_tables(parts), [("timestamp", "ascending")])
    parts.clear()
    yield old
    rng = np.random.default_rng(_SEED)
    times = old["timestamp"].cast(pa.int64()).to_numpy()
    width = len(times) // _TOUCHED_DIVISOR // _STRETCHES
    starts = (np.arange(_STRETCHES) * 2 + 1) * len(times) // (2 * _STRETCHES)
    picked = np.concatenate([times[start : start + width] for start in starts])
    drawn = np.sort(rng.choice(picked, young_rows))
    young = make_batch(young_rows, seed=_SEED + 1)
    index = young.schema.get_field_index("timestamp")
    stamps = pa.array(drawn).cast(young.schema.field(index).type)
    yield young.set_column(index, young.schema.field(index), stamps)


def _raw_bytes(files: Sequence[pq.ParquetFile], name: str) -> int:
    """Returns the size of a column's values, counting dictionaries once per row group."""
    index = files[0].schema_arrow.get_field_index(name)
    return sum(
        file.metadata.row_group(group).column(index).total_uncompressed_size
        for file in files
        for group in range(file.num_row_groups)
    )
