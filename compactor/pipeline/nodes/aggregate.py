"""One row a group: as it ends where the input is sorted by the groups, else at the end, by their keys."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from compactor.errors import ConfigError
from compactor.flow.budget import MemoryBudget
from compactor.flow.disk import LocalDisk
from compactor.pipeline.aggregating import Grouper, parse_measures
from compactor.pipeline.binding import sort_schema
from compactor.pipeline.classify import is_sorted_by
from compactor.pipeline.config import Aggregate
from compactor.pipeline.provenance import Batches
from compactor.pipeline.sorting import Sorter
from compactor.pipeline.work import Work


def bound(work: Work, name: str, node: Aggregate, given: pa.Schema) -> pa.Schema:
    unused = MemoryBudget(work.stage_plan())
    return _grouper(name, node, given, unused, LocalDisk()).schema


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
            there = ", ".join(schema.names[:50])
            raise ConfigError(f"{what}: no column {key!r} to group by; there are: {there}")
    measures = parse_measures(node.columns, schema, what)
    try:
        return Grouper(node.group_by, measures, schema, budget, name, disk, keeps_order=keeps_order)
    except pa.ArrowException as error:
        raise ConfigError(f"{what}: {str(error).splitlines()[0]}") from None


def rows(work: Work, name: str, node: Aggregate) -> Batches:
    if is_sorted_by(node.input, node.group_by, work.nodes):
        return _of_sorted(work, name, node)
    return _hashed(work, name, node)


def _of_sorted(work: Work, name: str, node: Aggregate) -> Batches:
    """Group by group, in the order in which they come."""
    schema = work.schemas[node.input]
    row = 0
    with closing(_grouper(name, node, schema, work.budget, work.disk, keeps_order=True)) as grouper:

        def given(table: pa.Table) -> Batches:
            nonlocal row
            for batch in table.combine_chunks().to_batches():
                yield work.made(name, batch, row)
                row += batch.num_rows

        for batch in work.rows(node.input):
            grouper.append(batch.select(schema.names))
            yield from given(grouper.finished())
        for table in grouper.results():
            yield from given(table)


def _hashed(work: Work, name: str, node: Aggregate) -> Batches:
    schema = work.schemas[node.input]
    grouper = _grouper(name, node, schema, work.budget, work.disk)
    result = work.full(work.schemas[name])
    # Groups come out by their keys: so the result is the same whether any were on disk or not.
    sort = sort_schema(",".join(node.group_by), work.schemas[name], f"node {name!r}")
    with (
        closing(grouper),
        closing(Sorter(result, sort, work.batch_rows, work.budget, name, work.disk)) as sorter,
    ):
        work.budget.spill_by(
            name, lambda size: grouper.spill(size) or work.spill_buffers(name, size)
        )
        for batch in work.rows(node.input):
            grouper.append(batch.select(schema.names))
        row = 0
        for table in grouper.results():
            for batch in table.to_batches(max_chunksize=work.batch_rows):
                sorter.append(work.made(name, batch, row))
                row += batch.num_rows
        yield from sorter.sorted()
        work.report.spills += grouper.spills + sorter.spills
