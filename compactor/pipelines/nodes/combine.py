"""Joins two nodes by the configured method."""

from __future__ import annotations

import pyarrow as pa

from compactor.pipelines.config import Combine, Method, keys_of
from compactor.pipelines.join_keys import JoinKeys, joined_schema, widened_keys
from compactor.pipelines.nodes import hash_combine, sorted_combine
from compactor.pipelines.pairing import How
from compactor.pipelines.provenance import Batches
from compactor.pipelines.work import RunContext


def bound(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> pa.Schema:
    """Returns the schema of the result. Raises `ConfigError` naming the column."""
    keys = _keys(node, probe, build, what)
    how = How(node.how)
    if how.is_probe_only:
        return probe
    schema = joined_schema(probe, build, keys.shared, what)
    return widened_keys(schema, keys, what) if how.keeps_right else schema


def rows(work: RunContext, name: str, node: Combine) -> Batches:
    method = hash_combine.rows if node.method is Method.HASH else sorted_combine.rows
    keys = _keys(node, work.schemas[node.probe], work.schemas[node.build], f"node {name!r}")
    row = 0
    for found in method(work, name, node, keys):
        yield work.made(name, found, row)
        row += found.num_rows


def _keys(node: Combine, probe: pa.Schema, build: pa.Schema, what: str) -> JoinKeys:
    return JoinKeys(
        probe, build, keys_of(node), what, sorted_combine.ordered(node, probe, build, what)
    )
