"""All rows in order."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from compactor.pipeline.binding import sort_schema
from compactor.pipeline.config import Sort
from compactor.pipeline.provenance import Batches
from compactor.pipeline.sorting import Sorter
from compactor.pipeline.work import Work


def bound(node: Sort, given: pa.Schema, what: str) -> pa.Schema:
    sort_schema(node.by, given, what)
    return given


def rows(work: Work, name: str, node: Sort) -> Batches:
    schema = work.full(work.schemas[name])
    sort = sort_schema(node.by, work.schemas[name], f"node {name!r}")
    with closing(Sorter(schema, sort, work.batch_rows, work.budget, name, work.disk)) as sorter:
        work.budget.spill_by(
            name, lambda size: sorter.spill(size) or work.spill_buffers(name, size)
        )
        for batch in work.rows(node.input):
            sorter.append(batch)
        yield from sorter.sorted()
        work.report.spills += sorter.spills
