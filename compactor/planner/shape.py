"""Derives from the log what a merge's memory plan needs to know of its inputs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from compactor.planner.tree import Item, SortedRun, sorted_runs
from compactor.resources.merge_plan import KeyGroups, MergePlan, MergeShape, plan_merge
from compactor.settings.compaction import CompactionSettings
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.buffers import fixed_width_bytes
from lsm_fragment.arrays.types import storage_type

_OFFSET_BYTES: Final = 8
"""Bytes of a string beside its letters."""


def merge_shape(
    entries: Sequence[FragmentEntry], metadata: TableMetadata, settings: CompactionSettings
) -> MergeShape:
    """Returns the shape of a merge of these fragments."""
    runs = sorted_runs([Item(entry, b"", b"") for entry in entries])
    rows = sum(run.rows for run in runs)
    names = {name for run in runs for name in run.raw_bytes}
    widths = key_widths(metadata)
    return MergeShape(
        inputs=len(entries),
        rows=rows,
        stored_bytes=sum(entry.size_bytes for entry in entries),
        peak_chunk_bytes=max((entry.peak_chunk_bytes for entry in entries), default=0),
        run_chunk_bytes=sum(run.peak_chunk_bytes for run in runs),
        heaviest_column_bytes=sum(run.column_bytes for run in runs),
        sort_columns=len(widths),
        key_row_bytes=sum(_row_bytes(runs, widths)),
        key_groups=key_groups(
            runs, widths, settings.row_group_bytes, settings.max_rows_per_row_group
        ),
        columns=len(names),
        # Where rows are folded, the numbers of rows taken and written are kept.
        dropped_rows=sum(entry.deleted_rows for entry in entries)
        + (rows if metadata.rows.folds else 0),
        dropped_bytes=sum(run.deleted_bytes for run in runs),
        may_overshoot=any(
            name not in widths and _is_variable(metadata.schema.field(name).type)
            for name in names
            if name in metadata.schema.names
        ),
    )


def memory_plan(
    entries: Sequence[FragmentEntry],
    metadata: TableMetadata,
    settings: CompactionSettings,
    *,
    are_local: bool = False,
) -> MergePlan:
    """Returns how a merge of these fragments uses memory: its task follows this, and `--explain` shows it.

    are_local: whether the fragments are on local disk already, where a second pass may read them again.
    """
    memory = settings.memory()
    return plan_merge(
        merge_shape(entries, metadata, settings),
        replace(memory, spool_limit_bytes=0) if are_local else memory,
        target_row_group_bytes=settings.row_group_bytes,
        target_fragment_bytes=settings.target_fragment_bytes,
        max_rows_per_row_group=settings.max_rows_per_row_group,
    )


def key_widths(metadata: TableMetadata) -> dict[str, int | None]:
    """Returns the bytes of a value of each sort column; None where values differ."""
    schema = metadata.schema
    names = (column.column for column in metadata.sort)
    return {name: fixed_width_bytes(storage_type(schema.field(name).type)) for name in names}


def key_groups(
    runs: Sequence[SortedRun],
    widths: Mapping[str, int | None],
    target_row_group_bytes: int,
    max_rows_per_row_group: int,
) -> KeyGroups:
    """Estimates the row groups with the most bytes of sort columns, as if the rows of a run were alike.

    widths: from `key_widths`. A row group that is written ends where any column has reached its target, and
    sort columns are weighed exactly.
    """
    if not runs:
        return KeyGroups(0, 0, 0)
    of_row = _row_bytes(runs, widths)
    heaviest = max(1, *of_row, min(run.heaviest_row_bytes for run in runs))
    most_rows = min(max_rows_per_row_group, target_row_group_bytes // heaviest + 1)
    written_rows = min(sum(run.rows for run in runs), most_rows)
    row = sum(of_row)
    written = max(row, min(len(widths) * target_row_group_bytes, row * written_rows))
    read = max(
        sum(_key_bytes(run, *column) for column in widths.items())
        * run.group_rows
        // max(1, run.rows)
        for run in runs
    )
    return KeyGroups(read, written, written_rows)


def _row_bytes(runs: Sequence[SortedRun], widths: Mapping[str, int | None]) -> list[int]:
    """Returns the mean decoded bytes of a value of each sort column."""
    rows = max(1, sum(run.rows for run in runs))
    return [-(-sum(_key_bytes(run, *column) for run in runs) // rows) for column in widths.items()]


def _key_bytes(run: SortedRun, name: str, width: int | None) -> int:
    return decoded_bytes(width, run.raw_bytes.get(name, 0), run.rows)


def decoded_bytes(width: int | None, raw_bytes: int, rows: int) -> int:
    """Returns the decoded bytes of a column. width: of a value; None where values differ."""
    return raw_bytes + _OFFSET_BYTES * rows if width is None else width * rows


def _is_variable(dtype: pa.DataType) -> bool:
    dtype = storage_type(dtype)
    return fixed_width_bytes(dtype) is None and not pa.types.is_boolean(dtype)
