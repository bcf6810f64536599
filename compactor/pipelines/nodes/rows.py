"""Binds and runs nodes of any kind but sources, routes and outputs. Only the modules of their kinds are
imported."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from compactor.pipelines.config import Aggregate, Combine, Merge, Node, Sort, Transform, Window
from compactor.pipelines.nodes import transform
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import RunContext


def bound(work: RunContext, name: str, node: Node, given: Sequence[pa.Schema]) -> pa.Schema:
    """Returns the schema of a node's rows. given: those of its inputs. Raises `CompactorError`."""
    what = f"node {name!r}"
    match node:
        case Transform(window=None):
            return transform.bound(node, given[0], what)
        case Transform(window=Window() as of):
            from compactor.pipelines.nodes import window

            return window.bound(node, of, given[0], what)
        case Merge():
            from compactor.pipelines.nodes import merge

            return merge.bound(node, given, what)
        case Sort():
            from compactor.pipelines.nodes import sort

            return sort.bound(node, given[0], what)
        case Aggregate():
            from compactor.pipelines.nodes import aggregate

            return aggregate.bound(work, name, node, given[0])
        case Combine():
            from compactor.pipelines.nodes import combine

            return combine.bound(node, given[0], given[1], what)
    raise AssertionError(node)


def rows_of(work: RunContext, name: str, node: Node) -> Batches:
    """Returns the rows of a node; input comes from `work.stream`."""
    match node:
        case Transform(window=None):
            return transform.rows(work, name, node)
        case Transform(window=Window() as of):
            from compactor.pipelines.nodes import window

            return window.rows(work, name, node, of)
        case Merge():
            from compactor.pipelines.nodes import merge

            return merge.rows(work, name, node)
        case Sort():
            from compactor.pipelines.nodes import sort

            return sort.rows(work, name, node)
        case Aggregate():
            from compactor.pipelines.nodes import aggregate

            return aggregate.rows(work, name, node)
        case Combine():
            from compactor.pipelines.nodes import combine

            return combine.rows(work, name, node)
    raise AssertionError(node)
