"""Sends each row to the first branch whose condition holds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from compactor.pipelines.binding import condition
from compactor.pipelines.config import Route
from compactor.pipelines.provenance import boundary_of
from compactor.pipelines.work import RunContext
from compactor.predicate.tree import columns_of, matching
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.arrays.storage import to_storage


def bound(node: Route, given: pa.Schema, what: str) -> pa.Schema:
    for branch, text in node.branches.items():
        condition(text, given, f"{what}, branch {branch!r}")
    return given


def edges_of(name: str, node: Route) -> list[str]:
    """Returns the branch names, as other nodes refer to them; `otherwise` last."""
    edges = [f"{name}.{branch}" for branch in node.branches]
    return edges if node.otherwise is None else [*edges, f"{name}.{node.otherwise}"]


def divided(work: RunContext, name: str, node: Route) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields rows with the edge of their branch."""
    edges = edges_of(name, node)
    what = f"node {name!r}"
    conditions = [condition(text, work.schemas[name], what) for text in node.branches.values()]
    for batch in work.clock.timed(name, work.stream(node.input)):
        if boundary_of(batch) is not None:
            yield from ((edge, batch) for edge in edges)
            continue
        rest = batch
        for edge, where in zip(edges, conditions, strict=False):
            arrays = {c: to_storage(rest.column(c)) for c in columns_of(where)}
            holds = pc.fill_null(matching(where, arrays, rest.num_rows), False)
            yield edge, keep_rows(rest, holds)
            rest = keep_rows(rest, pc.invert(holds))
        if node.otherwise is not None:
            yield edges[-1], rest
