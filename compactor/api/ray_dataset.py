"""A version of a table as a dataset of Ray. Import it only where Ray is installed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from compactor.api.dataset import filtered
from compactor.api.divided import DividedTable, RowsOfTask
from compactor.predicate.foreign import arrow_filter
from compactor.table.snapshot import Snapshot


def ray_dataset(url: str, snapshot: Snapshot) -> ray.data.Dataset:
    """Returns the rows of a version, read once Ray asks for them."""
    return ray.data.read_datasource(TableDatasource(DividedTable(url, snapshot)))


class TableDatasource(Datasource):  # type: ignore[misc]
    """Ray pushes columns and conditions down to it, of the latter what PyArrow can compute, and relies on
    both."""

    def __init__(self, table: DividedTable) -> None:
        super().__init__()
        self._table = table
        self._columns: tuple[str, ...] | None = None

    def get_name(self) -> str:
        return "lsm-compactor"

    def supports_projection_pushdown(self) -> bool:
        return True

    def get_projection_map(self) -> dict[str, str] | None:
        return None if self._columns is None else {name: name for name in self._columns}

    def apply_projection(self, projection_map: dict[str, str] | None) -> TableDatasource:
        result = copy.copy(self)
        if projection_map is not None:
            # Without any, rows are counted: a block without columns would have none.
            result._columns = tuple(projection_map) or tuple(self._table.schema.names[:1])
        return result

    def supports_predicate_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int:
        return self._table.raw_bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,  # noqa: ARG002 - Ray's name
    ) -> list[ReadTask]:
        predicate, schema = self.get_current_predicate(), self._table.schema
        shown = list(self._columns or schema.names)
        read, filter = shown, None
        if predicate is not None:
            filter = predicate.to_pyarrow()
            known = arrow_filter.columns_of(filter)
            read = schema.names if known is None else [*dict.fromkeys([*shown, *sorted(known)])]
        blocks = self._table.schema_of(shown)
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        found: list[RowsOfTask | None] = [*self._table.tasks(read, filter, parallelism)]
        return [
            ReadTask(partial(_blocks, rows, filter, blocks), unknown, blocks, per_task_row_limit)
            for rows in found or [None]
        ]


def _blocks(rows: RowsOfTask | None, filter: Any, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows of a task that satisfy the filter; an empty block if there are none."""
    yield schema.empty_table()
    for batch in () if rows is None else rows.batches():
        yield pa.table(filtered(batch, filter)).select(schema.names)
