"""Sorts all rows of a node."""

from __future__ import annotations

import pyarrow as pa

from compactor.pipelines.binding import sort_schema
from compactor.pipelines.config import Sort
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import RunContext


def bound(node: Sort, given: pa.Schema, what: str) -> pa.Schema:
    sort_schema(node.by, given, what)
    return given


def rows(work: RunContext, name: str, node: Sort) -> Batches:
    schema = work.full(work.schemas[name])
    sort = sort_schema(node.by, work.schemas[name], f"node {name!r}")
    with work.sorter(name, schema, sort) as sorter:
        for batch in work.rows(node.input):
            sorter.append(batch)
        yield from sorter.sorted()
