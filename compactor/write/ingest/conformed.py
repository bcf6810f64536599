"""Conforms the rows of a file to the plan of its ingest: stored names, the table's types, checked values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from compactor.errors import InputError
from compactor.files.source import FileBatches
from compactor.table.metadata import TableMetadata
from compactor.table.not_null import not_null_paths
from compactor.table.numbers import MAX_KEY_BYTES
from compactor.write.file_schema import conform_batch
from compactor.write.ingest.columns import with_counts
from compactor.write.ingest.plan import IngestPlan
from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.sizes import cumulative_bytes, heaviest_value_bytes
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.validity import ValueCheck
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.sort_schema import ordering
from lsm_fragment.names import names_text

OnRows = Callable[[str, pa.RecordBatch, int], None]
"""Is called with the path of a file, rows under their stored names, and the number of those before."""


def ignore_rows(_path: str, _batch: pa.RecordBatch, _rows_before: int) -> None: ...


def conformed_rows(
    file: FileBatches, plan: IngestPlan, on_rows: OnRows = ignore_rows
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file under their stored names, checked.

    Raises `InputError`, and what `on_rows` raises.
    """
    table, rows = plan.metadata, 0
    shown, check = dict(table.names), ValueCheck()
    takes_nulls = not not_null_paths(plan.schema)
    for raw in file:
        batch = plan.names.of(raw)
        if not plan.has_counts:
            batch = with_counts(batch, table.rows)
        if not (takes_nulls and batch.schema.equals(plan.schema, check_metadata=True)):
            batch = conform_batch(batch, plan.schema, file.path, shown)
        if not file.is_checked:
            batch = _checked(batch, check)
        _check_keys(batch, table, file.path, rows)
        on_rows(file.path, batch, rows)
        rows += batch.num_rows
        yield batch


def _check_keys(batch: pa.RecordBatch, table: TableMetadata, path: str, rows_before: int) -> None:
    names = [column.column for column in ordering(table.sort)]
    keys = [to_storage(batch.column(name)) for name in names]
    if sum(map(heaviest_value_bytes, keys)) <= MAX_KEY_BYTES:
        return
    sizes = np.sum([np.diff(cumulative_bytes(key)) for key in keys], axis=0)
    row = int(np.argmax(sizes)) if len(sizes) else 0
    if len(sizes) and sizes[row] > MAX_KEY_BYTES:
        shown = map(table.shown_name, names)
        raise InputError(
            f"{path}, row {rows_before + row + 1:,}: its sort columns ({names_text(shown)}) take "
            f"{sizes[row]:,} bytes, more than {MAX_KEY_BYTES:,}: shorten their values, or sort the table "
            "by other columns"
        )


def _checked(batch: pa.RecordBatch, check: ValueCheck) -> pa.RecordBatch:
    """Returns the rows in canonical form. Raises `SchemaError` for invalid values."""
    try:
        return canonical(batch, check.check)
    except ValueError as error:
        raise SchemaError(str(error)) from error
