"""Merges rows of several inputs that are the same entity by rules (docs/reference/entity-merge.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from compactor.entities.entities import DELETED, RESERVED, UPDATED
from compactor.entities.entity_merge import merged_batches
from compactor.entities.expressions import ID, IDS
from compactor.entities.memory import COPIES
from compactor.entities.output import property_columns
from compactor.entities.spec import EntityMergeSpec
from compactor.errors import CompactorError, ConfigError
from compactor.pipelines.binding import fitted
from compactor.pipelines.config import Merge
from compactor.pipelines.provenance import Batches, without_hidden
from compactor.pipelines.work import RunContext
from compactor.resources.errors import MemoryLimitError
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.types import is_string, storage_type

_OWN = pa.schema(
    [(ID, pa.string()), (IDS, pa.list_(pa.string())), (DELETED, pa.bool_()), (UPDATED, pa.int64())]
)


def bound(node: Merge, given: Sequence[pa.Schema], what: str) -> pa.Schema:
    """Returns the identifying columns, then the properties of all inputs, as JSON."""
    for name, schema in zip(node.inputs, given, strict=True):
        dtype = storage_type(schema.field(ID).type) if ID in schema.names else None
        if dtype is None or not is_string(dtype):
            raise ConfigError(
                f"{what}: {name!r} needs a column {ID!r} of texts, it is {dtype or 'not there'}: "
                "compute one in a transform"
            )
    assert isinstance(node.entity, EntityMergeSpec)
    names = {name for schema in given for name in schema.names} - set(RESERVED)
    columns = property_columns(node.entity, names)
    return pa.schema([*_OWN, *(pa.field(name, pa.json_()) for name in columns)])


def rows(work: RunContext, name: str, node: Merge) -> Batches:
    """Yields merged rows in id order. Holds all rows: exceeding the memory limit is an error."""
    memory = Reservation(work.budget, name)

    def charge(size: int) -> None:
        memory.resize(memory.size + COPIES * size)

    assert isinstance(node.entity, EntityMergeSpec)
    upstream = _UpstreamErrors()
    inputs = [map(without_hidden, upstream.recorded(work.rows(edge))) for edge in node.inputs]
    schema, row = work.schemas[name], 0
    with memory:
        with upstream.kept_apart(name):
            merged = merged_batches(node.entity, inputs, charge=charge)
        for batch in merged:
            for some in work.batch_size.slices(fitted(batch, schema)):
                piece = work.made(name, some, row)
                row += piece.num_rows
                yield piece


class _UpstreamErrors:
    """Tells errors of the merge, which does not know its node, from errors of upstream nodes."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def recorded(self, batches: Batches) -> Batches:
        try:
            yield from batches
        except CompactorError as error:
            self._error = error
            raise

    @contextmanager
    def kept_apart(self, name: str) -> Iterator[None]:
        """Adds the node name to all errors but upstream errors and memory errors, which have it already."""
        try:
            yield
        except CompactorError as error:
            if error is self._error or isinstance(error, MemoryLimitError):
                raise
            raise type(error)(f"node {name!r}: {error}") from error
