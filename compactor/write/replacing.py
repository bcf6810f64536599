"""Deletes rows by a condition, in a commit that may add others in their place."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from compactor.common.clock import random_id
from compactor.predicate.tree import Predicate
from compactor.stores.base import Store
from compactor.table.conditions import condition_on
from compactor.table.deletions import write_deletions
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import deletions_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation
from compactor.write.search import (
    FragmentProgress,
    MatchedRows,
    Search,
    StaleSearchError,
    with_deletions,
)
from lsm_fragment.threads import ThreadPool


def columns_of_text(table: TableMetadata) -> tuple[Any, ...]:
    """Returns what a condition's text is bound to; when it changes, the text has to be bound again."""
    return table.schema, table.names


class Replacing:
    """The rows that match a condition, as of the snapshot searched last."""

    def __init__(
        self,
        store: Store,
        where: str,
        operation: Operation,
        pool: ThreadPool,
        *,
        on_progress: FragmentProgress = lambda _done: None,
        skip_missing: bool = False,
    ) -> None:
        """where: the condition, on shown names; it is bound again when the table's columns have changed.

        skip_missing: ignores fragments that are gone or in quarantine.
        """
        self._store = store
        self._text = where
        self._operation = operation
        self._pool = pool
        self._on_progress = on_progress
        self._skip_missing = skip_missing
        self._bound_to: tuple[Any, ...] = ()
        """The columns to which the condition is bound."""
        self._deleted: list[FragmentEntry] = []
        self.where: Predicate
        """The condition on stored columns."""
        self.search: Search
        """The search for that condition."""
        self.rows = 0
        """Number of stored rows found."""
        self.shown_rows = 0
        """Number of rows found as readers see them."""
        self.fragments = 0
        """Number of fragments that hold these rows."""

    def find(self, snapshot: Snapshot) -> None:
        """Finds the rows of a snapshot, and writes their deletion, which `amend` commits.

        Raises `UsageError` for an invalid condition, and what searches raise.
        """
        bits = [(item.entry, item.deleted) for item in self._look(snapshot)]
        key = deletions_key(snapshot.version, random_id())
        self._deleted = write_deletions(self._store, key, bits) if bits else []

    def count(self, snapshot: Snapshot) -> None:
        """Finds the rows of a snapshot, and writes nothing."""
        self._look(snapshot)

    def _look(self, snapshot: Snapshot) -> list[MatchedRows]:
        if self._bound_to != columns_of_text(snapshot.table):
            self._bound_to = columns_of_text(snapshot.table)
            self.where = condition_on(snapshot.table, self._text)
            self.search = Search(
                self._store,
                self.where,
                self._pool,
                self._on_progress,
                skip_missing=self._skip_missing,
            )
        found = self.search.look(snapshot)
        self.rows = sum(item.new_rows for item in found)
        self.shown_rows = sum(item.shown_rows for item in found)
        self.fragments = len(found)
        return found

    def amend(self, latest: Snapshot, changes: Changes) -> Changes:
        """Deletes the rows beside what a commit adds, if any. Raises `StaleSearchError`."""
        if columns_of_text(latest.table) != self._bound_to:
            raise StaleSearchError
        changes = replace(changes, operation=self._operation)
        return with_deletions(latest, self.search, self._deleted, changes)
