"""The live fragments of a table by key: rows of a checkpoint, and those that came since.

A checkpoint of a million fragments opens in about a second because entries are made only when asked for; most
commands look at few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from compactor.common.counts import counted
from compactor.table.entry import FragmentEntry
from compactor.table.entry_table import EntryTable

_EMPTY: Final = EntryTable.of([])


class FragmentMap(Mapping[str, FragmentEntry]):
    """A map of entries by key. Only the maker of a copy may change it; a snapshot's map never changes."""

    __slots__ = ("_added", "_base", "_rows")

    def __init__(self, base: EntryTable | None = None) -> None:
        self._base = base or _EMPTY
        self._rows = {key: row for row, key in enumerate(self._base.keys())}
        self._added: dict[str, FragmentEntry] = {}

    def copy(self) -> FragmentMap:
        other = FragmentMap.__new__(FragmentMap)
        other._base, other._rows, other._added = self._base, self._rows.copy(), self._added.copy()
        return other

    def __getitem__(self, key: str) -> FragmentEntry:
        added = self._added.get(key)
        return added or self._base.entries([self._rows[key]])[0]

    def __iter__(self) -> Iterator[str]:
        yield from self._rows
        yield from self._added

    def __len__(self) -> int:
        return len(self._rows) + len(self._added)

    def __contains__(self, key: object) -> bool:
        return key in self._added or key in self._rows

    def all(self) -> list[FragmentEntry]:
        """Returns all entries, faster than one by one."""
        return [*self._base.entries(list(self._rows.values())), *self._added.values()]

    def set(self, entry: FragmentEntry) -> None:
        self._rows.pop(entry.key, None)
        self._added[entry.key] = entry

    def pop(self, key: str) -> FragmentEntry | None:
        """Removes and returns the entry; None if there is none."""
        if key in self._added:
            return self._added.pop(key)
        row = self._rows.pop(key, None)
        return None if row is None else self._base.entries([row])[0]

    def table(self) -> pa.Table:
        """Returns all entries as `EntryTable` has them. Rows of the checkpoint stay as they are."""
        kept = self._base.table
        if len(self._rows) < kept.num_rows:
            kept = kept.take(pa.array(list(self._rows.values()), pa.int64()))
        added = EntryTable.of(list(self._added.values())).table
        tables = [kept.replace_schema_metadata(None), added]
        return pa.concat_tables(tables)

    def __repr__(self) -> str:
        return f"FragmentMap({counted(len(self), 'fragment')})"
