"""Aggregates rows per group, or per time window and group.

If the input is sorted by the group columns, each group is emitted as it ends; otherwise all are emitted at
the end, sorted by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from compactor.errors import ConfigError
from compactor.pipelines.aggregating import Grouper, parse_measures
from compactor.pipelines.binding import checked_order
from compactor.pipelines.classify import is_sorted_by
from compactor.pipelines.config import Aggregate, TimeWindow
from compactor.pipelines.provenance import HIDDEN_NAMES, Batches
from compactor.pipelines.sorting import Sorter
from compactor.pipelines.time_windows import END, START, ColumnWindows, window_sizes
from compactor.pipelines.work import RunContext
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from lsm_fragment.arrays.batches import one_batch
from lsm_fragment.keys.sort_schema import SortColumn
from lsm_fragment.names import names_text
from lsm_fragment.value_errors import OF_VALUES

_WINDOW: Final = "$window"
"""Column of the row's window start, beside the input's columns."""
_LAST: Final = "$last"


def bound(work: RunContext, name: str, node: Aggregate, given: pa.Schema) -> pa.Schema:
    unused = MemoryBudget(work.stage_plan())
    windows = None if node.window is None else _windows(name, node.window, given)
    grouper = _grouper(name, node, _with_window(given, windows), unused, LocalDisk())
    return _shown(grouper.schema.empty_table(), windows).schema


def _windows(name: str, window: TimeWindow, given: pa.Schema) -> ColumnWindows:
    for ours in (_WINDOW, _LAST):
        if ours in given.names:
            raise ConfigError(
                f"node {name!r}: the column name {ours!r} is reserved: rename the column in a transform"
            )
    sizes = window_sizes(window.size, window.slide, window.origin)
    return ColumnWindows(window.column, sizes, given, f"node {name!r}")


def _with_window(schema: pa.Schema, windows: ColumnWindows | None) -> pa.Schema:
    return schema if windows is None else schema.append(pa.field(_WINDOW, windows.type))


def _shown(groups: pa.Table, windows: ColumnWindows | None) -> pa.Table:
    """Returns the groups with the columns that users see: window bounds instead of the start."""
    if windows is None:
        return groups
    starts = groups.column(_WINDOW)
    others = groups.drop_columns([_WINDOW])
    return others.add_column(0, START, starts).add_column(1, END, windows.ends(starts))


def _grouper(
    name: str,
    node: Aggregate,
    schema: pa.Schema,
    budget: MemoryBudget,
    disk: LocalDisk,
    *,
    keeps_order: bool = False,
) -> Grouper:
    what = f"node {name!r}"
    for key in node.group_by:
        if key not in schema.names:
            there = names_text(schema.names)
            raise ConfigError(f"{what}: no column {key!r} to group by; there are: {there}")
    measures = parse_measures(node.columns, schema, what)
    keys = node.group_by if node.window is None else (_WINDOW, *node.group_by)
    try:
        return Grouper(keys, measures, schema, budget, name, disk, keeps_order=keeps_order)
    except OF_VALUES as error:
        raise ConfigError(f"{what}: {str(error).splitlines()[0]}") from None


def rows(work: RunContext, name: str, node: Aggregate) -> Batches:
    if node.window is None and is_sorted_by(node.input, node.group_by, work.nodes):
        return _of_sorted(work, name, node)
    return _hashed(work, name, node)


def _of_sorted(work: RunContext, name: str, node: Aggregate) -> Batches:
    """Yields groups as they end."""
    schema = work.schemas[node.input]
    row = 0
    with closing(_grouper(name, node, schema, work.budget, work.disk, keeps_order=True)) as grouper:

        def given(table: pa.Table) -> Batches:
            nonlocal row
            batch = one_batch(table)
            if batch.num_rows:
                yield work.made(name, batch, row)
                row += batch.num_rows

        for batch in work.rows(node.input):
            grouper.append(batch.select(schema.names))
            yield from given(grouper.finished())
        for table in grouper.results():
            yield from given(table)


def _hashed(work: RunContext, name: str, node: Aggregate) -> Batches:
    given = needed_columns(node, work.schemas[node.input], f"node {name!r}")
    windows = None if node.window is None else _windows(name, node.window, given)
    schema = _with_window(given, windows)
    grouper = _grouper(name, node, schema, work.budget, work.disk)
    result = work.schemas[name]
    # Sort the groups, so that the result does not depend on spills.
    keys = node.group_by if windows is None else (START, *node.group_by)
    sort = checked_order(tuple(map(SortColumn, keys)), result, f"node {name!r}")
    with (
        closing(grouper),
        closing(Sorter(result, sort, work.batch_rows, work.budget, name, work.disk)) as sorter,
    ):

        def spill(size: int) -> int:
            # Spill results first: without memory for them, groups would be partitioned further.
            return sorter.spill(size) or grouper.spill(size) or work.spill_buffers(name, size)

        work.budget.spill_by(name, spill)
        batches = work.rows(node.input)
        if windows is not None:
            batches = _in_windows(work, name, windows, schema.names[:-1], batches)
        for batch in batches:
            grouper.append(batch.select(schema.names))
        for table in grouper.results():
            for batch in _shown(table, windows).to_batches(max_chunksize=work.batch_rows):
                sorter.append(batch)
        work.report.spills += grouper.spills + sorter.spills
        row = 0
        for batch in sorter.sorted():
            yield work.made(name, batch, row)
            row += batch.num_rows


def needed_columns(node: Aggregate, given: pa.Schema, what: str) -> pa.Schema:
    """Returns the input columns that the aggregation reads."""
    measures = parse_measures(node.columns, given, what)
    names = {*node.group_by, *(m.column for m in measures)}
    if node.window is not None:
        names.add(node.window.column)
    return pa.schema([field for field in given if field.name in names])


def _in_windows(
    work: RunContext, name: str, windows: ColumnWindows, needed: Sequence[str], batches: Batches
) -> Batches:
    """Yields rows once per window that contains them; counts rows without a time, which are dropped."""

    def with_last(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column(_LAST, windows.last_starts(batch))

    missing = work.report.records_without_time
    missing[name] = 0
    for batch in batches:
        # Rows are copied per window, so drop unused columns first.
        hidden = [column for column in batch.schema.names if column in HIDDEN_NAMES]
        batch = batch.select([*needed, *hidden])
        for sound in work.dead_letters.made(with_last, batch, name):
            last = sound.column(_LAST)
            missing[name] += last.null_count
            yield from windows.with_windows(sound.drop_columns([_LAST]), last, _WINDOW)
