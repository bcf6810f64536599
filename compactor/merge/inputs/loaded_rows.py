"""Models a row group whose keys are loaded: it is copied, or its rows are merged with those of other inputs.

    CANDIDATE --merge()--> MERGED   another input has keys in it, or a rule changes its rows
    CANDIDATE --copy()---> COPIED   all rows before it were merged, and no other input has keys in it

A row group that must not be copied begins as MERGED. The state depends only on the rows, not on what happens
to be loaded, so the same inputs always give the same outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import pyarrow as pa
from msgspec import Struct

from compactor.merge.inputs.copied import StoredKeys
from lsm_fragment.keys.bounds import Bound, key_at
from lsm_fragment.keys.comparator import ComparableKey


class LoadedGroup(Struct, frozen=True):
    """A row group whose sort columns are loaded."""

    rows: int
    number: int = 0
    """Its number in the fragment."""
    stored: StoredKeys | None = None
    """The chunks as they were stored, if the row group may be copied."""
    first_key: Bound = ()
    """Known, like the last one, only if the row group may be copied."""
    last_key: Bound = ()


class GroupState(Enum):
    CANDIDATE = "candidate"
    MERGED = "merged"
    COPIED = "copied"


class LoadedRows(Struct, kw_only=True):
    """The rows of one row group that were not given to the merge yet, with its state."""

    group: LoadedGroup
    rows: int
    row_bytes: int
    """Bytes of a row in the heaviest column."""
    first_key: ComparableKey = b""
    """Known, like the last one, only of a candidate."""
    last_key: ComparableKey = b""
    state: GroupState = GroupState.MERGED

    @classmethod
    def candidate(
        cls, group: LoadedGroup, row_bytes: int, first_key: ComparableKey, last_key: ComparableKey
    ) -> LoadedRows:
        return cls(
            group=group,
            rows=group.rows,
            row_bytes=row_bytes,
            first_key=first_key,
            last_key=last_key,
            state=GroupState.CANDIDATE,
        )

    @property
    def is_candidate(self) -> bool:
        return self.state is GroupState.CANDIDATE

    def merge(self) -> None:
        """Moves to MERGED: drops the stored chunks, since the rows go through the merge."""
        if self.is_candidate and self.group.stored is not None:
            self.group.stored.drop()
        self.state = GroupState.MERGED

    def copy(self) -> LoadedGroup:
        """Moves to COPIED: takes all rows at once. The caller must take or drop the stored chunks."""
        assert self.is_candidate
        self.state, self.rows = GroupState.COPIED, 0
        return self.group

    def take(self, most: int) -> int:
        """Takes some of the next rows for the merge. Returns how many."""
        self.merge()
        count = min(most, self.rows)
        self.rows -= count
        return count


def loaded_group(
    keys: Sequence[pa.Array], number: int = 0, stored: StoredKeys | None = None
) -> LoadedGroup:
    """Returns the loaded group of a row group's sort columns."""
    rows = len(keys[0])
    if stored is None:
        return LoadedGroup(rows, number)
    return LoadedGroup(rows, number, stored, key_at(keys, 0), key_at(keys, rows - 1))
