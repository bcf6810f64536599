"""A version of a table as a lazy frame of Polars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as pt

from compactor.api.dataset import pushed
from compactor.errors import UsageError
from compactor.predicate.foreign import polars_filter
from compactor.resources.packages import needing
from lsm_fragment.arrays.types import contains

if TYPE_CHECKING:
    import polars as pl

    from compactor.api.view import TableView


def lazy_frame(view: TableView) -> pl.LazyFrame:
    """Returns the rows of a version, read once Polars asks for them. view: stays at its version.

    Raises `UsageError` without Polars, or for a type that it lacks.
    """
    with needing("Polars", "to_polars", "polars"):
        from polars.io.plugins import register_io_source

    def frames(
        columns: list[str] | None, predicate: Any, rows: int | None, _batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars counts the first rows before the predicate: a scan must not leave any of them out.
        is_pushed = predicate is not None and rows is None
        where = polars_filter.condition_of(predicate, view.schema) if is_pushed else None
        for batch in pushed(view, columns, where):
            frame = _frame_of(batch)
            if rows is not None:
                frame = frame.head(rows)
                rows -= len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if rows == 0:
                return

    schema = {field.name: _polars_type(field) for field in view.schema}
    return register_io_source(frames, schema=schema, is_pure=True)


def _frame_of(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    import polars as pl

    # Polars makes up a name for a column without one, possibly that of another column.
    frame = pl.from_arrow(rows.rename_columns([str(place) for place in range(rows.num_columns)]))
    assert isinstance(frame, pl.DataFrame)
    frame.columns = rows.schema.names
    return frame


def _polars_type(field: pa.Field) -> pl.DataType:
    """Returns the type of a column in Polars. Raises `UsageError` for a type that it lacks."""
    import polars as pl

    lacking = UsageError(
        f"to_polars: column {field.name!r} is {field.type}, which Polars can't read: read the other "
        "columns by `polars.from_arrow(table.scan([...]).to_table())`"
    )
    if contains(field.type, _fails_late):
        raise lacking
    try:
        return _frame_of(pa.schema([field]).empty_table()).schema[field.name]
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,  # of fixed offsets and intervals; it is no `Exception`
    ):
        raise lacking from None


def _fails_late(dtype: pa.DataType) -> bool:
    """Returns whether Polars takes a type and panics later, at rows of it."""
    is_empty = pt.is_fixed_size_list(dtype) and dtype.list_size == 0
    is_empty = is_empty or (pt.is_fixed_size_binary(dtype) and dtype.byte_width == 0)
    return bool(is_empty or pt.is_decimal256(dtype))
