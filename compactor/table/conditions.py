"""Parses conditions on the columns of a snapshot's table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compactor.predicate import parse_where

if TYPE_CHECKING:
    from compactor.predicate.tree import Predicate
    from compactor.table.metadata import TableMetadata


def condition_on(table: TableMetadata, text: str) -> Predicate:
    """Returns a condition on stored columns from one on the shown names. Raises `UsageError`."""
    from compactor.predicate.tree import with_names

    predicate = parse_where(text, table.shown_schema)
    if not table.names:
        return predicate
    return with_names(predicate, {shown: stored for stored, shown in table.names})
