"""Aggregates rows per group, or per time window and group.

The groups of sorted rows come in the order of the rows, others in the order of their keys.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from compactor.errors import ConfigError
from compactor.pipelines.aggregating import Grouping, calls_of
from compactor.pipelines.classify import is_sorted_by
from compactor.pipelines.config import Aggregate, TimeWindow
from compactor.pipelines.provenance import Batches
from compactor.pipelines.time_windows import END, START, ColumnWindows, window_sizes
from compactor.pipelines.work import RunContext
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import keep_rows, no_rows

_WINDOW: Final = "$window"
"""Column of the row's window start, beside the input's columns."""
_LAST: Final = "$last"


def bound(work: RunContext, name: str, node: Aggregate, given: pa.Schema) -> pa.Schema:
    windows = None if node.window is None else _windows(name, node.window, given)
    grouping = _grouping(work, name, node, _with_window(given, windows))
    return _shown(no_rows(grouping.schema), windows).schema


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


def _shown(groups: pa.RecordBatch, windows: ColumnWindows | None) -> pa.RecordBatch:
    """Returns the groups with the columns that users see: window bounds instead of the start."""
    if windows is None:
        return groups
    starts = groups.column(_WINDOW)
    others = groups.drop_columns([_WINDOW])
    return others.add_column(0, START, starts).add_column(1, END, windows.ends(starts))


def _grouping(work: RunContext, name: str, node: Aggregate, schema: pa.Schema) -> Grouping:
    keys = node.group_by if node.window is None else (_WINDOW, *node.group_by)
    keeps_order = node.window is None and is_sorted_by(node.input, node.group_by, work.nodes)
    return Grouping(keys, node.columns, schema, f"node {name!r}", keeps_order=keeps_order)


def rows(work: RunContext, name: str, node: Aggregate) -> Batches:
    given = needed_columns(node, work.schemas[node.input])
    windows = None if node.window is None else _windows(name, node.window, given)
    grouping = _grouping(work, name, node, _with_window(given, windows))
    batches = (
        _with_arguments(work, name, grouping, work.rows(node.input))
        if windows is None
        else _in_windows(work, name, windows, grouping, work.rows(node.input))
    )
    sorts = [(grouping.unordered_schema, grouping.order)]
    sorts += [(values.schema, values.order) for values in grouping.values]
    row = 0
    with work.sorters(name, sorts) as [sorter, *sorters], Reservation(work.budget, name) as memory:
        batches = grouping.put_values(batches, sorters)
        for found in grouping.groups(work.database, name, batches, work.batch_size):
            sorter.append(found)
        values = [each.sorted() for each in sorters]
        for done in grouping.finished(sorter.sorted(), values, memory, work.batch_size.bytes):
            yield work.made(name, _shown(done, windows), row)
            row += done.num_rows


def needed_columns(node: Aggregate, given: pa.Schema) -> pa.Schema:
    """Returns the input columns that the aggregation reads."""
    calls = calls_of(node.columns, given, "the aggregate")
    names = {*node.group_by, *(column for call in calls for column in call.uses)}
    if node.window is not None:
        names.add(node.window.column)
    return pa.schema([field for field in given if field.name in names])


def _with_arguments(work: RunContext, name: str, grouping: Grouping, batches: Batches) -> Batches:
    for batch in batches:
        yield from work.dead_letters.made(grouping.with_arguments, batch, name)


def _in_windows(
    work: RunContext, name: str, windows: ColumnWindows, grouping: Grouping, batches: Batches
) -> Batches:
    """Yields rows once per window that contains them; counts rows without a time, which are dropped."""

    def with_last(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column(_LAST, windows.last_starts(batch))

    missing = work.report.records_without_time
    missing[name] = 0
    for batch in batches:
        for sound in work.dead_letters.made(with_last, batch, name):
            is_timed = sound.column(_LAST).is_valid()
            missing[name] += sound.column(_LAST).null_count
            for timed in work.dead_letters.made(
                lambda rows: grouping.with_arguments(rows, windows.column, _LAST),
                keep_rows(sound, is_timed),
                name,
            ):
                rows, last = timed.drop_columns([_LAST]), timed.column(_LAST)
                yield from windows.with_windows(rows, last, _WINDOW)
