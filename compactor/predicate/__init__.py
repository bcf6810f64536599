"""Conditions on rows: read from SQL, evaluated on arrays, and held against statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.predicate.tree import Predicate
    from compactor.table.metadata import TableMetadata


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """See `compactor.predicate.parse`, which takes a tenth of a second to import: for those who ask."""
    from compactor.predicate import parse

    return parse.parse_where(text, schema)


def condition_on(table: TableMetadata, text: str) -> Predicate:
    """A condition in the names that people see, on the columns as they are stored. Raises `UsageError`."""
    from compactor.predicate.tree import with_names

    predicate = parse_where(text, table.shown_schema)
    if not table.names:
        return predicate
    return with_names(predicate, {shown: stored for stored, shown in table.names})
