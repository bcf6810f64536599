"""Rows kept by a condition; columns chosen or computed, row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import ConfigError
from compactor.pipeline.binding import condition
from compactor.pipeline.config import Transform
from compactor.pipeline.expressions import Expression
from compactor.pipeline.provenance import (
    HIDDEN_NAMES,
    Batches,
    boundary_batch,
    boundary_of,
    with_columns,
)
from compactor.pipeline.work import Work
from compactor.predicate.tree import columns_of, matching
from format.types import to_storage


class Transformer:
    """A transform bound to its input."""

    def __init__(self, node: Transform, schema: pa.Schema, what: str) -> None:
        self._where = None if node.filter is None else condition(node.filter, schema, what)
        chosen = node.columns if node.columns is not None else tuple(schema.names)
        texts = chosen if isinstance(chosen, dict) else {name: f'"{name}"' for name in chosen}
        self._columns = {name: Expression(text, schema, what) for name, text in texts.items()}
        if not self._columns:
            raise ConfigError(f"{what}: `columns` names none")
        for name in self._columns:
            if name in HIDDEN_NAMES:
                raise ConfigError(f"{what}: a column cannot be called {name!r}: the name is ours")
        self.schema = pa.schema([(name, column.type) for name, column in self._columns.items()])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises `pa.ArrowException` for values that an expression is not defined of."""
        if self._where is not None:
            arrays = {c: to_storage(batch.column(c)) for c in columns_of(self._where)}
            batch = batch.filter(pc.fill_null(matching(self._where, arrays, batch.num_rows), False))
        columns = [column(batch) for column in self._columns.values()]
        return with_columns(batch, columns, self.schema)


def bound(node: Transform, given: pa.Schema, what: str) -> pa.Schema:
    return Transformer(node, given, what).schema


def rows(work: Work, name: str, node: Transform) -> Batches:
    transformer = Transformer(node, work.schemas[node.input], f"node {name!r}")
    full = work.full(transformer.schema)
    for batch in work.stream(node.input):
        if (boundary := boundary_of(batch)) is not None:
            yield boundary_batch(boundary, full)
        size = node.batch_size or batch.num_rows
        for start in range(0, batch.num_rows, max(1, size)):
            yield from _transformed(work, transformer, batch.slice(start, size), name)


def _transformed(work: Work, transformer: Transformer, batch: pa.RecordBatch, name: str) -> Batches:
    """What becomes of a batch; rows that an expression is not defined of are put aside if need be."""
    try:
        yield transformer(batch)
    except pa.ArrowException as error:
        if batch.num_rows > 1:
            half = batch.num_rows // 2
            yield from _transformed(work, transformer, batch.slice(0, half), name)
            yield from _transformed(work, transformer, batch.slice(half), name)
            return
        work.letters.put_aside(batch, name, str(error).splitlines()[0])
