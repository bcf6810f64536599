"""Conditions on rows: parsed from SQL, evaluated on arrays, and compared with statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.predicate.tree import Predicate


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """Parses a condition; see `compactor.predicate.parse`, whose slow import waits until this is called."""
    from compactor.predicate import parse

    return parse.parse_where(text, schema)
