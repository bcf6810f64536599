"""Writes and reads the sort order of a file: Parquet's sorting columns, and our sort schema.

Parquet expresses less than a sort schema: it does not define the order of NaN, nor of -0.0 and 0.0. Its
sorting columns end before the first column whose order it does not define; the schema's metadata in Parquet
and Arrow IPC files has the whole sort schema. A recorded order is only a hint: callers check the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, ordering

if TYPE_CHECKING:
    import pyarrow.parquet as pq

METADATA_KEY: Final = b"lsm-compactor.sort"
"""Key of the sort schema, as JSON, in the metadata of a file's schema."""


def with_sort_schema(schema: pa.Schema, sort: SortSchema | None) -> pa.Schema:
    """Adds the sort schema to a schema's metadata."""
    if not sort:
        return schema
    said = json.dumps([column.to_json() for column in ordering(sort)], ensure_ascii=False)
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: said.encode()})


def recorded_sort_schema(
    metadata: Mapping[bytes, bytes] | None, names: Collection[str]
) -> SortSchema | None:
    """Returns the sort schema in a schema's metadata, up to the first missing column; None if there is
    none."""
    try:
        document = json.loads((metadata or {})[METADATA_KEY])
        return _leading([SortColumn.from_json(column) for column in document], names)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None  # The recorded order is unusable, but the file is readable without it.


def sorting_columns(schema: pa.Schema, sort: SortSchema | None) -> list[pq.SortingColumn] | None:
    """Returns the longest prefix of a sort schema that Parquet can express; None if it is empty."""
    import pyarrow.parquet as pq

    found = []
    for column in ordering(sort or ()):
        index = schema.get_field_index(column.column)
        dtype = storage_type(schema.field(index).type)
        if pt.is_floating(dtype):
            break
        found.append(
            pq.SortingColumn(
                sum(_leaves(storage_type(field.type)) for field in list(schema)[:index]),
                descending=column.order is Order.DESC,
                nulls_first=column.nulls is Nulls.FIRST,
            )
        )
    return found or None


def sort_of_parquet(metadata: pq.FileMetaData, schema: pa.Schema) -> SortSchema | None:
    """Returns the sort schema recorded in a Parquet file by any writer; None if there is none."""
    said = recorded_sort_schema(metadata.metadata, schema.names)
    if said is not None or metadata.num_row_groups == 0:
        return said
    first, *others = (
        metadata.row_group(index).sorting_columns for index in range(metadata.num_row_groups)
    )
    if any(other != first for other in others):
        return None
    leaves = [metadata.schema.column(column.column_index) for column in first]
    columns = [
        SortColumn(
            leaf.path,
            Order.DESC if column.descending else Order.ASC,
            Nulls.FIRST if column.nulls_first else Nulls.LAST,
        )
        for leaf, column in zip(leaves, first, strict=True)
    ]
    nested = {leaf.path for leaf in leaves if leaf.max_repetition_level or leaf.path != leaf.name}
    return _leading(columns, set(schema.names) - nested)


def _leading(columns: Collection[SortColumn], names: Collection[str]) -> SortSchema | None:
    """Returns the columns up to the first one that is missing or repeated."""
    kept: list[SortColumn] = []
    for column in columns:
        if column.column not in names or column.column in [c.column for c in kept]:
            break
        kept.append(column)
    return tuple(kept) or None


def _leaves(dtype: pa.DataType) -> int:
    """Returns the number of leaf columns of a type, which Parquet numbers."""
    if not pt.is_nested(dtype):
        return 1
    return sum(_leaves(dtype.field(index).type) for index in range(dtype.num_fields))
