"""Filters rows, and selects or computes columns, row by row."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.config import Transform
from compactor.pipelines.expressions import Filter, computing
from compactor.pipelines.provenance import (
    Batches,
    boundary_batch,
    boundary_of,
    with_columns,
)
from compactor.pipelines.work import RunContext
from compactor.predicate.computed import Expression
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.arrays.storage import plain
from lsm_fragment.names import in_quotes


def chosen_columns(node: Transform, schema: pa.Schema, what: str) -> dict[str, str]:
    """Returns the expressions by result name. Raises `ConfigError` if there are none."""
    chosen = node.columns if node.columns is not None else tuple(schema.names)
    texts = chosen if isinstance(chosen, dict) else {name: in_quotes(name) for name in chosen}
    if not texts:
        raise ConfigError(f"{what}: `columns` names none")
    return texts


class Computed:
    """The computed columns of a transform."""

    def __init__(self, columns: Mapping[str, Expression]) -> None:
        self._columns = columns
        self.schema = pa.schema([(name, column.type) for name, column in columns.items()])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `pa.ArrowException` for values outside an expression's domain, naming the column."""
        values = []
        for name, column in self._columns.items():
            with computing(f"column {name!r}"):
                values.append(column(batch))
        return with_columns(batch, values, self.schema)


class Transformer:
    """A transform bound to its input."""

    def __init__(self, node: Transform, schema: pa.Schema, what: str) -> None:
        self._keeps = bound_filter(node, schema, what)
        texts = chosen_columns(node, schema, what)
        self._computed = Computed(
            {
                name: Expression(text, schema, f"{what}: column {name!r}")
                for name, text in texts.items()
            }
        )
        self.schema = self._computed.schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `pa.ArrowException` for values outside an expression's domain."""
        if self._keeps is not None:
            batch = _decoded(keep_rows(batch, self._keeps(batch)))
        return self._computed(batch)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decodes the columns that a source gave as codes."""
    for place, dtype in enumerate(batch.schema.types):
        if pt.is_dictionary(dtype):
            column = plain(batch.column(place))
            batch = batch.set_column(
                place, batch.schema.field(place).with_type(column.type), column
            )
    return batch


def bound_filter(node: Transform, schema: pa.Schema, what: str) -> Filter | None:
    return None if node.filter is None else Filter(node.filter, schema, what, "filter")


def bound(node: Transform, given: pa.Schema, what: str) -> pa.Schema:
    return Transformer(node, given, what).schema


def rows(work: RunContext, name: str, node: Transform) -> Batches:
    transformer = Transformer(node, work.schemas[node.input], f"node {name!r}")
    full = work.full(transformer.schema)
    for batch in work.stream(node.input):
        if (boundary := boundary_of(batch)) is not None:
            yield boundary_batch(boundary, full)
        size = node.batch_size or batch.num_rows
        for start in range(0, batch.num_rows, max(1, size)):
            yield from work.dead_letters.made(transformer, batch.slice(start, size), name)
