"""Rows of several inputs that are the same thing by rules, merged into one (docs/entity-merge.md)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types as pt

from compactor.entity.entities import DELETED, RESERVED, UPDATED
from compactor.entity.expressions import ID, IDS
from compactor.entity.fold import MERGED
from compactor.entity.memory import COPIES
from compactor.entity.run import merged_batches
from compactor.entity.spec import EntityMergeSpec, Strategy
from compactor.errors import ConfigError
from compactor.pipeline.binding import fitted
from compactor.pipeline.config import Merge
from compactor.pipeline.provenance import Batches, without_hidden
from compactor.pipeline.work import Work
from format.types import storage_type

_OWN = pa.schema(
    [(ID, pa.string()), (IDS, pa.list_(pa.string())), (DELETED, pa.bool_()), (UPDATED, pa.int64())]
)


def bound(node: Merge, given: Sequence[pa.Schema], what: str) -> pa.Schema:
    """What entities are called, and all properties of all inputs, as JSON."""
    for name, schema in zip(node.inputs, given, strict=True):
        dtype = storage_type(schema.field(ID).type) if ID in schema.names else None
        if dtype is None or not (pt.is_string(dtype) or pt.is_large_string(dtype)):
            raise ConfigError(
                f"{what}: {name!r} needs a column {ID!r} of texts, it is {dtype or 'not there'}: "
                "compute one in a transform"
            )
    assert isinstance(node.entity, EntityMergeSpec)
    names = sorted({name for schema in given for name in schema.names} - set(RESERVED))
    if node.entity.strategy is Strategy.LIST:
        names = [MERGED]
    return pa.schema([*_OWN, *(pa.field(name, pa.json_()) for name in names)])


def rows(work: Work, name: str, node: Merge) -> Batches:
    """In the order of their ids. Everything is held: more than the memory limit allows is an error."""
    held = 0

    def charge(size: int) -> None:
        nonlocal held
        work.budget.charge(name, COPIES * size)
        held += COPIES * size

    assert isinstance(node.entity, EntityMergeSpec)
    inputs = [map(without_hidden, work.rows(edge)) for edge in node.inputs]
    schema, row = work.schemas[name], 0
    try:
        for batch in merged_batches(node.entity, inputs, charge=charge):
            whole = fitted(batch, schema)
            for start in range(0, whole.num_rows, work.batch_rows):
                piece = work.made(name, whole.slice(start, work.batch_rows), row)
                row += piece.num_rows
                yield piece
    finally:
        work.budget.discharge(name, held)
