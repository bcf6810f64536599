"""Conditions on the columns that a snapshot's table has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compactor.predicate import parse_where

if TYPE_CHECKING:
    from compactor.predicate.tree import Predicate
    from compactor.table.metadata import TableMetadata


def condition_on(table: TableMetadata, text: str) -> Predicate:
    """A condition in the names that people see, on the columns as they are stored. Raises `UsageError`."""
    from compactor.predicate.tree import with_names

    predicate = parse_where(text, table.shown_schema)
    if not table.names:
        return predicate
    return with_names(predicate, {shown: stored for stored, shown in table.names})
