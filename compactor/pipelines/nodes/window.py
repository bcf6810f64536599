"""Computes columns over a window: sorts all rows by partition and order, then reads them in bounded
memory."""

from __future__ import annotations

import pyarrow as pa

from compactor.errors import ConfigError
from compactor.pipelines.classify import window_order
from compactor.pipelines.config import Transform, Window
from compactor.pipelines.nodes.transform import Computed, bound_filter, chosen_columns
from compactor.pipelines.provenance import HIDDEN_NAMES, Batches
from compactor.pipelines.window_functions import WindowedColumns
from compactor.pipelines.work import RunContext
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import check_sort_schema, parse_sort_schema


class WindowedTransformer:
    """A transform with a window, bound to its input."""

    def __init__(self, node: Transform, window: Window, schema: pa.Schema, what: str) -> None:
        self._keeps = bound_filter(node, schema, what)
        self.partition_by = window.partition_by
        try:
            self.order = window_order(window.partition_by, parse_sort_schema(window.order_by))
            check_sort_schema(schema, self.order)
        except SchemaError as error:
            raise ConfigError(f"{what}: window: {error}") from None
        self.columns = WindowedColumns(
            chosen_columns(node, schema, what), schema, window.rows, what
        )
        self.result = Computed(self.columns.columns)
        """Evaluates the expressions on rows that have their window function values."""
        self.schema = self.result.schema
        needed = self.columns.uses.union(column.column for column in self.order)
        self.held_schema = pa.schema([f for f in schema if f.name in needed])

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows that pass the filter, with the columns that the window needs.

        Raises `pa.ArrowException` for values outside the filter's domain.
        """
        hidden = [name for name in batch.schema.names if name in HIDDEN_NAMES]
        if self._keeps is not None:
            batch = keep_rows(batch, self._keeps(batch))
        return batch.select([*self.held_schema.names, *hidden])


def bound(node: Transform, window: Window, given: pa.Schema, what: str) -> pa.Schema:
    return WindowedTransformer(node, window, given, what).schema


def rows(work: RunContext, name: str, node: Transform, window: Window) -> Batches:
    """Yields rows by partition, then in order; ties keep their input order."""
    made = WindowedTransformer(node, window, work.schemas[node.input], f"node {name!r}")
    size = work.batch_size
    if node.batch_size is not None:
        size = size._replace(rows=node.batch_size)
    with work.sorter(name, work.full(made.held_schema), made.order, size) as sorter:
        for batch in work.rows(node.input):
            for kept in work.dead_letters.made(made.kept, batch, name):
                sorter.append(kept)
        ready = (
            batch
            for ordered in sorter.sorted()
            for batch in work.dead_letters.made(made.columns.with_arguments, ordered, name)
        )
        for block in made.columns.over(ready, made.partition_by, size, work.budget, name):
            for piece in size.slices(block):
                yield from work.dead_letters.made(made.result, piece, name)
