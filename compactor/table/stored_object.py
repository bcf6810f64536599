"""Reads ranges of one of a table's objects."""

from __future__ import annotations

from compactor.stores.base import Store
from compactor.table.missing import missing_explained


class StoredObject:
    """An object of a store as `FragmentReader` reads it."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    def read_range(self, start: int, length: int) -> bytes:
        with missing_explained(self._store, self._key, self._key):
            return self._store.read_range(self._key, start, length)
