"""Joins two nodes by the configured method."""

from __future__ import annotations

import pyarrow as pa

from compactor.pipelines.config import Combine, Method
from compactor.pipelines.nodes import hash_combine, sorted_combine
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import RunContext


def bound(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> pa.Schema:
    if node.method is Method.HASH:
        return hash_combine.bound(node, probe, build, what)
    return sorted_combine.bound(node, probe, build, what)


def rows(work: RunContext, name: str, node: Combine) -> Batches:
    method = hash_combine.rows if node.method is Method.HASH else sorted_combine.rows
    row = 0
    for found in method(work, name, node):
        yield work.made(name, found, row)
        row += found.num_rows
