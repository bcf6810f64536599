"""Conditions on rows: read from SQL, evaluated on arrays, and held against statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.predicate.tree import Predicate


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """See `compactor.predicate.parse`, which takes a tenth of a second to import: for those who ask."""
    from compactor.predicate import parse

    return parse.parse_where(text, schema)
