"""How rows are sorted, as files say it of themselves: Parquet's sorting columns, and our sort schema beside.

Parquet can say less than a sort schema: where NaN stands it leaves open, and -0.0 beside 0.0. So of a
sort schema it gets the columns up to the first one whose order it does not define; the whole is kept in
the metadata of the schema, which Parquet and Arrow IPC files carry along. What a file says is a hint,
never believed: who goes by it looks at the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from format.schema import Nulls, Order, SortColumn, SortSchema, ordering
from format.types import storage_type

METADATA_KEY: Final = b"lsm-compactor.sort"
"""Of the sort schema, as JSON, in the metadata of a file's schema."""


def with_sort_schema(schema: pa.Schema, sort: SortSchema | None) -> pa.Schema:
    """The same schema, saying how rows are sorted."""
    if not sort:
        return schema
    said = json.dumps([column.to_json() for column in ordering(sort)], ensure_ascii=False)
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: said.encode()})


def said_sort_schema(
    metadata: Mapping[bytes, bytes] | None, names: Collection[str]
) -> SortSchema | None:
    """What a schema's metadata says of the columns that are there; None if it says nothing."""
    try:
        document = json.loads((metadata or {})[METADATA_KEY])
        return _leading([SortColumn.from_json(column) for column in document], names)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None  # whoever wrote the file: it is no reason not to read it


def sorting_columns(schema: pa.Schema, sort: SortSchema | None) -> list[pq.SortingColumn] | None:
    """As much of a sort schema as Parquet orders alike; None if that is nothing."""
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
    """What a Parquet file says of itself, by us or by another writer; None if it says nothing."""
    said = said_sort_schema(metadata.metadata, schema.names)
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
    """Those up to the first that is not there, or comes again."""
    kept: list[SortColumn] = []
    for column in columns:
        if column.column not in names or column.column in [c.column for c in kept]:
            break
        kept.append(column)
    return tuple(kept) or None


def _leaves(dtype: pa.DataType) -> int:
    """Parquet numbers the leaves of its columns."""
    if not pt.is_nested(dtype):
        return 1
    return sum(_leaves(dtype.field(index).type) for index in range(dtype.num_fields))
