"""Runs a node of any kind on its input rows."""

from __future__ import annotations

from compactor.pipelines.config import Aggregate, Combine, Merge, Node, Sort, Transform, Window
from compactor.pipelines.nodes import aggregate, combine, merge, sort, transform, window
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import RunContext


def rows_of(work: RunContext, name: str, node: Node) -> Batches:
    """Returns the rows of any node but sources, routes and outputs; input comes from `work.stream`."""
    match node:
        case Transform(window=None):
            return transform.rows(work, name, node)
        case Transform(window=Window() as of):
            return window.rows(work, name, node, of)
        case Merge():
            return merge.rows(work, name, node)
        case Sort():
            return sort.rows(work, name, node)
        case Aggregate():
            return aggregate.rows(work, name, node)
        case Combine():
            return combine.rows(work, name, node)
    raise AssertionError(node)
