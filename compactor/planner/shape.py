"""Derives from the log what a merge's memory plan needs to know of its inputs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from compactor.planner.tree import Item, sorted_runs
from compactor.resources.merge_plan import MergePlan, MergeShape, plan_merge
from compactor.settings.compaction import CompactionSettings
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from lsm_fragment.arrays.buffers import fixed_width_bytes
from lsm_fragment.arrays.types import storage_type

_OFFSET_BYTES: Final = 8
"""Bytes of a string beside its letters."""


def merge_shape(
    entries: Sequence[FragmentEntry], metadata: TableMetadata, max_rows_per_row_group: int
) -> MergeShape:
    """Returns the shape of a merge of these fragments. max_rows_per_row_group: of its outputs."""
    runs = sorted_runs([Item(entry, b"", b"") for entry in entries])
    raw_bytes: dict[str, int] = {}
    for entry in entries:
        for name, column in entry.columns.items():
            raw_bytes[name] = raw_bytes.get(name, 0) + column.raw
    rows = sum(entry.rows for entry in entries)
    keys = [column.column for column in metadata.sort]
    return MergeShape(
        inputs=len(entries),
        rows=rows,
        stored_bytes=sum(entry.size_bytes for entry in entries),
        peak_chunk_bytes=max((entry.peak_chunk_bytes for entry in entries), default=0),
        run_chunk_bytes=sum(run.peak_chunk_bytes for run in runs),
        heaviest_column_bytes=sum(run.column_bytes for run in runs),
        sort_columns=len(keys),
        key_row_bytes=sum(
            row_bytes(metadata.schema.field(name).type, raw_bytes.get(name, 0), rows)
            for name in keys
        ),
        key_group_bytes=key_group_bytes(entries, keys, max_rows_per_row_group),
        columns=len(raw_bytes),
        # Where rows are folded, the numbers of rows taken and written are kept.
        dropped_rows=sum(entry.deleted_rows for entry in entries)
        + (rows if metadata.rows.folds else 0),
        dropped_bytes=sum(entry.rows // 8 + 64 for entry in entries if entry.deletion),
        may_overshoot=any(
            name not in keys and _is_variable(metadata.schema.field(name).type)
            for name in raw_bytes
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
        merge_shape(entries, metadata, settings.max_rows_per_row_group),
        replace(memory, spool_limit_bytes=0) if are_local else memory,
        target_row_group_bytes=settings.row_group_bytes,
        target_fragment_bytes=settings.target_fragment_bytes,
        max_rows_per_row_group=settings.max_rows_per_row_group,
    )


def key_group_bytes(
    entries: Sequence[FragmentEntry], keys: Sequence[str], max_rows_per_row_group: int
) -> int:
    """Estimates the decoded bytes of the sort columns of a row group: of one that is full by rows, or of the
    input with the heaviest ones, if all row groups of an input were alike."""
    rows = sum(entry.rows for entry in entries)
    sizes = [_key_bytes(entry, keys) for entry in entries]
    mean = -(-sum(sizes) // max(1, rows))
    of_inputs = (
        -(-size // max(1, entry.row_groups)) for size, entry in zip(sizes, entries, strict=True)
    )
    return max(mean * min(rows, max_rows_per_row_group), *of_inputs, 0)


def _key_bytes(entry: FragmentEntry, keys: Sequence[str]) -> int:
    """Returns the decoded bytes of an entry's sort columns, with offsets of strings."""
    raw_bytes = sum(entry.columns[name].raw for name in keys if name in entry.columns)
    return raw_bytes + _OFFSET_BYTES * len(keys) * entry.rows


def row_bytes(dtype: pa.DataType, raw_bytes: int, rows: int) -> int:
    """Returns the mean decoded bytes of a value, given the raw bytes of its column in `rows` rows."""
    width = fixed_width_bytes(storage_type(dtype))
    return width if width is not None else -(-raw_bytes // max(1, rows)) + _OFFSET_BYTES


def _is_variable(dtype: pa.DataType) -> bool:
    dtype = storage_type(dtype)
    return fixed_width_bytes(dtype) is None and not pa.types.is_boolean(dtype)
