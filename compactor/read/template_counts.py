"""Counts the rows of each template of a string column, as log tools show patterns.

Columns stored as templates are counted by their codes; other strings are split into templates first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import UsageError
from compactor.predicate.tree import Predicate
from compactor.read.fragment_columns import Column, rows_of
from compactor.read.limits import AHEAD_BYTES
from compactor.read.pruning import unless_ruled_out
from compactor.read.read_reports import ScanReport, TemplatesReport
from compactor.read.row_group_reader import RowGroup, RowGroupReader
from compactor.read.scan import scan
from compactor.read.steps import Step, in_order, thread_pool_of
from compactor.read.template_tally import EXAMPLE_CHARACTERS, TemplateTally
from compactor.read.templated_column import TemplatedColumn
from compactor.read.wanted import rule_of_readers, scan_schema, stored_schema, wanted_rows
from compactor.stores.base import Store
from compactor.table.damage import damage_explained
from compactor.table.snapshot import Snapshot
from lsm_fragment import compute as pc
from lsm_fragment.arrays.dividing import split, split_into_few
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.templated import codes_of, templates_of
from lsm_fragment.arrays.types import is_string, storage_type
from lsm_fragment.threads import ThreadPool


class _Found(NamedTuple):
    """Template counts of some rows."""

    counts: dict[str, tuple[int, str]]
    """Number of rows and one example text by template."""
    rows: int
    nulls: int


def count_templates(
    store: Store,
    snapshot: Snapshot,
    column: str,
    where: Predicate | None,
    *,
    threads: int,
    on_progress: Callable[[int], None],
) -> TemplatesReport:
    """Counts the templates of a column.

    column: its shown name. where: a condition on stored columns; None for all rows. on_progress: called with
    the number of rows read so far. Raises `UsageError` for a column that is missing or has no strings, and
    what `compactor.read.scan.scan` raises.
    """
    schema = scan_schema(snapshot.table, [column])
    if not is_string(storage_type(schema.field(0).type)):
        raise UsageError(
            f"column {column!r} is {schema.field(0).type}; only strings have templates"
        )
    total, nulls, counts = 0, 0, TemplateTally()
    found_parts = (
        _stored(store, snapshot, stored_schema(snapshot.table, schema).names[0], where, threads)
        if rule_of_readers(snapshot.table) is None
        else _merged(store, snapshot, column, where, threads)
    )
    for found in found_parts:
        total += found.rows
        nulls += found.nulls
        counts.add(found.counts)
        on_progress(total + nulls)
    return TemplatesReport(
        column=column,
        version=snapshot.version,
        rows=total,
        nulls=nulls,
        other_rows=counts.other_rows,
        templates=counts.sorted(total),
    )


def _stored(
    store: Store, snapshot: Snapshot, name: str, where: Predicate | None, threads: int
) -> Iterator[_Found]:
    """Counts row group by row group, without merging."""
    table, report = snapshot.table, ScanReport()
    wanted = wanted_rows(table, pa.schema([]), where, report)

    def steps() -> Iterator[Step[_Found]]:
        for entry in snapshot.by_age():
            skips = unless_ruled_out(store, entry, table, wanted.where)
            if skips is None:
                continue
            reader = RowGroupReader(store, table, entry, wanted.where, skips, report)
            for group in reader.wanted_groups(0, len(reader.row_groups)):
                size = reader.held_bytes(group, [name])
                yield Step(partial(_of_group, reader, group, name), size)

    with damage_explained(), thread_pool_of(threads) as pool:
        yield from in_order(steps(), pool, AHEAD_BYTES)


def _of_group(
    reader: RowGroupReader, group: RowGroup, name: str, pool: ThreadPool
) -> Iterator[_Found]:
    found = reader.find(group, [name], pool)
    return iter(()) if found is None else iter([_of_column(found.columns[name], found.keep)])


def _merged(
    store: Store, snapshot: Snapshot, column: str, where: Predicate | None, threads: int
) -> Iterator[_Found]:
    """Counts merged rows."""
    for batch in scan(store, snapshot, [column], where, threads=threads):
        yield _of_column(to_storage(batch.column(0)), None)


def _of_column(column: Column, keep: pa.BooleanArray | None) -> _Found:
    if isinstance(column, TemplatedColumn):
        return _of_codes(column.templates, column.codes, keep, column.texts)
    array = rows_of(column, keep)
    if array.null_count == len(array):
        return _Found({}, 0, len(array))
    weights = None
    nulls = array.null_count
    if isinstance(array, pa.DictionaryArray):
        codes = array.indices.drop_null().to_numpy().astype(np.int64)
        weights = np.bincount(codes, minlength=len(array.dictionary))
        array = array.dictionary
    divided = split_into_few(array) if weights is None else split(array, len(array))
    if divided is None:
        raise UsageError("strings of more than 2 GiB in one row group cannot be divided")
    codes = pa.array(codes_of(divided), mask=np.asarray(divided.is_null()))
    found = _of_codes(templates_of(divided), codes, None, array.filter, weights)
    return _Found(found.counts, found.rows, nulls)


def _of_codes(
    templates: pa.Array,
    codes: pa.Array,
    keep: pa.BooleanArray | None,
    texts: Callable[[pa.Array], pa.Array],
    weights: npt.NDArray[np.int64] | None = None,
) -> _Found:
    """Counts templates by codes. texts: returns the strings of given rows. weights: the count of each row."""
    is_counted = codes.is_valid() if keep is None else pc.and_(codes.is_valid(), keep)
    rows = np.flatnonzero(is_counted.to_numpy(zero_copy_only=False))
    if weights is not None:
        rows = rows[weights[rows] > 0]
    used, first, inverse = np.unique(
        codes.take(pa.array(rows)).to_numpy(), return_index=True, return_inverse=True
    )
    counted = np.bincount(inverse, None if weights is None else weights[rows], len(used))
    chosen = np.zeros(len(codes), dtype=np.bool_)
    chosen[rows[first]] = True
    in_order_of_rows = np.argsort(first)
    examples = texts(pa.array(chosen)).to_pylist() if len(used) else []
    names = templates.take(pa.array(used[in_order_of_rows])).to_pylist()
    counts = counted[in_order_of_rows].astype(np.int64).tolist()
    total = len(codes) if keep is None else keep.true_count
    return _Found(
        {
            name: (count, example[:EXAMPLE_CHARACTERS])
            for name, count, example in zip(names, counts, examples, strict=True)
        },
        sum(counts),
        total - len(rows),
    )
