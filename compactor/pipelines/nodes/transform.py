"""Filters rows, and selects or computes columns, row by row."""

from __future__ import annotations

import pyarrow as pa

from compactor.errors import ConfigError
from compactor.pipelines.binding import condition
from compactor.pipelines.config import Transform
from compactor.pipelines.expressions import Expression, quoted
from compactor.pipelines.provenance import (
    Batches,
    boundary_batch,
    boundary_of,
    with_columns,
)
from compactor.pipelines.work import RunContext
from compactor.predicate.tree import columns_of, matching
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.arrays.storage import to_storage


def chosen_columns(node: Transform, schema: pa.Schema, what: str) -> dict[str, str]:
    """Returns the expressions by result name. Raises `ConfigError` if there are none."""
    chosen = node.columns if node.columns is not None else tuple(schema.names)
    texts = chosen if isinstance(chosen, dict) else {name: quoted(name) for name in chosen}
    if not texts:
        raise ConfigError(f"{what}: `columns` names none")
    return texts


class Filter:
    """Keeps the rows for which a condition holds; all rows without a condition."""

    def __init__(self, text: str | None, schema: pa.Schema, what: str) -> None:
        self._where = None if text is None else condition(text, schema, what)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._where is None:
            return batch
        arrays = {c: to_storage(batch.column(c)) for c in columns_of(self._where)}
        return keep_rows(batch, pc.fill_null(matching(self._where, arrays, batch.num_rows), False))


class Transformer:
    """A transform bound to its input."""

    def __init__(self, node: Transform, schema: pa.Schema, what: str) -> None:
        self._kept = Filter(node.filter, schema, what)
        texts = chosen_columns(node, schema, what)
        self._columns = {name: Expression(text, schema, what) for name, text in texts.items()}
        self.schema = pa.schema([(name, column.type) for name, column in self._columns.items()])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `pa.ArrowException` for values outside an expression's domain."""
        batch = self._kept(batch)
        columns = [column(batch) for column in self._columns.values()]
        return with_columns(batch, columns, self.schema)


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
