"""Sends each row to the first branch whose condition holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.pipelines.config import Route
from compactor.pipelines.expressions import Filter
from compactor.pipelines.located import rows_at
from compactor.pipelines.provenance import boundary_of
from compactor.pipelines.work import RunContext
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.arrays.buffers import integer_array

_BRANCH: Final = "$branch"


class Division:
    """Finds the branch of each row."""

    def __init__(self, node: Route, schema: pa.Schema, what: str) -> None:
        self._holds = [
            Filter(text, schema, what, f"branch {branch!r}")
            for branch, text in node.branches.items()
        ]
        uses = {name for holds in self._holds for name in holds.uses}
        self._uses = [name for name in schema.names if name in uses]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the number of the first branch whose condition holds, or the number of branches.

        Raises `pa.ArrowException` for values outside a condition's domain.
        """
        numbers = np.full(batch.num_rows, len(self._holds), np.int64)
        left, rest = np.arange(batch.num_rows), batch.select(self._uses)
        for number, holds in enumerate(self._holds):
            is_here = np.asarray(holds(rest))
            numbers[left[is_here]] = number
            left, rest = left[~is_here], keep_rows(rest, ~is_here)
        return batch.append_column(_BRANCH, integer_array(numbers))


def bound(node: Route, given: pa.Schema, what: str) -> pa.Schema:
    Division(node, given, what)
    return given


def edges_of(name: str, node: Route) -> list[str]:
    """Returns the branch names, as other nodes refer to them; `otherwise` last."""
    edges = [f"{name}.{branch}" for branch in node.branches]
    return edges if node.otherwise is None else [*edges, f"{name}.{node.otherwise}"]


def divided(work: RunContext, name: str, node: Route) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields rows with the edge of their branch. Errors of the conditions get the node's place."""
    edges = edges_of(name, node)
    division = Division(node, work.schemas[name], f"node {name!r}")
    for batch in work.clock.timed(name, work.stream(node.input)):
        if boundary_of(batch) is not None:
            yield from ((edge, batch) for edge in edges)
            continue
        for made in rows_at(work.pipeline, name, work.dead_letters.made(division, batch, name)):
            numbers = np.asarray(made.column(_BRANCH))
            rows = made.drop_columns([_BRANCH])
            yield from (
                (edge, keep_rows(rows, numbers == number)) for number, edge in enumerate(edges)
            )
