"""Finds the key of a sum that does not fit in the input that it comes from.

Where a merge folds a column, it no longer has the keys.
"""

from __future__ import annotations

import numpy as np

from compactor.rows.fold import FoldError
from compactor.stores.base import Store
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.key_text import with_key
from compactor.table.metadata import TableMetadata
from compactor.table.stored_object import StoredObject
from lsm_fragment.container.reader import FragmentReader


def with_key_of_input(
    store: Store, entry: FragmentEntry, table: TableMetadata, error: FoldError
) -> FoldError:
    """Returns the error with the key of its row. Raises what reading from the store raises."""
    name = f"{store.url}/{entry.key}"
    reader = FragmentReader(StoredObject(store, entry.key), entry.size_bytes, name)
    row = _stored_row(store, entry, error.row)
    starts = np.cumsum([0, *(group.rows for group in reader.footer.row_groups)])
    group = int(np.searchsorted(starts, row, side="right")) - 1
    [keys] = reader.read_storage([column.column for column in table.sort], [group])
    error.row = row - int(starts[group])
    return with_key(error, keys, table)


def _stored_row(store: Store, entry: FragmentEntry, row: int) -> int:
    """Returns the place of a row in its fragment. row: its place among those not deleted."""
    deleted = read_deletion(store, entry)
    if deleted is None:
        return row
    return int(np.flatnonzero(~deleted.to_numpy(zero_copy_only=False))[row])
